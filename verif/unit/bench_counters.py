"""Random states and work against sums in Python."""

import cocotb
from cocotb.triggers import RisingEdge, Timer

from sluice_hw import csr
from sluice_hw.counters import work_layout
from sluice_hw.isa import UNIT_CAUSES, Cause
from verif.transactors import seeded, start_up

NAMES = list(csr.counters())


async def read_all(dut):
    out = {}
    for i, name in enumerate(NAMES):
        dut.select.value = i
        await RisingEdge(dut.clk)
        await Timer(1, "ns")
        out[name] = int(dut.value.value)
    return out


def window(history):
    """Window and starved cycles of [(mxu state, row)], after the definition: from the first to the last row."""
    rows = [i for i, (_, row) in enumerate(history) if row]
    starved = dict.fromkeys(UNIT_CAUSES["mxu"], 0)
    if not rows:
        return 0, starved
    inside = history[rows[0]:rows[-1] + 1]
    for state, row in inside:
        if not row:
            starved[state if state in starved else Cause.IDLE] += 1
    return len(inside), starved


@cocotb.test
async def sums(dut):
    await start_up(dut, clear=0, running=0, work=0, select=0, **dict.fromkeys(UNIT_CAUSES, 0))
    rng = seeded("sums")
    widths = {name: f.width for name, f in work_layout()}
    for program in range(6):
        dut.clear.value = 1
        await RisingEdge(dut.clk)
        dut.clear.value = 0
        expected = dict.fromkeys(NAMES, 0)
        history = []
        length = rng.randint(50, 300)
        for cycle in range(length):
            running = rng.random() < 0.9
            dut.running.value = int(running)
            states = {unit: rng.choice(list(Cause)) for unit in UNIT_CAUSES}
            for unit, state in states.items():
                getattr(dut, unit).value = int(state)
            # The last program has no row at all; the others begin and end without.
            row = program < 5 and 10 < cycle < length - 20 and rng.random() < 0.3
            work = {name: rng.getrandbits(w) for name, w in widths.items()} | {"array_rows": int(row)}
            dut.work.value = work_layout().const(work).as_value().value
            if running:
                expected["cycles"] += 1
                for unit, state in states.items():
                    known = state if state in UNIT_CAUSES[unit] else Cause.IDLE
                    expected[f"{unit}_{known.name.lower()}"] += 1
                for name, value in work.items():
                    expected[name] += value
                history.append((states["mxu"], row))
            await RisingEdge(dut.clk)
        dut.running.value = 0
        expected["window"], starved = window(history)
        expected |= {f"starved_{c.name.lower()}": n for c, n in starved.items()}
        got = await read_all(dut)
        assert got == expected, {n: (got[n], expected[n]) for n in NAMES if got[n] != expected[n]}
        for unit, causes in UNIT_CAUSES.items():
            assert sum(got[f"{unit}_{c.name.lower()}"] for c in causes) == got["cycles"], unit
        assert sum(got[f"starved_{c.name.lower()}"] for c in UNIT_CAUSES["mxu"]) == got["window"] - got["array_rows"]
        assert int(dut.cycles.value) == expected["cycles"]
        assert (got["window"] > 0) == (program < 5)
    dut.select.value = 63
    await RisingEdge(dut.clk)
    await Timer(1, "ns")
    assert int(dut.value.value) == 0
