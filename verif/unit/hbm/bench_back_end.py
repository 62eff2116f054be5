"""Bench of the memory path of a chip, down to a device."""

import cocotb
from cocotb.triggers import ClockCycles, with_timeout

from sluice_hw.isa import Cause
from verif.transactors import bursts, parameter, seeded, start_up
from verif.unit.hbm.backed import CONFIGS
from verif.unit.hbm.slices import Requester

CONFIG = CONFIGS[parameter("CONFIG")]
SLICE, SLICES = CONFIG.slice_bytes, CONFIG.hbm_slices


@cocotb.test
async def trains_keep_what_was_written(dut):
    """Reads and writes anywhere, refused ones among them, with pauses; now and then a soft reset while all is quiet."""
    rng = seeded("back_end")
    await start_up(dut, cut=0)
    port = Requester(dut, "port", CONFIG, pauses=lambda: bursts(rng))
    memory = bytearray(SLICES * SLICE)
    want: list[bytes | None] = []
    answers: list[int] = []
    for step in range(int(parameter("STEPS"))):
        count = rng.choice([1, 1, 2, 3])
        first = rng.randint(0, SLICES - count)
        waiting = [port.write(first, values := rng.randbytes(count * SLICE))]
        memory[first * SLICE : (first + count) * SLICE] = values
        answers.append(0)
        if step % 4 == 1:
            waiting.append(port.write(SLICES, bytes(SLICE)))
            answers.append(1)
        # Of other slices than the write, which is on its way at the same time.
        other = (first + count + rng.randint(0, SLICES - count - 2)) % SLICES
        other = min(other, SLICES - 1)
        if not first <= other < first + count:
            waiting.append(port.read(other, 1))
            want.append(bytes(memory[other * SLICE : (other + 1) * SLICE]))
        for event in waiting:
            await with_timeout(event.wait(), 2_000_000, "ns")
        await with_timeout(port.read(first, count).wait(), 2_000_000, "ns")
        want.append(bytes(memory[first * SLICE : (first + count) * SLICE]))
        if step % 5 == 2:
            await ClockCycles(dut.clk, 4)
            assert int(dut.state.value) == Cause.IDLE.value
            dut.cut.value = 1
            await ClockCycles(dut.clk, 1)
            dut.cut.value = 0
    await with_timeout(port.read(SLICES, 1).wait(), 200_000, "ns")
    assert port.read_trains == [*want, None]
    assert port.answers == answers
