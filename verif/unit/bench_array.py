"""Bench of the systolic array, both forms at once: every output of every cycle against NumPy."""

import cocotb
import numpy as np
from cocotb.triggers import ReadOnly, RisingEdge, Timer

from sluice.golden.numerics_bf16 import column_sum
from verif.transactors import parameter, seeded, start_up

ROWS, COLS = int(parameter("ROWS")), int(parameter("COLS"))
LATENCY, LEAD, WIDTH = int(parameter("LATENCY")), int(parameter("LEAD")), int(parameter("WIDTH"))
DTYPE = parameter("DTYPE")
KINDS = DTYPE.split("+")
BITS = 8 if DTYPE == "int8" else 16
FORMS = ("structural", "loop")
# Zeros, subnormals, ends of the normal range, infinities, NaNs; and ones, so that some sums are numbers.
SPECIALS = np.array([0, 1, 0x7F, 0x80, 0x3F80, 0x3F81, 0x7F00, 0x7F7F, 0x7F80, 0x7F81, 0x7FC0], np.uint16)
ORDINARY = np.array([0, 0x0080, 0x0081, 0x3F80, 0x3FFF, 0x4380, 0x5F80, 0x5FFF, 0x7F7F], np.uint16)


def pack(values: np.ndarray, garbage: np.random.Generator) -> int:
    if values.dtype == np.int8 and BITS == 16:  # what is above an int8 does not matter
        values = values.view(np.uint8) | garbage.integers(0, 256, values.shape, dtype=np.uint16) << 8
    return int.from_bytes(values.tobytes(), "little")


def unpack(value: int) -> list[int]:
    """Sums as unsigned numbers."""
    return [value >> c * WIDTH & (1 << WIDTH) - 1 for c in range(COLS)]


def sums(row: np.ndarray, weights: np.ndarray) -> list[int]:
    if row.dtype == np.int8:
        return ((row.astype(np.int64) @ weights.astype(np.int64)) & (1 << WIDTH) - 1).tolist()
    return column_sum(row[None], weights, rows=ROWS)[0].view(np.uint32).tolist()


class Plan:
    """What stands at the inputs in each cycle, and the rows that must come out, by cycle."""

    def __init__(self, rng) -> None:
        self.rng, self.numpy = rng, np.random.default_rng(rng.getrandbits(64))
        self.kind = KINDS[0]  # of the next tile's operands
        self.cycles: list[dict] = []
        self.expected: dict[int, list[int]] = {}
        self.last_start = self.last_row = self.last_first = -(10**9)
        self.free = 0  # the first cycle in which the next pass's rows may enter

    def at(self, cycle: int) -> dict:
        while len(self.cycles) <= cycle:
            self.cycles.append({})
        return self.cycles[cycle]

    def random(self, *shape: int) -> np.ndarray:
        if self.kind == "int8":
            return self.numpy.integers(-128, 128, shape, dtype=np.int8)
        bits = self.numpy.integers(0, 1 << 16, shape, dtype=np.uint16)
        spread = self.rng.choice([0, 1, 12, 60, None])
        if spread is None:
            return bits
        exp = 127 + self.numpy.integers(-spread, spread + 1, shape)
        return bits & 0x807F | exp.astype(np.uint16) << 7

    def tile(self, acts: np.ndarray, weights: np.ndarray, *, gap: int = 0, bubbles: float = 0.0) -> int:
        """A pass as early as the rules allow, `gap` cycles later; returns the cycle of its first row."""
        start = max(self.last_row + 1, self.last_first, self.free - LEAD, 0) + (self.rng.randint(0, gap))
        cycle = start
        for r, row in enumerate(weights):
            while r and self.rng.random() < bubbles:
                cycle += 1
            self.at(cycle).update(w_valid=1, w_start=int(r == 0), w_data=pack(row, self.numpy))
            self.last_row = cycle
            cycle += 1
        cycle = max(self.last_row + 1, self.free) + self.rng.randint(0, gap)
        self.last_start, self.last_first = start, cycle
        for m, row in enumerate(acts):
            while m and self.rng.random() < bubbles:
                cycle += 1
            self.at(cycle).update(a_valid=1, a_swap=int(m == 0), a_data=pack(row, self.numpy),
                                  a_bf16=int(row.dtype != np.int8))
            self.expected[cycle + LATENCY] = sums(row, weights)
            cycle += 1
        self.free = cycle
        self.kind = self.rng.choice(KINDS)
        return self.last_first

    def finish(self) -> None:
        self.at(max(self.expected) + 3)


async def play(dut, plan: Plan) -> None:
    """Drive the plan and compare every cycle. What is not valid carries garbage."""
    plan.finish()
    garbage = plan.rng.getrandbits
    found = 0
    for cycle, inputs in enumerate(plan.cycles):
        dut.a_valid.value = inputs.get("a_valid", 0)
        dut.a_swap.value = inputs.get("a_swap", 0 if "a_valid" in inputs else garbage(1))
        dut.a_data.value = inputs.get("a_data", garbage(BITS * ROWS))
        if len(KINDS) > 1:
            dut.a_bf16.value = inputs.get("a_bf16", garbage(1))
        dut.w_valid.value = inputs.get("w_valid", 0)
        dut.w_start.value = inputs.get("w_start", 0 if "w_valid" in inputs else garbage(1))
        dut.w_data.value = inputs.get("w_data", garbage(BITS * COLS))
        await ReadOnly()
        expected = plan.expected.get(cycle)
        for form in FORMS:
            valid = int(getattr(dut, f"{form}__p_valid").value)
            assert valid == (expected is not None), f"{form} cycle {cycle}: p_valid is {valid}"
            if valid:
                got = unpack(int(getattr(dut, f"{form}__p_data").value))
                assert got == expected, f"{form} cycle {cycle}: {got}, not {expected}"
        found += expected is not None
        await RisingEdge(dut.clk)
        await Timer(1, unit="ns")
    assert found == len(plan.expected) > 0


async def begin(dut, stream: str) -> Plan:
    rng = seeded(stream)
    await start_up(dut, a_valid=0, a_swap=0, w_valid=0, w_start=0)
    return Plan(rng)


@cocotb.test
async def first_row_after_reset(dut):
    plan = await begin(dut, "first")
    plan.tile(plan.random(1, ROWS), plan.random(ROWS, COLS))
    assert plan.last_start == 0 and plan.last_first == LEAD
    await play(dut, plan)


@cocotb.test
async def tiles_at_the_minimum_interval(dut):
    """Every M around the number of rows, back to back: max(M, rows) cycles from tile to tile."""
    plan = await begin(dut, "interval")
    before, rows = None, 0
    for m in [*range(1, 2 * ROWS + 2), 1, 1, ROWS, ROWS, 1, 2 * ROWS, 1]:
        first = plan.tile(plan.random(m, ROWS), plan.random(ROWS, COLS))
        assert before is None or first == before + max(rows, ROWS)
        before, rows = first, m
    await play(dut, plan)


@cocotb.test
async def bubbles(dut):
    """Gaps between rows, between tiles, between weight rows and between weight streams."""
    plan = await begin(dut, "bubbles")
    for _ in range(60):
        plan.tile(plan.random(plan.rng.randint(1, 2 * ROWS + 1), ROWS), plan.random(ROWS, COLS),
                  gap=plan.rng.choice([0, 0, 1, 5, 3 * ROWS]), bubbles=plan.rng.choice([0.0, 0.2, 0.7]))
    await play(dut, plan)


@cocotb.test(skip="int8" not in KINDS)
async def extremes(dut):
    """The largest and smallest sums: they must not wrap."""
    plan = await begin(dut, "extremes")
    for a in (-128, 127, -1, 0):
        for w in (-128, 127):
            plan.tile(np.full((2, ROWS), a, np.int8), np.full((ROWS, COLS), w, np.int8))
    for _ in range(10):
        a, w = (plan.numpy.choice(np.array([-128, 127], np.int8), shape) for shape in ((3, ROWS), (ROWS, COLS)))
        plan.tile(a, w)
    for value in (ROWS * 16384, ROWS * 127 * -128):
        assert [value & (1 << WIDTH) - 1] * COLS in plan.expected.values()
    await play(dut, plan)


@cocotb.test(skip="bf16" not in KINDS)
async def specials(dut):
    """Infinities, NaNs, subnormals, products and sums out of range."""
    plan = await begin(dut, "specials")
    found = set()
    for few in (SPECIALS, ORDINARY) * 20:
        values = np.concatenate([few, few | np.uint16(0x8000)])
        plan.tile(plan.numpy.choice(values, (ROWS + 1, ROWS)), plan.numpy.choice(values, (ROWS, COLS)))
        found.update(x for row in plan.expected.values() for x in row)
    assert {0x7FC00000, 0x7F800000, 0xFF800000} <= found
    await play(dut, plan)


@cocotb.test
async def reset_in_the_middle(dut):
    """Rows in flight die with the reset; the next pass is clean."""
    plan = await begin(dut, "reset")
    plan.tile(plan.random(ROWS, ROWS), plan.random(ROWS, COLS))
    plan.tile(plan.random(ROWS, ROWS), plan.random(ROWS, COLS))
    cut = LEAD + ROWS + ROWS // 2
    plan.cycles = plan.cycles[:cut]
    plan.expected = {cycle: row for cycle, row in plan.expected.items() if cycle < cut} or {cut: []}
    for inputs in plan.cycles:
        for name in ("a_valid", "a_swap", "a_data", "w_valid", "w_start", "w_data", *["a_bf16"] * (len(KINDS) > 1)):
            getattr(dut, name).value = inputs.get(name, 0)
        await RisingEdge(dut.clk)
    dut.a_valid.value = dut.w_valid.value = dut.w_start.value = 0
    dut.rst.value = 1
    await RisingEdge(dut.clk)
    dut.rst.value = 0
    await Timer(1, unit="ns")
    clean = Plan(plan.rng)
    clean.tile(clean.random(ROWS, ROWS), clean.random(ROWS, COLS))
    await play(dut, clean)


@cocotb.test
async def anything_at_all(dut):
    """Lock step: whatever stands at the inputs, also what the rules forbid, both forms do the same."""
    await begin(dut, "lock step")
    rng = seeded("noise")
    busy = 0.5
    for cycle in range(1500):
        if cycle % 50 == 0:
            busy = rng.choice([0.05, 0.5, 0.95])
        for name, width in (("a_valid", 1), ("a_swap", 1), ("w_valid", 1), ("w_start", 1)):
            getattr(dut, name).value = int(rng.random() < busy) & ((1 << width) - 1)
        dut.rst.value = int(rng.random() < 0.01)
        dut.a_data.value = rng.getrandbits(BITS * ROWS)
        dut.w_data.value = rng.getrandbits(BITS * COLS)
        if len(KINDS) > 1:
            dut.a_bf16.value = rng.getrandbits(1)
        await RisingEdge(dut.clk)
        await ReadOnly()
        for name in ("p_valid", "p_data"):
            one, other = (getattr(dut, f"{form}__{name}").value for form in FORMS)
            assert int(one) == int(other), f"cycle {cycle}: {name}"
        await Timer(1, unit="ns")
    dut.rst.value = 0
