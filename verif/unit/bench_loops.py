"""Nests of loops, walked as a program would."""

import math

import cocotb
from cocotb.triggers import RisingEdge, Timer

from sluice_hw.isa import LOOP_LEVELS
from verif.transactors import seeded, start_up


async def cycle(dut, **values):
    for name, value in values.items():
        getattr(dut, name).value = value
    await Timer(1, "ns")
    seen = {n: int(getattr(dut, n).value) for n in ("bad_level", "bad_end", "bad_close", "at_end", "leaves", "again")}
    await RisingEdge(dut.clk)
    dut.loop.value = dut.end.value = dut.clear.value = 0
    await Timer(1, "ns")
    return seen


class Nest:
    """One loop in each level of ``levels``, directly inside each other."""

    def __init__(self, dut, levels, counts):
        self.dut, self.levels, self.counts = dut, levels, counts
        self.iteration = [0] * len(levels)
        self.innermost = 0

    def check(self, depth):
        """Flags while the loops down to ``depth`` are open."""
        dut = self.dut
        flags = [(1 << self.levels[d], self.iteration[d], self.counts[d]) for d in range(depth + 1)]
        assert int(dut.open.value) == sum(bit for bit, _, _ in flags)
        assert int(dut.first.value) == sum(bit for bit, i, _ in flags if i == 0)
        assert int(dut.last.value) == sum(bit for bit, i, count in flags if i == count - 1)
        for d in range(depth + 1):
            assert int(getattr(dut, f"done__{self.levels[d]}").value) == self.iteration[d]

    async def walk(self, depth=0):
        if depth == len(self.levels):
            self.innermost += 1
            return
        begin, end, level, count = 10 + depth, 100 - depth, self.levels[depth], self.counts[depth]
        seen = await cycle(self.dut, pc=begin, level=level, count=count, end_pc=end, loop=1)
        assert not seen["bad_level"] and not seen["bad_end"]
        for i in range(count):
            self.iteration[depth] = i
            self.check(depth)
            await self.walk(depth + 1)
            seen = await cycle(self.dut, pc=end, level=level, end=1)
            assert seen["at_end"] and not seen["bad_close"]
            assert seen["leaves"] == (i == count - 1)
            assert seen["again"] == begin + 1


@cocotb.test
async def nests(dut):
    """A nest of random levels and counts makes as many iterations as the product says, with the right flags."""
    await start_up(dut, clear=0, pc=0, level=0, loop=0, count=0, end_pc=0, end=0)
    rng = seeded("nests")
    for _ in range(40):
        levels = sorted(rng.sample(range(LOOP_LEVELS), rng.randint(1, 4)))
        nest = Nest(dut, levels, [rng.randint(1, 4) for _ in levels])
        await nest.walk()
        assert nest.innermost == math.prod(nest.counts)
        assert int(dut.open.value) == 0


@cocotb.test
async def verdicts(dut):
    """What may open and close inside a loop of level 2 that ends at 50."""
    await start_up(dut, clear=0, pc=9, level=2, loop=1, count=5, end_pc=50, end=0)
    await cycle(dut)
    for level in range(LOOP_LEVELS):
        for pc, end in ((20, 19), (20, 20), (20, 21), (20, 49), (20, 50), (20, 51), (0xFFFF, 0xFFFF)):
            seen = await cycle(dut, pc=pc, level=level, end_pc=end, loop=0)
            assert seen["bad_level"] == (level <= 2)
            assert seen["bad_end"] == (not pc < end < 50)
            assert seen["bad_close"] == 1 and seen["at_end"] == 0
        seen = await cycle(dut, pc=50, level=level)
        assert seen["at_end"] == 1 and seen["bad_close"] == (level != 2)
    await cycle(dut, clear=1)
    seen = await cycle(dut, pc=50, level=2)
    assert not seen["at_end"] and seen["bad_close"] and not seen["bad_level"]
    assert int(dut.open.value) == 0
