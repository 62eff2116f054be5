"""Bench of the RAM primitives, several shapes in one top: random traffic against dictionaries."""

import json

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge, Timer

from verif.transactors import parameter, seeded, start_up

# [kind, depth, width, granularity] of RAM number n, whose ports are called r<n>__<port>.
SHAPES = json.loads(parameter("SHAPES"))


class Model:
    """One RAM: rows that were written in full, and what stands at the read port (None: anything may)."""

    def __init__(self, dut, number: int, kind: str, depth: int, width: int, granularity: int) -> None:
        self.dut, self.number, self.kind = dut, number, kind
        self.depth, self.width, self.granularity = depth, width, granularity
        self.rng = seeded(f"ram {number}")
        self.rows: dict[int, int] = {}
        self.out: int | None = None
        self.collisions = self.partial = self.full = 0

    def port(self, name: str):
        return getattr(self.dut, f"r{self.number}__{name}")

    def address(self) -> int:
        # A few rows, the first and the last often, so that rows are met again.
        return self.rng.choice([0, self.depth - 1, self.rng.randrange(min(self.depth, 6))])

    def drive(self) -> None:
        rng, lanes = self.rng, self.width // self.granularity
        every = (1 << lanes) - 1
        self.we = rng.choice([0, 0, every, rng.getrandbits(lanes)])
        self.waddr, self.wdata = self.address(), rng.getrandbits(self.width)
        if self.waddr not in self.rows and self.we:
            self.we = every
        self.read = rng.random() < 0.6
        self.raddr = self.waddr if self.kind == "1rw" or rng.random() < 0.4 else self.address()
        self.port("we").value, self.port("wdata").value = self.we, self.wdata
        if self.kind == "1rw":
            self.port("en").value, self.port("addr").value = self.read, self.waddr
        else:
            self.port("re").value, self.port("raddr").value = self.read, self.raddr
            self.port("waddr").value = self.waddr

    def step(self) -> None:
        writes = bool(self.we) and (self.kind == "1r1w" or self.read)
        if self.read and not (self.kind == "1rw" and writes):
            self.out = self.rows.get(self.raddr)
            self.collisions += writes and self.raddr == self.waddr and self.out is not None
        if writes:
            mask = sum(((1 << self.granularity) - 1) << lane * self.granularity
                       for lane in range(self.width // self.granularity) if self.we >> lane & 1)
            self.rows[self.waddr] = self.rows.get(self.waddr, 0) & ~mask | self.wdata & mask
            self.full += mask + 1 == 1 << self.width
            self.partial += mask + 1 != 1 << self.width

    def check(self, cycle: int) -> None:
        if self.out is not None:
            got = int(self.port("rdata").value)
            assert got == self.out, f"RAM {self.number} cycle {cycle}: {got:#x}, not {self.out:#x}"


@cocotb.test
async def traffic(dut):
    models = [Model(dut, number, *shape) for number, shape in enumerate(SHAPES)]
    for model in models:
        model.drive()
    await start_up(dut)
    for model in models:
        # Under reset nothing special happens, but the bench did not count those cycles: start from full rows.
        model.rows.clear()
    for cycle in range(3000):
        for model in models:
            model.drive()
        await RisingEdge(dut.clk)
        await ReadOnly()
        for model in models:
            model.step()
            model.check(cycle)
        await Timer(1, unit="ns")
    for model in models:
        assert model.full > 100
        assert model.partial > 100 or model.granularity == model.width
        assert model.collisions > 100 or model.kind == "1rw"
