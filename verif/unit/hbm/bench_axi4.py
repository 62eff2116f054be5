"""Bench of the AXI4 back end: behind it cocotbext-axi's memory, or one that reorders and fails."""

import cocotb
from cocotb.triggers import ClockCycles, with_timeout
from cocotbext.axi import AxiBus, AxiRam

from verif.transactors import bursts, parameter, random_pauses, seeded, start_up
from verif.unit.hbm.axi_responder import DECERR, SLVERR, Responder
from verif.unit.hbm.slices import PoisonedRequester
from verif.unit.memory import CONFIGS

CONFIG = CONFIGS[parameter("CONFIG")]
SLICE, SLICES, D = CONFIG.slice_bytes, CONFIG.hbm_slices, CONFIG.hbm_beat_bytes


async def random_trains(dut, rng, port, contents: bytearray, rounds: int, bad: dict[int, int] | None = None) -> None:
    """Trains anywhere, none of a round on slices that another one writes; ``contents`` is what memory holds."""
    bad = bad or {}
    trains, answers = [], []

    def fails(address: int) -> bool:
        return address // 4096 in bad

    for _ in range(rounds):
        waiting, taken = [], set()
        for _ in range(rng.randint(1, 6)):
            count = rng.choice([1, 1, 2, 3, 5, 20])
            first = rng.randint(0, SLICES - count)
            if taken & set(range(first, first + count)):
                continue
            taken.update(range(first, first + count))
            span = slice(first * SLICE, (first + count) * SLICE)
            kind = rng.random()
            if kind < 0.08:
                waiting.append(port.read(SLICES, rng.choice([0, 1])))
                trains.append([0])
            elif kind < 0.16:
                waiting.append(port.write(SLICES - 1, bytes(rng.choice([0, 2]) * SLICE)))
                answers.append(1)
            elif kind < 0.6:
                waiting.append(port.read(first, count))
                wrong = [i for i, at in enumerate(range(span.start, span.stop, D)) if fails(at)]
                trains.append(wrong or bytes(contents[span]))
            else:
                values = rng.randbytes(count * SLICE)
                for at in range(span.start, span.stop, D):
                    if not fails(at):
                        contents[at : at + D] = values[at - span.start : at - span.start + D]
                waiting.append(port.write(first, values))
                answers.append(int(any(fails(at) for at in range(span.start, span.stop, D))))
        for event in waiting:
            await with_timeout(event.wait(), 500_000, "ns")
    assert port.read_trains == trains and port.answers == answers
    assert len(trains) > rounds // 2 and len(answers) > rounds // 2
    await ClockCycles(dut.clk, 20)
    assert int(dut.idle.value) == 1


async def against_axi_ram(dut, name: str, pauses) -> None:
    rng = seeded(name)
    ram = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=CONFIG.hbm_bytes)
    for channel in (ram.write_if.aw_channel, ram.write_if.w_channel, ram.write_if.b_channel,
                    ram.read_if.ar_channel, ram.read_if.r_channel):  # fmt: skip
        if pauses() is not None:
            channel.set_pause_generator(pauses())
    await start_up(dut)
    contents = bytearray(rng.randbytes(CONFIG.hbm_bytes))
    ram.write(0, bytes(contents))
    port = PoisonedRequester(dut, "port", CONFIG, pauses=pauses)
    await random_trains(dut, rng, port, contents, 40)
    assert ram.read(0, CONFIG.hbm_bytes) == contents


@cocotb.test()
async def axi_ram(dut):
    await against_axi_ram(dut, "straight", lambda: None)


@cocotb.test()
async def axi_ram_with_pauses(dut):
    rng = seeded("pauses")
    await against_axi_ram(dut, "paused", lambda: random_pauses(0.4, rng))


@cocotb.test()
async def axi_ram_with_bursts_of_pauses(dut):
    rng = seeded("bursts")
    await against_axi_ram(dut, "bursts", lambda: bursts(rng, 30))


@cocotb.test()
async def reordered(dut):
    """Answers in any order, and pages that answer SLVERR or DECERR."""
    rng = seeded("reordered")
    responder = Responder(dut, CONFIG.hbm_bytes, rng, idle=0.2)
    await start_up(dut)
    contents = bytearray(rng.randbytes(CONFIG.hbm_bytes))
    responder.contents[:] = contents
    responder.bad = {1: SLVERR, 5: DECERR}
    port = PoisonedRequester(dut, "port", CONFIG, pauses=lambda: random_pauses(0.1, rng))
    await random_trains(dut, rng, port, contents, 60, responder.bad)
    assert responder.contents == contents
    assert responder.reordered > 100 and min(responder.most) > 2, (responder.reordered, responder.most)


@cocotb.test()
async def failed_writes(dut):
    """Many short trains at once, half of them to pages that fail, answered in any order: each is told of its own."""
    rng = seeded("failed writes")
    responder = Responder(dut, CONFIG.hbm_bytes, rng, idle=0.3)
    await start_up(dut)
    responder.slow_b = 0.95
    responder.bad = {page: SLVERR for page in range(0, CONFIG.hbm_bytes // 4096, 2)}
    port = PoisonedRequester(dut, "port", CONFIG)
    slices = [rng.randrange(SLICES) for _ in range(150)]
    waiting = [port.write(first, rng.randbytes(SLICE)) for first in slices]
    for event in waiting:
        await with_timeout(event.wait(), 500_000, "ns")
    wrong = [int(any(at // 4096 in responder.bad for at in range(first * SLICE, (first + 1) * SLICE, D)))
             for first in slices]  # fmt: skip
    assert port.answers == wrong and 30 < sum(wrong) < 120


@cocotb.test()
async def full_rate(dut):
    """A long train moves a beat a cycle each way, once it is under way."""
    rng = seeded("rate")
    ram = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=CONFIG.hbm_bytes)
    await start_up(dut)
    values = rng.randbytes(64 * SLICE)
    ram.write(0, values)
    port = PoisonedRequester(dut, "port", CONFIG)
    await with_timeout(port.read(0, 64).wait(), 100_000, "ns")
    assert port.read_trains == [values]
    beats = 64 * SLICE // D
    assert port.beats.cycles[-1] - port.beats.cycles[0] < beats * 1.1
    await with_timeout(port.write(64, values).wait(), 100_000, "ns")
    assert port.write_beats.cycles[-1] - port.write_beats.cycles[0] < beats * 1.1
    assert ram.read(64 * SLICE, len(values)) == values
