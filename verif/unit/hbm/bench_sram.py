"""Bench of the SRAM back end of HBM."""

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

from sluice_hw import isa
from verif.transactors import bursts, parameter, random_pauses, seeded, start_up
from verif.unit.hbm.slices import Requester
from verif.unit.memory import CONFIGS

CONFIG = CONFIGS[parameter("CONFIG")]
SLICE, SLICES, LATENCY, BEATS = CONFIG.slice_bytes, CONFIG.hbm_slices, CONFIG.hbm_latency, CONFIG.slice_beats
MOVES, CYCLES = CONFIG.hbm_beat_rate


def span(beats: int) -> int:
    """Cycles from the first to the last of ``beats`` beats that are always wanted, after a pause."""
    return -(-(CYCLES * (beats - 1) + 1) // MOVES) - 1


async def within(event, cycles: int) -> None:
    """Wait for an event, but not for ever."""
    await with_timeout(event.wait(), 10 * cycles, "ns")


async def filled(dut, name: str, pauses=lambda: None) -> tuple:
    """A requester, a random generator, and what the memory holds after every slice was written."""
    await start_up(dut)
    rng, port = seeded(name), Requester(dut, "port", CONFIG, pauses=pauses)
    contents = bytearray(rng.randbytes(CONFIG.hbm_bytes))
    await within(port.write(0, bytes(contents)), 20 * len(contents))
    return port, rng, contents


async def random_run(dut, name: str, pauses) -> None:
    """Batches of trains. Reads and writes have no order among each other, so those of a batch do not overlap."""
    port, rng, contents = await filled(dut, name, pauses)
    answers, trains = [0], []
    for _ in range(30):
        taken: set[int] = set()
        waiting = []
        for _ in range(rng.randint(1, 12)):
            count = rng.randint(1, 4)
            first = rng.choice([rng.randrange(SLICES), SLICES - count, SLICES - 1])
            good = first + count <= SLICES
            span = slice(first * SLICE, (first + count) * SLICE)
            if taken & set(range(first, first + count)):
                continue
            taken.update(range(first, first + count))
            if rng.random() < 0.5:
                values = rng.randbytes(count * SLICE)
                waiting.append(port.write(first, values))
                answers.append(int(not good))
                if good:
                    contents[span] = values
            else:
                waiting.append(port.read(first, count))
                trains.append(bytes(contents[span]) if good else None)
        for event in waiting:
            await within(event, 20_000)
    assert port.answers == answers and port.read_trains == trains
    assert None in trains and 1 in answers
    await within(port.read(0, SLICES), 100 * BEATS * SLICES)
    assert port.read_trains[-1] == bytes(contents)


@cocotb.test()
async def random_trains(dut):
    rng = seeded("trains pauses")
    await random_run(dut, "trains", lambda: random_pauses(0.3, rng))


@cocotb.test()
async def random_bursts(dut):
    rng = seeded("bursts pauses")
    await random_run(dut, "bursts", lambda: bursts(rng, 30))


@cocotb.test()
async def without_pauses(dut):
    await random_run(dut, "straight", lambda: None)


@cocotb.test()
async def read_latency(dut):
    """The first beat comes hbm_latency cycles after the request, the others of back-to-back trains at the full rate."""
    port, _, contents = await filled(dut, "latency")
    await ClockCycles(dut.clk, 5)
    for trains in (1, 6):
        first_beat, first_read = len(port.beats.items), len(port.reads.items)
        for i in range(trains):
            event = port.read(i, 1)
        await within(event, 2000)
        asked, came = port.reads.cycles[first_read:], port.beats.cycles[first_beat:]
        assert came[0] - asked[0] == LATENCY
        assert len(came) == trains * BEATS and came[-1] - came[0] == span(trains * BEATS)
        if trains > 1:
            assert asked[3] - asked[0] == 3, "requests do not wait for data"
        await ClockCycles(dut.clk, 5)
    assert port.read_trains[-1] == bytes(contents[5 * SLICE : 6 * SLICE])


@cocotb.test()
async def write_rate(dut):
    """The full rate, also from train to train, and the answer in the cycle behind the last beat."""
    port, rng, _ = await filled(dut, "writes")
    await ClockCycles(dut.clk, 5)
    first, done = len(port.write_beats.items), len(port.answers)
    for i in range(4):
        event = port.write(i, rng.randbytes(2 * SLICE))
    await within(event, 2000)
    cycles, answers = port.write_beats.cycles[first:], port.dones.cycles[done:]
    assert len(cycles) == 8 * BEATS and cycles[-1] - cycles[0] == span(8 * BEATS)
    assert answers == [c + 1 for c in cycles[2 * BEATS - 1 :: 2 * BEATS]]


@cocotb.test()
async def one_bus(dut):
    """Reads and writes together move beats at the full rate, half of them each."""
    port, rng, _ = await filled(dut, "bus")
    long = SLICES // 2
    reads = port.read(0, long)
    await ClockCycles(dut.clk, LATENCY - 2)
    first, first_beat = len(port.write_beats.items), len(port.beats.items)
    writes = port.write(long, rng.randbytes(long * SLICE))
    await within(reads, 4000 + 4 * long * BEATS)
    await within(writes, 4000 + 4 * long * BEATS)
    cycles = sorted([c + 1 for c in port.write_beats.cycles[first:]] + port.beats.cycles[first_beat:])
    assert len(cycles) == 2 * long * BEATS and len(set(cycles)) == len(cycles), "two beats in a cycle"
    assert cycles[-1] - cycles[0] <= span(len(cycles)) + 4
    assert abs(port.write_beats.cycles[-1] - port.beats.cycles[-1]) <= 4 * CYCLES / MOVES


@cocotb.test()
async def rate(dut):
    """No window of cycles has more beats than its share; it has no fewer while beats are wanted, whatever moves."""
    port, rng, _ = await filled(dut, "rate")
    moved: list[int] = []

    async def sample() -> None:
        while True:
            await RisingEdge(dut.clk)
            moved.append(int(dut.state.value) == isa.Cause.BUSY)

    task = cocotb.start_soon(sample())
    half = SLICES // 2

    def work(kind: str, count: int) -> list:
        reads = [port.read(rng.randrange(half), 1) for _ in range(count) if kind != "writes"]
        writes = [port.write(half + rng.randrange(half), rng.randbytes(SLICE)) for _ in range(count) if kind != "reads"]
        return reads + writes

    def counts(trace: list[bool], width: int) -> set[int]:
        """Beats in every window of ``width`` cycles."""
        sums = np.cumsum([0, *trace])
        return set((sums[width:] - sums[:-width]).tolist())

    for kind in ("reads", "writes", "both"):
        await ClockCycles(dut.clk, rng.randint(4, 20))
        first = len(moved)
        for event in work(kind, 2 * LATENCY // BEATS):
            await within(event, 40 * LATENCY * BEATS)
        busy = [i for i in range(first, len(moved)) if moved[i]]
        # Where both begin and end one is alone, before the first read is ripe and with gaps behind its trains.
        margin = LATENCY if kind == "both" else 0
        trace = moved[busy[0] + margin : busy[-1] + 1 - margin]
        assert len(trace) > LATENCY, kind
        for width in (*range(1, 4 * CYCLES), len(trace)):
            share = width * MOVES
            assert counts(trace, width) <= {share // CYCLES, -(-share // CYCLES)}, (kind, width)
    for _ in range(40):
        for event in work("both", rng.randint(0, 2)):
            await within(event, 8000)
        await ClockCycles(dut.clk, rng.randint(0, 3 * CYCLES))
    for width in range(1, 4 * CYCLES):
        assert max(counts(moved, width)) == -(-width * MOVES // CYCLES), width
    task.cancel()


@cocotb.test()
async def refused(dut):
    """Trains that reach outside, and empty ones, change nothing and are answered in their turn."""
    port, rng, contents = await filled(dut, "refused")
    cases = [(SLICES, 1), (SLICES - 1, 2), (1 << 31, 1), (0xFFFFFFFF, 1), (0xFFFFFFFF, 3), (0, 0), (SLICES, 0)]
    for first, count in cases:
        port.read(first, count)
        port.read(1, 1)
        port.write(first, rng.randbytes(count * SLICE))
        event = port.write(2, bytes(contents[2 * SLICE : 3 * SLICE]))
    await within(event, 4000 + 100 * BEATS)
    await within(port.read(0, SLICES), 4000 + 10 * BEATS * SLICES)
    good = bytes(contents[SLICE : 2 * SLICE])
    assert port.read_trains == [None, good] * len(cases) + [bytes(contents)]
    assert port.answers == [0] + [1, 0] * len(cases)


@cocotb.test()
async def states(dut):
    """BUSY counts beats, HBM the cycles of an open request without one."""
    port, rng, _ = await filled(dut, "states")
    await ClockCycles(dut.clk, 5)
    counts = dict.fromkeys(isa.UNIT_CAUSES["hbm"], 0)

    async def sample() -> None:
        while True:
            await RisingEdge(dut.clk)
            counts[isa.Cause(int(dut.state.value))] += 1

    task = cocotb.start_soon(sample())
    await ClockCycles(dut.clk, 10)
    await within(port.read(3, 2), 1000)
    await ClockCycles(dut.clk, 10)
    assert counts[isa.Cause.BUSY] == 2 * BEATS
    # From the cycle behind the request to the one before the first beat leaves the RAM, and one to take the last beat.
    # Between them, the cycles in which no beat is due.
    assert counts[isa.Cause.HBM] == LATENCY - 2 + 1 + span(2 * BEATS) - (2 * BEATS - 1)
    await within(port.write(3, rng.randbytes(SLICE)), 1000)
    await ClockCycles(dut.clk, 5)
    assert counts[isa.Cause.BUSY] == 3 * BEATS
    task.cancel()
