"""Lane operations and reductions of golden, by hand and against exact arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sluice.golden.numerics_float import fp32_add, fp32_bits, fp32_from_bits
from sluice.golden.vector_ops import AluOp, Reduction, alu, reduce_rows, transpose
from sluice_hw.vector_ops import MEANING
from verif.unit.arith.exact import ExactFloat

NAN, INF, ONE, ZERO, MINUS_ZERO, TINY = 0x7FC00000, 0x7F800000, 0x3F800000, 0, 0x80000000, 0x00800000
LEAST = 0x80000000
#: Operation, a, b, c, result.
CASES = [
    (AluOp.PASS, 0x7F800001, 0, 0, 0x7F800001), (AluOp.PASS, 1, 0, 0, 1),
    (AluOp.SELECT, 5, 6, 0, 6), (AluOp.SELECT, 5, 6, LEAST, 5),
    (AluOp.ADD, 0x7F7FFFFF, 0x7F7FFFFF, 0, INF), (AluOp.ADD, INF, INF | LEAST, 0, NAN), (AluOp.ADD, 1, 1, 0, 0),
    (AluOp.ADD, MINUS_ZERO, MINUS_ZERO, 0, MINUS_ZERO), (AluOp.SUB, ONE, ONE, 0, 0),
    (AluOp.SUB, TINY | 1, TINY, 0, 0), (AluOp.MUL, TINY, 0x3F000000, 0, 0), (AluOp.MUL, INF, 0, 0, NAN),
    # (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: the product loses its last term before the sum
    (AluOp.MUL_ADD, 0x3F800800, 0x3F800800, ONE | LEAST, 0x3A000000),
    (AluOp.MUL_SUB, 0x3F800800, 0x3F800800, ONE, 0x3A000000),
    (AluOp.MIN, ZERO, MINUS_ZERO, 0, MINUS_ZERO), (AluOp.MAX, MINUS_ZERO, ZERO, 0, ZERO),
    (AluOp.MAX, 0xFFC00001, ONE, 0, NAN), (AluOp.MIN, ONE, 0x7F800001, 0, NAN), (AluOp.MAX, 5, 0x80000005, 0, 0),
    (AluOp.ABS, INF | LEAST, 0, 0, INF), (AluOp.ABS, 0xFFC00000, 0, 0, NAN), (AluOp.NEG, NAN, 0, 0, NAN),
    (AluOp.NEG, 3, 0, 0, MINUS_ZERO), (AluOp.LT, MINUS_ZERO, ZERO, 0, 0), (AluOp.LE, ZERO, MINUS_ZERO, 0, 1),
    (AluOp.LT, NAN, ONE, 0, 0), (AluOp.LE, NAN, NAN, 0, 0), (AluOp.EQ, NAN, NAN, 0, 0), (AluOp.EQ, 5, LEAST, 0, 1),
    (AluOp.LT, INF | LEAST, 0xFF7FFFFF, 0, 1), (AluOp.CLEAN, 0x807FFFFF, 0, 0, MINUS_ZERO),
    (AluOp.TO_BF16, 0x3F808000, 0, 0, 0x3F800000), (AluOp.TO_BF16, 0x3F818000, 0, 0, 0x3F820000),
    (AluOp.TO_BF16, 0x7F7FFFFF, 0, 0, INF), (AluOp.TO_INT32, 0x3F000000, 0, 0, 0),
    (AluOp.TO_INT32, 0x3FC00000, 0, 0, 2),
    (AluOp.TO_INT32, INF | LEAST, 0, 0, LEAST), (AluOp.TO_INT32, NAN, 0, 0, 0),
    (AluOp.IADD, 0x7FFFFFFF, 1, 0, LEAST), (AluOp.ISUB, 0, LEAST, 0, LEAST), (AluOp.IMUL, LEAST, 0xFFFFFFFF, 0, LEAST),
    (AluOp.IMIN, LEAST, 1, 0, LEAST), (AluOp.IMAX, LEAST, 1, 0, 1), (AluOp.IABS, LEAST, 0, 0, LEAST),
    (AluOp.IABS, 0xFFFFFFFF, 0, 0, 1), (AluOp.ILT, LEAST, 0, 0, 1), (AluOp.ILE, 7, 7, 0, 1), (AluOp.IEQ, 7, 8, 0, 0),
    (AluOp.I_TO_FP32, 0x01000001, 0, 0, 0x4B800000), (AluOp.I_TO_FP32, LEAST, 0, 0, 0xCF000000),
    (AluOp.I_TO_INT8, 128, 0, 0, 127), (AluOp.I_TO_INT8, LEAST, 0, 0, 0xFFFFFF80),
    (AluOp.INT8_TO_I, 0x12345680, 0, 0, 0xFFFFFF80), (AluOp.AND, 12, 10, 0, 8), (AluOp.OR, 12, 10, 0, 14),
    (AluOp.XOR, 12, 10, 0, 6),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].name}-{case[1]:x}-{case[2]:x}")
def test_case(case):
    op, *operands, wanted = case
    got = alu(op, *(np.array([x], np.uint32) for x in operands))
    assert int(got[0]) == wanted, f"0x{int(got[0]):08X}, not 0x{wanted:08X}"


def test_every_operation_has_a_meaning_and_a_case():
    assert set(MEANING) == set(AluOp) == {case[0] for case in CASES}


def test_multiply_add_is_product_then_sum(seed):
    exact = ExactFloat(8, 23)
    a, b, c = np.random.default_rng(seed).integers(0, 1 << 32, (3, 3_000), dtype=np.uint32)
    got = alu(AluOp.MUL_ADD, a, b, c).tolist()
    assert got == [exact.add(exact.mul(x, y), z) for x, y, z in zip(*(v.tolist() for v in (a, b, c)), strict=True)]


def order(row: list[np.float32], lanes: int) -> int:
    """The contract's sum of a row, one addition at a time."""
    partial = [np.float32(0)] * lanes
    for k, value in enumerate(row):
        partial[k % lanes] = fp32_add(partial[k % lanes], value)
    while len(partial) > 1:
        partial += [np.float32(0)] * (len(partial) % 2)
        partial = [fp32_add(x, y) for x, y in zip(partial[::2], partial[1::2], strict=True)]
    return int(fp32_bits(partial[0]))


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 8, 13])
def test_order_of_sums(lanes, seed):
    rng = np.random.default_rng(seed)
    for count in (0, 1, lanes - 1, lanes, lanes + 1, 3 * lanes + 2):
        row = (rng.standard_normal(count) * 10.0 ** rng.integers(-4, 5, count)).astype(np.float32)
        assert int(reduce_rows(Reduction.SUM, row, lanes=lanes)) == order(list(row), lanes)
        squares = fp32_from_bits(alu(AluOp.MUL, row, row))
        assert int(reduce_rows(Reduction.SUM_OF_SQUARES, row, lanes=lanes)) == order(list(squares), lanes)


def test_the_order_matters():
    row = np.array([1, 2.0**24, 1, -(2.0**24)], np.float32)
    assert {float(fp32_from_bits(reduce_rows(Reduction.SUM, row, lanes=n))) for n in (1, 2)} == {0.0, 2.0}


@pytest.mark.parametrize("lanes", [1, 4, 6])
def test_maximum(lanes, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(-5, 5, (40, 17)).astype(np.float32)
    keep = rng.random((40, 17)) < 0.6
    keep[3] = False
    low = np.where(keep, x, -np.inf)
    assert np.array_equal(fp32_from_bits(reduce_rows(Reduction.MAX, x, lanes=lanes, mask=keep)), low.max(axis=1))
    best = reduce_rows(Reduction.ARGMAX, x, lanes=lanes, mask=keep)
    some = keep.any(axis=1)
    assert np.array_equal(best[some], low.argmax(axis=1)[some]) and (best[~some] == 0x7FFFFFFF).all()


def test_maximum_of_odd_values():
    row = np.array([-np.inf, -0.0, 0.0, np.nan, np.inf, np.nan], np.float32)
    assert int(reduce_rows(Reduction.MAX, row, lanes=4)) == NAN
    assert int(reduce_rows(Reduction.ARGMAX, row, lanes=4)) == 3
    assert int(reduce_rows(Reduction.MAX, row[:3], lanes=4)) == 0
    assert int(reduce_rows(Reduction.ARGMAX, row[:3], lanes=4)) == 1  # zeros are equal
    assert int(reduce_rows(Reduction.ARGMAX, np.full(5, -np.inf, np.float32), lanes=2)) == 0
    assert int(reduce_rows(Reduction.MAX, row[:0], lanes=4)) == 0xFF800000


def test_masked_lanes_leak_nothing():
    row = np.array([1, np.nan, 3, np.inf], np.float32)
    keep = np.array([1, 0, 1, 0], bool)
    assert math.isclose(float(fp32_from_bits(reduce_rows(Reduction.SUM, row, lanes=2, mask=keep))), 4.0)
    assert math.isclose(float(fp32_from_bits(reduce_rows(Reduction.SUM_OF_SQUARES, row, lanes=2, mask=keep))), 10.0)


def test_transpose():
    block = np.arange(1, 7, dtype=np.uint8).reshape(2, 3)
    assert transpose(block, 4).tolist() == [[1, 4, 0, 0], [2, 5, 0, 0], [3, 6, 0, 0]]
    with pytest.raises(ValueError, match=r"at most 4 x 4 elements, not \(5, 1\)"):
        transpose(np.zeros((5, 1)), 4)


def test_refusals():
    with pytest.raises(TypeError, match="uint32, int32 or float32, not float64"):
        alu(AluOp.ADD, np.ones(3), np.ones(3))
    with pytest.raises(ValueError, match="lanes must be a positive integer, not 0"):
        reduce_rows(Reduction.SUM, np.ones(3, np.float32), lanes=0)
