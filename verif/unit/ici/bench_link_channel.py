"""The cable in RTL: exact delay, and faults at their rates."""

import cocotb
from cocotb.triggers import RisingEdge

from verif.transactors import parameter, seeded, start_up

N = 2000


async def send(dut, rng, **inputs):
    """Numbered words, each cycle; returns what came out as (cycle, word)."""
    await start_up(dut, i__valid=0, i__word=0, **{"drop": 0, "corrupt": 0, "twice": 0, "cut": 0, **inputs})
    out = []
    for cycle in range(N):
        dut.i__valid.value, dut.i__word.value = 1, cycle
        await RisingEdge(dut.clk)
        if int(dut.o__valid.value):
            out.append((cycle, int(dut.o__word.value)))
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    return out


@cocotb.test
async def delay(dut):
    latency = int(parameter("LATENCY"))
    out = await send(dut, seeded("delay"))
    assert out == [(cycle, cycle - latency) for cycle in range(latency, N)]


@cocotb.test
async def faults(dut):
    latency, rng = int(parameter("LATENCY")), seeded("faults")
    sent = N - latency
    out = await send(dut, rng, drop=1 << 30)
    assert 0.70 * sent < len(out) < 0.80 * sent and all(cycle - word == latency for cycle, word in out)
    out = await send(dut, rng, corrupt=1 << 30)
    wrong = [bin(word ^ (cycle - latency)).count("1") for cycle, word in out if word != cycle - latency]
    assert len(out) == sent and 0.20 * sent < len(wrong) < 0.30 * sent and set(wrong) == {1, 3}
    out = await send(dut, rng, twice=1 << 30)
    # Half as often as it could: the word after a repeated one is not there.
    again = sum(word == cycle - latency - 1 for cycle, word in out)
    assert len(out) == sent and 0.15 * sent < again < 0.25 * sent
    assert all(word in (cycle - latency, cycle - latency - 1) for cycle, word in out)
    assert await send(dut, rng, cut=1) == []
