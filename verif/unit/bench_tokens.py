"""Random takes and gives against plain counts."""

import cocotb
from cocotb.triggers import RisingEdge, Timer

from sluice_hw.interfaces import fault_layout
from sluice_hw.isa import Error
from verif.transactors import parameter, seeded, start_up
from verif.unit.microcode import unpack

N = 4


async def create(dut):
    await start_up(dut, enable=1, **{f"give__{i}": 0 for i in range(N)}, **{f"give_pc__{i}": 0 for i in range(N)},
                   **{f"take__{i}__payload": 0 for i in range(N)})


def counts(dut, top):
    bits = top.bit_length()
    value = int(dut.counts.value)
    return [[value >> bits * (N * f + t) & (1 << bits) - 1 for t in range(N)] for f in range(N)]


@cocotb.test
async def random_traffic(dut):
    """Counts, grants, what is missing and overflows, every cycle; the mix drifts so that both ends are reached."""
    top = int(parameter("TOP"))
    await create(dut)
    rng = seeded("traffic")
    model = [[0] * N for _ in range(N)]
    takes = [None] * N
    overflows = grants = both = 0
    for cycle in range(3000):
        giving = 0.7 if cycle // 300 % 2 == 0 else 0.1
        gives = [sum((rng.random() < giving * 0.5) << t for t in range(N)) for _ in range(N)]
        for u in range(N):
            if takes[u] is None and rng.random() < 0.5:
                takes[u] = rng.randrange(16)
            getattr(dut, f"take__{u}__valid").value = int(takes[u] is not None)
            getattr(dut, f"take__{u}__payload").value = takes[u] if takes[u] is not None else rng.randrange(16)
            getattr(dut, f"give__{u}").value = gives[u]
            getattr(dut, f"give_pc__{u}").value = 100 + u
        enable = int(rng.random() < 0.9)
        dut.enable.value = enable
        await Timer(1, "ns")

        fault = None
        taken = [[0] * N for _ in range(N)]
        for u in range(N):
            missing = sum((model[f][u] == 0) << f for f in range(N)) & (takes[u] or 0)
            assert int(getattr(dut, f"missing__{u}").value) == missing
            if takes[u] is not None:
                ready = enable and not missing
                assert int(getattr(dut, f"take__{u}__ready").value) == int(ready)
                if ready:
                    grants += 1
                    for f in range(N):
                        taken[f][u] = takes[u] >> f & 1
                    takes[u] = None
        for f in range(N):
            for t in range(N):
                up, down = gives[f] >> t & 1, taken[f][t]
                both += up and down and model[f][t] == top
                if up and not down and model[f][t] == top:
                    fault = fault or (f, t)
                else:
                    model[f][t] += up - down
                assert 0 <= model[f][t] <= top
        assert int(dut.fault_valid.value) == int(fault is not None)
        if fault:
            overflows += 1
            seen = unpack(fault_layout(), int(dut.fault.value))
            assert seen == {"code": Error.TOKEN_OVERFLOW, "pc": 100 + fault[0], "info": fault[1]}
            assert int(dut.fault_unit.value) == fault[0]
        await RisingEdge(dut.clk)
        await Timer(1, "ns")
        assert counts(dut, top) == model
    assert grants > 50
    if top <= 5:
        assert overflows > 20 and both > 0


@cocotb.test
async def fills_to_the_top(dut):
    """Exactly `top` tokens fit between each pair, and exactly as many come out."""
    top = int(parameter("TOP"))
    await create(dut)
    for f, t in ((0, 1), (1, 0), (2, 3), (3, 3)):
        getattr(dut, f"give__{f}").value = 1 << t
        for _ in range(top):
            await Timer(1, "ns")
            assert int(dut.fault_valid.value) == 0
            await RisingEdge(dut.clk)
        await Timer(1, "ns")
        assert int(dut.fault_valid.value) == 1
        getattr(dut, f"give__{f}").value = 0
        expected = [[top * ((f, t) == (i, j)) for j in range(N)] for i in range(N)]
        assert counts(dut, top) == expected
        getattr(dut, f"take__{t}__payload").value = 1 << f
        getattr(dut, f"take__{t}__valid").value = 1
        for _ in range(top):
            await Timer(1, "ns")
            assert int(getattr(dut, f"take__{t}__ready").value) == 1
            await RisingEdge(dut.clk)
        await Timer(1, "ns")
        assert int(getattr(dut, f"take__{t}__ready").value) == 0
        getattr(dut, f"take__{t}__valid").value = 0
        assert counts(dut, top) == [[0] * N] * N


@cocotb.test
async def every_counter_at_the_top(dut):
    """All filled at one time; then one more of each is reported, by its giver and taker, and not counted."""
    top = int(parameter("TOP"))
    await create(dut)
    for f in range(N):
        getattr(dut, f"give__{f}").value = (1 << N) - 1
        getattr(dut, f"give_pc__{f}").value = 200 + f
    for _ in range(top):
        await RisingEdge(dut.clk)
    for f in range(N):
        getattr(dut, f"give__{f}").value = 0
    for f in range(N):
        for t in range(N):
            getattr(dut, f"give__{f}").value = 1 << t
            await Timer(1, "ns")
            assert int(dut.fault_valid.value) == 1 and int(dut.fault_unit.value) == f
            seen = unpack(fault_layout(), int(dut.fault.value))
            assert seen == {"code": Error.TOKEN_OVERFLOW, "pc": 200 + f, "info": t}
            await RisingEdge(dut.clk)
        getattr(dut, f"give__{f}").value = 0
    await Timer(1, "ns")
    assert int(dut.fault_valid.value) == 0
    assert counts(dut, top) == [[top] * N] * N
