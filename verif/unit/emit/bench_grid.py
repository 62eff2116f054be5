"""Bench of grids: the two forms in lock step, and for some cells against what they compute, written in Python."""

import json

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge, Timer

from verif.transactors import parameter, seeded, start_up

INPUTS = json.loads(parameter("INPUTS"))
OUTPUTS = json.loads(parameter("OUTPUTS"))
FORMS = ("structural", "loop")


def read(dut, name: str) -> int:
    one, other = (int(getattr(dut, f"{form}__{name}").value) for form in FORMS)
    assert one == other, f"{name}: structural {one:#x}, loop {other:#x}"
    return one


@cocotb.test
async def lock_step(dut):
    """Random inputs and resets: every output of every cycle is the same, from the first cycle on."""
    rng = seeded("lock step")
    for name in OUTPUTS:
        read(dut, name)
    await start_up(dut, **dict.fromkeys(INPUTS, 0))
    seen = {name: set() for name in OUTPUTS}
    for cycle in range(1200):
        await ReadOnly()
        for name in OUTPUTS:
            seen[name].add(read(dut, name))
        await Timer(1, unit="ns")
        dut.rst.value = int(rng.random() < 0.02)
        for name, width in INPUTS.items():
            # Inputs hold for a while at times, so that rare conditions last.
            if cycle % 40 < 20 or rng.random() < 0.1:
                getattr(dut, name).value = rng.getrandbits(width)
        await RisingEdge(dut.clk)
        await Timer(1, unit="ns")
    for name, values in seen.items():
        assert len(values) > 1, f"{name} never moved"


def fields(value: int, width: int, count: int) -> list[int]:
    return [value >> index * width & (1 << width) - 1 for index in range(count)]


@cocotb.test(skip=parameter("MODEL", "") != "shift")
async def shift_model(dut):
    """Row r delays by two cycles per cell, and by none without a cell."""
    lengths = json.loads(parameter("LENGTHS"))
    rng = seeded("shift")
    await start_up(dut, left__data=0)
    history: list[list[int]] = []
    for cycle in range(300):
        value = rng.getrandbits(7 * len(lengths))
        dut.left__data.value = value
        history.append(fields(value, 7, len(lengths)))
        await ReadOnly()
        out = fields(read(dut, "right__data"), 7, len(lengths))
        for row, length in enumerate(lengths):
            if cycle >= 2 * length:
                assert out[row] == history[cycle - 2 * length][row], f"row {row} cycle {cycle}"
        await RisingEdge(dut.clk)
        await Timer(1, unit="ns")


@cocotb.test(skip=parameter("MODEL", "") != "accumulate")
async def accumulate_model(dut):
    """A matrix product by broadcast, drained through the top row."""
    rows, cols, depth = int(parameter("ROWS")), int(parameter("COLS")), 30
    rng = seeded("accumulate")
    idle = {"row__valid": 0, "all__drain": 0, "all__clear": 0}
    await start_up(dut, **dict.fromkeys(INPUTS, 0))

    async def tick(**inputs: int) -> None:
        for name, value in {**idle, **inputs}.items():
            getattr(dut, name).value = value
        await RisingEdge(dut.clk)
        await Timer(1, unit="ns")

    await tick(all__clear=1)
    expected = [[-1] * cols for _ in range(rows)]
    for _ in range(depth):
        a, b = ([rng.randint(-128, 127) for _ in range(n)] for n in (rows, cols))
        valid = rng.getrandbits(rows)
        await tick(row__valid=valid, row__factor=sum((x & 255) << 8 * i for i, x in enumerate(a)),
                   col__factor=sum((x & 255) << 8 * i for i, x in enumerate(b)))
        for r in range(rows):
            if valid >> r & 1:
                expected[r] = [total + a[r] * x for total, x in zip(expected[r], b, strict=True)]
    for r in range(rows):
        out = fields(read(dut, "up__total"), 20, cols)
        assert out == [total & (1 << 20) - 1 for total in expected[r]], f"row {r}"
        await tick(all__drain=1)


@cocotb.test(skip=parameter("MODEL", "") != "maximum")
async def maximum_model(dut):
    """The grid of comparisons, one register per cell, in Python."""
    rows, cols = int(parameter("ROWS")), int(parameter("COLS"))
    rng = seeded("maximum")
    await start_up(dut, left__x=0, up__x=0)

    def signed(value: int) -> int:
        return value - 512 if value & 256 else value

    high, low = ([[0] * cols for _ in range(rows)] for _ in range(2))
    swapped = [[0] * cols for _ in range(rows)]
    for cycle in range(200):
        left, up = rng.getrandbits(9 * rows), rng.getrandbits(9 * cols)
        dut.left__x.value, dut.up__x.value = left, up
        lefts, ups = (list(map(signed, fields(value, 9, n))) for value, n in ((left, rows), (up, cols)))
        grid = [[(low[r][c - 1] if c else lefts[r], high[r - 1][c] if r else ups[c]) for c in range(cols)]
                for r in range(rows)]
        high, low = ([[f(pair) for pair in row] for row in grid] for f in (max, min))
        swapped = [[int(a > b) for a, b in row] for row in grid]
        await RisingEdge(dut.clk)
        await Timer(1, unit="ns")
        if cycle < rows + cols:
            continue  # until then the zeros of the model are not those of the reset
        assert list(map(signed, fields(read(dut, "down__x"), 9, cols))) == high[-1]
        assert list(map(signed, fields(read(dut, "right__x"), 9, rows))) == [row[-1] for row in low]
        assert fields(read(dut, "down__swapped"), 1, cols) == swapped[-1]
