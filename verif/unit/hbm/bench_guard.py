"""Bench of the ECC guard, with its error masks and a memory behind it."""

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout

from sluice_hw.hbm.errors import injection_layout
from sluice_hw.hbm.guard import usable_slices
from verif.transactors import StreamDriver, bursts, parameter, random_pauses, seeded, start_up
from verif.unit.hbm.slices import PoisonedRequester
from verif.unit.memory import CONFIGS

CONFIG = CONFIGS[parameter("CONFIG")]
MODE = parameter("MODE")
D, SLICE, SLICES = CONFIG.hbm_beat_bytes, CONFIG.slice_bytes, usable_slices(CONFIG, MODE)
WORDS, LANES = SLICE // 8, D // 8


class Guard:
    """The bench: a port, what memory should hold, and injection."""

    def __init__(self, dut, pauses=lambda: None) -> None:
        self.dut = dut
        self.port = PoisonedRequester(dut, "port", CONFIG, pauses=pauses)
        self._inject = None if MODE == "device" else StreamDriver(dut, "inject", shape=injection_layout(CONFIG))
        self.contents = bytearray(SLICES * SLICE)

    async def fill(self, rng) -> None:
        """Write all of memory, in long trains."""
        waiting = []
        self.contents[:] = rng.randbytes(len(self.contents))
        for first in range(0, SLICES, 9):
            last = min(first + 9, SLICES)
            waiting.append(self.port.write(first, bytes(self.contents[first * SLICE : last * SLICE])))
        for event in waiting:
            await with_timeout(event.wait(), 500_000, "ns")
        assert set(self.port.answers) == {0}

    def inject_nowait(self, slice_: int, word: int, *bits: int):
        """Invert bits (of 72) of a stored word; the event is set when that is taken."""
        fields = {"slice": slice_, "word": word, "data": 0, "check": 0}
        for bit in bits:
            fields["data" if bit < 64 else "check"] ^= 1 << bit % 64
        return self._inject.send_nowait(fields)

    async def inject(self, slice_: int, word: int, *bits: int) -> None:
        await with_timeout(self.inject_nowait(slice_, word, *bits).wait(), 10_000, "ns")
        await ClockCycles(self.dut.clk, 2)

    async def read(self, first: int, count: int):
        await with_timeout(self.port.read(first, count).wait(), 200_000, "ns")
        await ClockCycles(self.dut.clk, 2)
        return self.port.read_trains[-1]

    def expect(self, first: int, count: int) -> bytes:
        return bytes(self.contents[first * SLICE : (first + count) * SLICE])

    def status(self, *names: str) -> list[int]:
        return [int(getattr(self.dut, f"status__{name}").value) for name in names]


async def begin(dut, **more) -> Guard:
    """Counters and wrong words outlive a reset: the former are cleared here, the latter when memory is written."""
    await start_up(dut, period=0, poison=0)
    dut.clear.value = 1
    await ClockCycles(dut.clk, 2)
    dut.clear.value = 0
    return Guard(dut, **more)


async def random_trains(dut, name: str, pauses, period: int) -> None:
    """Reads and writes anywhere, refused ones among them, while the scrubber walks."""
    rng = seeded(name)
    guard = await begin(dut, pauses=pauses)
    await guard.fill(rng)
    dut.period.value = period
    port, trains, answers = guard.port, [], list(guard.port.answers)
    for _ in range(40):
        waiting, taken = [], set()
        for _ in range(rng.randint(1, 6)):
            count = rng.choice([1, 1, 2, 3, 8, 11])
            first = rng.randint(0, SLICES - count)
            if taken & set(range(first, first + count)):
                continue
            taken.update(range(first, first + count))
            kind = rng.random()
            if kind < 0.1:
                waiting.append(port.read(SLICES, rng.choice([0, 1])))
                trains.append([0])
            elif kind < 0.2:
                waiting.append(port.write(SLICES - 1, bytes(rng.choice([0, 2]) * SLICE)))
                answers.append(1)
            elif kind < 0.6:
                waiting.append(port.read(first, count))
                trains.append(guard.expect(first, count))
            else:
                values = rng.randbytes(count * SLICE)
                guard.contents[first * SLICE : (first + count) * SLICE] = values
                waiting.append(port.write(first, values))
                answers.append(0)
        for event in waiting:
            await with_timeout(event.wait(), 500_000, "ns")
    assert port.read_trains == trains and port.answers == answers
    corrected, detected, scrubbed, repaired = guard.status("corrected", "detected", "scrubbed", "repaired")
    assert (corrected, detected, repaired) == (0, 0, 0)
    assert (scrubbed > 3) == (period > 0 and MODE != "device")


@cocotb.test()
async def pauses_and_scrubs(dut):
    rng = seeded("pauses")
    await random_trains(dut, "trains", lambda: random_pauses(0.3, rng), 150)


@cocotb.test()
async def bursts_without_scrubs(dut):
    rng = seeded("bursts")
    await random_trains(dut, "bursts", lambda: bursts(rng, 20), 0)


@cocotb.test()
async def straight_and_always_late(dut):
    await random_trains(dut, "straight", lambda: None, 1)


@cocotb.test(skip=MODE == "device")
async def single_errors(dut):
    """Corrected, counted and named, every time, until the word is written."""
    rng = seeded("single")
    guard = await begin(dut)
    await guard.fill(rng)
    total = 0
    for bit in [*rng.sample(range(64), 6), 0, 63] + ([64, 71] if MODE == "sideband" else []):
        slice_, word = rng.randrange(SLICES - 1), rng.randrange(WORDS)
        await guard.inject(slice_, word, bit)
        for _ in range(2):
            assert await guard.read(slice_, 2) == guard.expect(slice_, 2)
            total += 1
            assert guard.status("corrected", "detected", "corrected_slice", "corrected_word") == [
                total, 0, slice_, word]  # fmt: skip
        values = guard.contents[slice_ * SLICE : (slice_ + 1) * SLICE] = rng.randbytes(SLICE)
        await with_timeout(guard.port.write(slice_, values).wait(), 100_000, "ns")
        assert await guard.read(slice_, 1) == values
        assert guard.status("corrected") == [total]
    dut.clear.value = 1
    await ClockCycles(dut.clk, 2)
    assert guard.status("corrected") == [0]


@cocotb.test(skip=MODE == "device")
async def double_errors(dut):
    """Poison the beat, name the word; the rest of the train is good, and the next one too."""
    rng = seeded("double")
    guard = await begin(dut)
    await guard.fill(rng)
    bits = 72 if MODE == "sideband" else 64
    for turn in range(1, 7):
        first = rng.randrange(SLICES - 3)
        slice_, word = first + rng.randrange(3), rng.randrange(WORDS)
        await guard.inject(slice_, word, *rng.sample(range(bits), 2))
        assert await guard.read(first, 3) == [(slice_ - first) * (SLICE // D) + word // LANES]
        assert guard.status("corrected", "detected", "detected_slice", "detected_word") == [0, turn, slice_, word]
        other = (first + 3) % SLICES
        assert await guard.read(other, 1) == guard.expect(other, 1)
        values = guard.contents[slice_ * SLICE : (slice_ + 1) * SLICE] = rng.randbytes(SLICE)
        await with_timeout(guard.port.write(slice_, values).wait(), 100_000, "ns")
        assert await guard.read(slice_, 1) == values


@cocotb.test(skip=MODE == "device")
async def masks_add_up(dut):
    """A second injection into a word inverts further bits, the same one twice nothing; no more words than entries."""
    rng = seeded("masks")
    guard = await begin(dut)
    await guard.fill(rng)
    await guard.inject(3, 1, 5)
    await guard.inject(3, 1, 9)
    assert await guard.read(3, 1) == [1 // LANES]
    await guard.inject(3, 1, 9)
    assert await guard.read(3, 1) == guard.expect(3, 1)
    await guard.inject(3, 1, 5)
    assert guard.status("corrected") == [1]
    assert await guard.read(3, 1) == guard.expect(3, 1)
    assert guard.status("corrected") == [1]
    for word in range(4):
        await guard.inject(5, word, word)
    fifth = guard.inject_nowait(6, 0, 7)
    assert await guard.read(5, 1) == guard.expect(5, 1)
    assert await guard.read(6, 1) == guard.expect(6, 1)
    assert guard.status("corrected") == [5] and not fifth.is_set()
    await with_timeout(guard.port.write(5, guard.expect(5, 1)).wait(), 100_000, "ns")
    await with_timeout(fifth.wait(), 10_000, "ns")
    assert await guard.read(6, 1) == guard.expect(6, 1)
    assert guard.status("corrected") == [6]


@cocotb.test(skip=MODE == "device")
async def scrubber_repairs(dut):
    """Single errors anywhere are gone after a walk; a double one is found, named and left, with all of its slice: it
    would look right if written back."""
    rng = seeded("scrub")
    guard = await begin(dut)
    await guard.fill(rng)
    slices = rng.sample(range(SLICES), 3)
    for slice_ in slices[:2]:
        await guard.inject(slice_, rng.randrange(WORDS), rng.randrange(64))
    await guard.inject(slices[2], WORDS - 1, 7)
    await guard.inject(slices[2], 2, 1, 40)
    dut.period.value = 4
    for _ in range(400 * SLICES):
        await RisingEdge(dut.clk)
        if guard.status("scrubbed")[0] == SLICES:
            break
    else:
        raise AssertionError("the scrubber does not come round")
    dut.period.value = 0
    await ClockCycles(dut.clk, 200)
    assert guard.status("corrected", "repaired", "detected") == [3, 2, 1]
    assert guard.status("detected_slice", "detected_word") == [slices[2], 2]
    for slice_ in slices[:2]:
        assert await guard.read(slice_, 1) == guard.expect(slice_, 1)
    assert guard.status("corrected", "repaired") == [3, 2]
    assert await guard.read(slices[2], 1) == [2 // LANES]
    assert guard.status("corrected") == [4]


@cocotb.test(skip=MODE != "sideband")
async def no_bubble(dut):
    """Beats of a train leave one a cycle, and after the same time, with errors in them as without."""
    rng = seeded("bubble")
    guard = await begin(dut)
    await guard.fill(rng)
    port, waits = guard.port, set()
    for turn in range(3):
        if turn:
            await guard.inject(8, rng.randrange(WORDS), *rng.sample(range(64), turn))
        seen = len(port.beats.items)
        await guard.read(8, 6)
        cycles = port.beats.cycles[seen:]
        assert cycles[-1] - cycles[0] == len(cycles) - 1 == 6 * SLICE // D - 1
        waits.add(cycles[0] - port.reads.cycles[-1])
    assert waits == {CONFIG.hbm_latency + 2}, waits
    assert guard.status("corrected", "detected") == [2, 1]  # the first error was met twice


@cocotb.test(skip=MODE != "inband")
async def wrong_check_bits(dut):
    """An error among the check bits, which lie in the slices behind the data, is corrected as any other."""
    rng = seeded("checks")
    guard = await begin(dut)
    await guard.fill(rng)
    slice_, word = 13, WORDS - 1
    at = slice_ % 8 * WORDS + word  # byte of the check slice
    await guard.inject(SLICES + slice_ // 8, at // 8, 8 * (at % 8) + 3)
    assert await guard.read(2, 1) == guard.expect(2, 1)  # another check slice than the last one used
    assert await guard.read(slice_, 1) == guard.expect(slice_, 1)
    assert guard.status("corrected", "detected", "corrected_slice", "corrected_word") == [1, 0, slice_, word]


@cocotb.test(skip=MODE != "inband")
async def check_bits_that_cannot_be_read(dut):
    """Data that depend on them are named wrong, and a write that keeps others of theirs; neither is remembered."""
    rng = seeded("poison")
    guard = await begin(dut)
    await guard.fill(rng)
    beats = SLICE // D
    for first, count in ((2, 1), (9, 3)):
        await guard.read((first + 8) % 16, 1)  # so that another slice of check bits was the last one used
        dut.poison.value = 1
        assert await guard.read(first, count) == list(range(count * beats))
        assert await guard.read(first, count) == list(range(count * beats)), "not kept for the next train"
        dut.poison.value = 0
        assert await guard.read(first, count) == guard.expect(first, count)

        await guard.read((first + 8) % 16, 1)
        dut.poison.value = 1
        values = guard.contents[first * SLICE : (first + count) * SLICE] = rng.randbytes(count * SLICE)
        answers = len(guard.port.answers)
        await with_timeout(guard.port.write(first, values).wait(), 100_000, "ns")
        dut.poison.value = 0
        assert guard.port.answers[answers:] == [1]
        assert await guard.read(first, count) == guard.expect(first, count)
    # All of a block written: nothing of its check bits is kept, so none are read.
    dut.poison.value = 1
    await with_timeout(guard.port.write(8, guard.expect(8, 8)).wait(), 100_000, "ns")
    assert guard.port.answers[-1] == 0
