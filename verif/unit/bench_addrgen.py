"""Random loops over all registers against the formulas of docs/architecture.md."""

import cocotb
from cocotb.triggers import RisingEdge, Timer

from sluice_hw import isa
from sluice_hw.addrgen import set_layout
from verif.transactors import seeded, start_up

LEVELS, REGS = isa.LOOP_LEVELS, isa.ADDRESS_REGISTERS
MASK = (1 << 32) - 1


class Model:
    def __init__(self):
        self.cur, self.base, self.ring = [0] * REGS, [0] * REGS, [0] * REGS
        self.strides = [[0] * LEVELS for _ in range(REGS)]

    def set(self, reg, base, strides, ring):
        self.cur[reg] = self.base[reg] = base
        self.strides[reg], self.ring[reg] = list(strides), ring

    def end(self, level, count, last):
        for r in range(REGS):
            stride = self.strides[r][level]
            if self.ring[r]:
                self.cur[r] += stride
                if self.cur[r] >= self.base[r] + self.ring[r]:
                    self.cur[r] -= self.ring[r]
            elif last:
                self.cur[r] = self.cur[r] - stride * (count - 1) & MASK
            else:
                self.cur[r] = self.cur[r] + stride & MASK


class Bench:
    def __init__(self, dut):
        self.dut, self.model = dut, Model()
        self.done = [0] * LEVELS
        self.active = 0

    async def cycle(self, **values):
        for name, value in values.items():
            getattr(self.dut, name).value = value
        await RisingEdge(self.dut.clk)
        for name in values:
            if name in ("clear", "set", "open", "step"):
                getattr(self.dut, name).value = 0
        await Timer(1, "ns")

    def levels(self):
        self.dut.active.value = self.active
        for i in range(LEVELS):
            getattr(self.dut, f"done__{i}").value = self.done[i]

    def check(self):
        value = int(self.dut.cur.value)
        assert [value >> 32 * i & MASK for i in range(REGS)] == self.model.cur

    async def settle(self):
        cycles = 0
        while int(self.dut.busy.value):
            await self.cycle()
            cycles += 1
            assert cycles < LEVELS * 40
        return cycles

    async def set(self, reg, base, strides, ring=0):
        values = set_layout().const({"base": base, "strides": strides, "ring": ring}).as_value().value
        self.levels()
        await self.cycle(set=1, reg=reg, values=values & ((1 << set_layout().size) - 1))
        self.model.set(reg, base, strides, ring)
        return await self.settle()

    async def open(self, level):
        self.active |= 1 << level
        self.done[level] = 0
        self.levels()
        await self.cycle(open=1 << level)

    async def end(self, level, count):
        last = self.done[level] + 1 == count
        self.levels()
        await self.cycle(step=1, level=level, last=int(last))
        self.model.end(level, count, last)
        self.check()
        self.done[level] += 1
        if last:
            self.active &= ~(1 << level)
            self.levels()
        return last


def random_register(rng):
    ring = rng.choice([0, 0, 0, 1, rng.randint(1, 100), rng.randint(1, (1 << 25) - 1)])
    if ring:
        return rng.randint(0, 1 << 31), [rng.choice([0, 1, ring - 1, ring, rng.randint(0, ring)])
                                         for _ in range(LEVELS)], ring
    strides = [rng.choice([0, 1, -1, -(1 << 25), (1 << 25) - 1, rng.randint(-(1 << 25), (1 << 25) - 1)])
               for _ in range(LEVELS)]
    return rng.choice([0, MASK, rng.getrandbits(32)]), strides, 0


async def create(dut):
    await start_up(dut, clear=0, set=0, reg=0, values=0, open=0, step=0, level=0, last=0, active=0,
                   **{f"done__{i}": 0 for i in range(LEVELS)})
    return Bench(dut)


@cocotb.test
async def nested_loops(dut):
    """Whole nests, with registers set anew anywhere inside."""
    bench = await create(dut)
    rng = seeded("nests")

    async def nest(level, budget):
        count = rng.randint(1, 3)
        await bench.open(level)
        while True:
            if rng.random() < 0.4:
                await bench.set(rng.randrange(REGS), *random_register(rng))
                bench.check()
            if level + 1 < LEVELS and budget and rng.random() < 0.8:
                await nest(rng.randint(level + 1, LEVELS - 1), budget - 1)
            if await bench.end(level, count):
                return

    for _ in range(12):
        await bench.cycle(clear=1)
        bench.model = Model()
        bench.check()
        for reg in range(REGS):
            assert await bench.set(reg, *random_register(rng)) == 0, "no loop is open: nothing to multiply"
        bench.check()
        for _ in range(4):
            await nest(rng.randrange(LEVELS), 3)


@cocotb.test
async def set_late_in_a_long_loop(dut):
    """ADDR in iteration 2^32 - 3 of every level: the way back is the stride times the iterations, modulo 2^32."""
    bench = await create(dut)
    rng = seeded("late")
    for _ in range(30):
        await bench.cycle(clear=1)
        bench.model = Model()
        for level in range(LEVELS):
            await bench.open(level)
        bench.done = [rng.choice([1, 2, MASK - 2, rng.getrandbits(31) + 1]) for _ in range(LEVELS)]
        counts = [d + 2 for d in bench.done]
        base, strides, _ = random_register(rng)
        reg = rng.randrange(REGS)
        await bench.set(reg, base, strides, 0)
        for level in reversed(range(LEVELS)):
            assert not await bench.end(level, counts[level])
            assert await bench.end(level, counts[level])
