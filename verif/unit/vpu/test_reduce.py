"""Row reductions of the hardware against golden, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.golden.vector_ops import Reduction, reduce_rows
from sluice_hw.vpu.reduce import ReduceLane, RowReducer
from verif.models.trace import Traced


def values(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """fp32 patterns: numbers of very different sizes, whole ones that often meet, zeros of both signs, odd values."""
    x = (rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 20, shape)).astype(np.float32)
    x = np.where(rng.random(shape) < 0.3, rng.integers(-3, 4, shape).astype(np.float32), x)
    x = np.where(rng.random(shape) < 0.1, np.float32(-0.0), x)
    odd = rng.choice(np.array([np.inf, -np.inf, np.nan, 1e-40, 3e38], np.float32), shape)
    # Whole rows stay free of odd values, which would hide everything else.
    rare = rng.random((shape[0], *[1] * (len(shape) - 1))) < 0.4
    return np.where(rare & (rng.random(shape) < 0.05), odd, x).view(np.uint32)


def schedule(rng: np.random.Generator, blocks: list[int], bubbles: float) -> list[tuple[int, int, int] | None]:
    """Row, block and slot by cycle: as early as the rule allows, with random bubbles and a random choice of rows."""
    waiting, inside, free = list(range(len(blocks))), {}, list(range(ReduceLane.SLOTS))
    cycles: list[tuple[int, int, int] | None] = []
    while waiting or inside:
        now = len(cycles)
        ready = [row for row, (_, _, after) in inside.items() if after <= now]
        if waiting and free and (not ready or rng.random() < 0.5):
            row, slot = waiting.pop(0), free.pop(int(rng.integers(len(free))))
            inside[row] = (0, slot, now)
            ready = [row]
        if not ready or rng.random() < bubbles:
            cycles.append(None)
            continue
        row = ready[int(rng.integers(len(ready)))]
        block, slot, _ = inside.pop(row)
        cycles.append((row, block, slot))
        if block + 1 < blocks[row]:
            inside[row] = (block + 1, slot, now + ReduceLane.REVISIT)
        else:
            free.append(slot)
    return cycles


def check(dut: Traced, cols: int, latency: int, op: Reduction, rng: np.random.Generator, *, rows: int,
          bubbles: float = 0.2) -> int:  # fmt: skip
    lengths = rng.integers(1, 4 * cols + 2, rows)
    x = [values(rng, (1, n))[0] for n in lengths]
    keep = [rng.random(n) < rng.choice([0.5, 1.0]) for n in lengths]
    plan = schedule(rng, [-(-int(n) // cols) for n in lengths], bubbles)
    cycles = len(plan) + latency + 1
    data = rng.integers(0, 1 << 32, (cycles, cols), dtype=np.uint32)  # what is not said is noise
    mask = rng.random((cycles, cols)) < 0.5
    ports = {name: rng.integers(0, 2, cycles) for name in ("first", "last")}
    ports["slot"], ports["base"] = rng.integers(0, ReduceLane.SLOTS, cycles), rng.integers(0, 99, cycles)
    ports["in_valid"], ports["op"] = np.zeros(cycles, int), np.full(cycles, int(op))
    ends = {}
    for cycle, entry in enumerate(plan):
        if entry is None:
            continue
        row, block, slot = entry
        piece = slice(block * cols, (block + 1) * cols)
        size = len(x[row][piece])
        mask[cycle] = False
        data[cycle, :size], mask[cycle, :size] = x[row][piece], keep[row][piece]
        last = (block + 1) * cols >= len(x[row])
        said = {"in_valid": 1, "first": block == 0, "last": last, "slot": slot, "base": block * cols}
        for name, value in said.items():
            ports[name][cycle] = value
        if last:
            ends[cycle + latency] = row
    packed = np.packbits(mask, axis=1, bitorder="little")
    out = dut.run({**ports, "x": data.view(np.uint8), "keep": packed})
    assert np.flatnonzero(out["out_valid"]).tolist() == sorted(ends)
    for cycle, row in ends.items():
        wanted = int(reduce_rows(op, x[row], lanes=cols, mask=keep[row]))
        got = int(out["index" if op is Reduction.ARGMAX else "value"][cycle])
        assert got == wanted, f"{op.name} of row {row}, {len(x[row])} values: 0x{got:08X}, not 0x{wanted:08X}"
    return len(ends)


def make(cols: int, emission: str) -> tuple[Traced, int]:
    reducer = RowReducer(cols=cols, emission=emission)
    return Traced(reducer, name=f"reduce-{cols}-{emission}", opt="-O0"), reducer.latency


@pytest.mark.parametrize(
    ("cols", "emission"), [(2, "structural"), pytest.param(3, "loop", marks=pytest.mark.soak)]
)
def test_rows(cols, emission, seed):
    rng = np.random.default_rng([seed, cols])
    dut, latency = make(cols, emission)
    with dut:
        for op in Reduction:
            assert check(dut, cols, latency, op, rng, rows=300) == 300
            check(dut, cols, latency, op, rng, rows=60, bubbles=0.0)


@pytest.mark.soak
@pytest.mark.parametrize("cols", [1, 3, 8, 16])
def test_rows_long(cols, seed):
    rng = np.random.default_rng([seed, cols])
    dut, latency = make(cols, "loop")
    with dut:
        for op in Reduction:
            check(dut, cols, latency, op, rng, rows=4_000)


def test_parameters():
    with pytest.raises(ValueError, match="RowReducer cols must be 1 to 65535, not 0"):
        RowReducer(cols=0)
    assert RowReducer(cols=1).latency == ReduceLane.LATENCY
    assert RowReducer(cols=6).latency == RowReducer(cols=8).latency
