"""The lane's arithmetic unit against golden, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.golden.vector_ops import AluOp, alu
from sluice_hw.vpu.alu import AluLane
from verif.models.lanes import LaneRow

#: Bit patterns at which something changes, as fp32 or as int32.
EDGES = np.array([
    0, 1, 0x007FFFFF, 0x00800000, 0x00800001, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F808000, 0x3F818000, 0x40490FDB,
    0x4F000000, 0x4EFFFFFF, 0x7F7F8000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x7F, 0x80, 0xFF,
    0x3F000000, 0x3FC00000,
], np.uint32)  # fmt: skip
EDGES = np.concatenate([EDGES, EDGES | np.uint32(1 << 31), ~EDGES[:4]])


def operands(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """All pairs of edges, any patterns, numbers of one size, small integers, near pairs."""
    a, b = (x.reshape(-1) for x in np.meshgrid(EDGES, EDGES))
    anything = rng.integers(0, 1 << 32, (2, count), dtype=np.uint32)
    near = rng.uniform(-4, 4, (2, count)).astype(np.float32).view(np.uint32)
    small = rng.integers(-300, 300, (2, count)).astype(np.int32).view(np.uint32)
    close = anything[0] ^ (rng.integers(0, 4, count).astype(np.uint32) << rng.integers(0, 32, count).astype(np.uint32))
    a = np.concatenate([a, anything[0], near[0], small[0], anything[0]])
    b = np.concatenate([b, anything[1], near[1], small[1], close])
    c = np.where(rng.random(len(a)) < 0.3, 0, rng.permutation(np.concatenate([a, b])[: len(a)])).astype(np.uint32)
    return {"a": a, "b": b, "c": c}


@pytest.fixture(scope="module")
def lanes():
    with LaneRow(AluLane(), name="alu_lanes", cols=8) as row:
        yield row


def check(lanes: LaneRow, op: AluOp, values: dict[str, np.ndarray]) -> None:
    got = lanes.run(values, {"op": op}, bubbles=True)["result"]
    wanted = alu(op, **values)
    wrong = np.flatnonzero(got != wanted)
    cases = ", ".join(
        " ".join(f"{name} 0x{values[name][k]:08X}" for name in values) + f": 0x{got[k]:08X}, not 0x{wanted[k]:08X}"
        for k in wrong[:3]
    )
    assert not len(wrong), f"{op.name}: {len(wrong)} of {len(got)} differ: {cases}"


@pytest.mark.parametrize("op", AluOp)
def test_operation(lanes, op, seed):
    check(lanes, op, operands(np.random.default_rng([seed, op]), 4_000))


@pytest.mark.soak
@pytest.mark.parametrize("op", AluOp)
def test_operation_long(lanes, op, seed):
    check(lanes, op, operands(np.random.default_rng([seed, op, 1]), 250_000))


@pytest.mark.soak
def test_structural_form(seed):
    with LaneRow(AluLane(), name="alu_lanes", cols=2, emission="structural", opt="-O0") as lanes:
        for op in AluOp:
            check(lanes, op, operands(np.random.default_rng([seed, op, 2]), 300))


def test_one_result_a_cycle(lanes):
    before = lanes.cycles
    zeros = np.zeros(8 * 1000, np.uint32)
    lanes.run({"a": zeros, "b": zeros, "c": zeros}, {"op": AluOp.MUL_ADD})
    assert lanes.cycles - before == 1000 + AluLane.LATENCY - 1
