"""fp32, bf16 and the float dialect against exact rational arithmetic."""

from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
import pytest

from sluice.golden import numerics as nx
from verif.unit.arith.exact import ExactFloat

SEED = int(os.environ.get("SLUICE_SEED", "1"))
EXACT = ExactFloat(exp_bits=8, man_bits=23)
NAN, INF, SIGN = 0x7FC00000, 0x7F800000, 0x80000000
SPECIAL = [
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000, 0x00800001,
    0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x3F800001, 0x3F000000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
    0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF, 0x4B000000, 0xCB000001, 0x4F000000, 0xCF000000, 0x33800000,
]  # fmt: skip


@pytest.fixture
def rng() -> np.random.Generator:
    print(f"SLUICE_SEED={SEED}")
    return np.random.default_rng(SEED)


def pairs(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return special values crossed, random patterns, and near pairs that cancel."""
    special = np.array(SPECIAL, dtype=np.uint32)
    a, b = (grid.ravel() for grid in np.meshgrid(special, special))
    ra, rb = rng.integers(0, 2**32, (2, count), dtype=np.uint32)
    near = ra ^ np.uint32(SIGN) ^ rng.integers(0, 2**25, count, dtype=np.uint32)
    return np.concatenate([a, ra, ra]), np.concatenate([b, rb, near])


@pytest.mark.parametrize(
    ("function", "reference"), [(nx.fp32_add, EXACT.add), (nx.fp32_mul, EXACT.mul)], ids=["add", "mul"]
)
def test_fp32_equals_exact_arithmetic_rounded(rng, function, reference):
    a, b = pairs(rng, 6000)
    got = nx.fp32_bits(function(a, b))
    for x, y, z in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
        assert z == reference(x, y), f"{x:08x} {y:08x} -> {z:08x}, not {reference(x, y):08x}"


def test_products_around_the_smallest_normal_number(rng):
    # Mantissa pairs whose product lands within a few ulp of 2^-126, on both sides of the tie at 2^-126 - 2^-150.
    a = rng.integers(0x00800000, 0x01000000, 4000, dtype=np.uint32)
    x = nx.fp32_from_bits(a).astype(np.float64)
    b = nx.fp32_bits((2.0**-126 / x * 2.0**-1).astype(np.float32) * np.float32(2)) + rng.integers(
        -2, 3, 4000
    ).astype(np.uint32)
    got = nx.fp32_bits(nx.fp32_mul(a, b))
    expected = [EXACT.mul(p, q) for p, q in zip(a.tolist(), b.tolist(), strict=True)]
    assert got.tolist() == expected
    assert {0, 0x00800000} <= set(expected)
    # 1 - 2^-24 times 2^-126 is the tie itself: it stays. One step less flushes.
    stays = nx.fp32_mul(np.array([0x3F800001, 0x3F7FFFFF], np.uint32), np.array([0x00800000] * 2, np.uint32))
    assert nx.fp32_bits(stays).tolist() == [0x00800001, 0x00800000]
    below = nx.fp32_mul(np.array([0xBF7FFFFE], np.uint32), np.array([0x00800000], np.uint32))
    assert nx.fp32_bits(below).tolist() == [0x80000000]


def test_subnormals_read_as_signed_zero_and_results_flush():
    tiny, least = np.array([0x00000001, 0x80000001], np.uint32), np.array([0x00800000] * 2, np.uint32)
    assert nx.fp32_bits(nx.fp32_flush(tiny)).tolist() == [0, SIGN]
    assert nx.fp32_bits(nx.fp32_add(least, tiny)).tolist() == [0x00800000] * 2
    assert nx.fp32_bits(nx.fp32_mul(tiny, np.array([INF, 0x7F7FFFFF], np.uint32))).tolist() == [NAN, SIGN]
    more, less = np.array([0x00800001, 0x80800001], np.uint32), np.array([0x80800000, 0x00800000], np.uint32)
    difference = nx.fp32_add(more, less)
    assert nx.fp32_bits(difference).tolist() == [0, SIGN]


def test_float_arrays_and_patterns_mean_the_same_and_others_are_refused():
    a = np.array([1.5, -2.25], np.float32)
    assert nx.fp32_add(a, nx.fp32_bits(a)).tolist() == [3.0, -4.5]
    with pytest.raises(TypeError, match="not float64"):
        nx.fp32_add(a.astype(np.float64), a)
    with pytest.raises(TypeError, match="must be uint16, not uint32"):
        nx.bf16_to_fp32(nx.fp32_bits(a))


def test_int32_to_fp32(rng):
    values = np.concatenate(
        [[-(2**31), 2**31 - 1, 0, 1, -1], 2**24 + np.arange(-4, 5), 2**25 + np.arange(-8, 9),
         -(2**25) + np.arange(-8, 9), rng.integers(-(2**31), 2**31, 10_000)]
    )  # fmt: skip
    assert nx.fp32_bits(nx.int32_to_fp32(values)).tolist() == [EXACT.encode(Fraction(v), 0) for v in values.tolist()]
    with pytest.raises(ValueError, match="x must fit int32"):
        nx.int32_to_fp32(np.array([2**31]))


def test_fp32_to_int32(rng):
    bits = np.concatenate(
        [np.array(SPECIAL, np.uint32), rng.integers(0x3E000000, 0x50000000, 10_000, dtype=np.uint32),
         nx.fp32_bits((np.arange(-2000, 2001) / 4).astype(np.float32))]
    )  # fmt: skip
    bits = np.concatenate([bits, bits ^ np.uint32(SIGN)])
    for pattern, got in zip(bits.tolist(), nx.fp32_to_int32(bits).tolist(), strict=True):
        if EXACT.is_nan(pattern):
            expected = 0
        elif EXACT.is_inf(pattern):
            expected = -(2**31) if pattern & SIGN else 2**31 - 1
        else:
            expected = min(max(round(EXACT.decode(pattern)), -(2**31)), 2**31 - 1)
        assert got == expected, f"{pattern:08x}"


def test_fp32_to_bf16(rng):
    assert nx.bf16_to_fp32(nx.fp32_to_bf16(np.float32(70000))) == 70144
    bits = np.concatenate([np.array(SPECIAL, np.uint32), rng.integers(0, 2**32, 20_000, dtype=np.uint32)])
    ties = np.arange(0x3F80, 0x4000, dtype=np.uint32) << np.uint32(16) | np.uint32(0x8000)
    bits = np.concatenate([bits, ties, ties - np.uint32(1), ties + np.uint32(1)])
    for pattern, got in zip(bits.tolist(), nx.fp32_to_bf16(bits).tolist(), strict=True):
        sign = pattern >> 16 & 0x8000
        if EXACT.is_nan(pattern):
            assert got == 0x7FC0
        elif EXACT.is_inf(pattern) or EXACT.decode(pattern) == 0:
            assert got == (0x7F80 if EXACT.is_inf(pattern) else 0) | sign
        else:
            # Neighbouring bf16 magnitudes are consecutive patterns: the nearest, and the even one of two as near.
            magnitude, low = abs(EXACT.decode(pattern)), pattern >> 16 & 0x7FFF
            down = magnitude - EXACT.decode(low << 16)
            up = (Fraction(2) ** 128 if low == 0x7F7F else EXACT.decode(low + 1 << 16)) - magnitude
            nearest = low if down < up or (down == up and low % 2 == 0) else low + 1
            assert got == nearest | sign, f"{pattern:08x}"


def test_bf16_to_fp32_over_all_patterns():
    bits = np.arange(2**16, dtype=np.uint16)
    for pattern, got in zip(bits.tolist(), nx.fp32_bits(nx.bf16_to_fp32(bits)).tolist(), strict=True):
        if pattern & 0x7F80 == 0:
            assert got == (pattern & 0x8000) << 16
        elif pattern & 0x7FFF > 0x7F80:
            assert got == NAN
        else:
            assert got == pattern << 16


def test_every_bf16_number_survives_the_round_trip():
    bits = np.arange(2**16, dtype=np.uint16)
    back = nx.fp32_to_bf16(nx.bf16_to_fp32(bits))
    normal = ((bits & 0x7F80) != 0) & ((bits & 0x7FFF) <= 0x7F80)
    np.testing.assert_array_equal(back[normal], bits[normal])


def test_requantize_float_rounds_three_times(rng):
    acc = rng.integers(-(2**31), 2**31, 4000)
    scale = np.exp2(rng.uniform(-34, -20, 4000)).astype(np.float32)
    got = nx.requantize_float(acc, scale, 3, -100, 101)
    assert got.dtype == np.int8
    for a, s, y in zip(acc.tolist(), nx.fp32_bits(scale).tolist(), got.tolist(), strict=True):
        product = EXACT.mul(EXACT.encode(Fraction(a), 0), s)
        assert y == min(max(round(EXACT.decode(product)) + 3, -100), 101)


def test_requantize_float_ties_saturation_and_refusals():
    assert nx.rescale_float(np.arange(-5, 6), 0.5).tolist() == [-2, -2, -2, -1, 0, 0, 0, 1, 2, 2, 2]
    # 2^24 + 1 is a tie that fp32 cannot hold; a float64 implementation would keep it and answer 16777217.
    assert nx.rescale_float(np.array([2**24 + 1]), 1.0).tolist() == [2**24]
    extremes = np.array([-(2**31), 2**31 - 1])
    assert nx.rescale_float(extremes, 3e38).tolist() == [-(2**31), 2**31 - 1]
    assert nx.rescale_float(extremes, 1e-40).tolist() == [0, 0]  # a subnormal scale reads as zero
    assert nx.requantize_float(extremes, 1.0, -128).tolist() == [-128, 127]
    for bad in (np.inf, np.nan, 1e39):
        with pytest.raises(ValueError, match="scale must be finite"):
            nx.rescale_float(extremes, bad)
