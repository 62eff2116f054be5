"""The fixed dialect against exact fractions and a transcription of the published formulas."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np
import pytest

from sluice.golden import numerics as nx

SEED = int(os.environ.get("SLUICE_SEED", "1"))
INT32 = (-(2**31), 2**31 - 1)
EDGES = [INT32[0], INT32[0] + 1, -(2**30), -65536, -3, -2, -1, 0, 1, 2, 3, 65535, 2**30, INT32[1] - 1, INT32[1]]


@pytest.fixture
def rng() -> np.random.Generator:
    print(f"SLUICE_SEED={SEED}")
    return np.random.default_rng(SEED)


def saturate(value: int) -> int:
    return min(max(value, INT32[0]), INT32[1])


def exact(acc: int, m: int, n: int, rounding: str) -> int:
    """Round the exact fraction to the nearest integer; ties up, or away from zero."""
    value = Fraction(acc * m, 2**n)
    if rounding == "half_up":
        return saturate(math.floor(value + Fraction(1, 2)))
    return saturate(math.floor(abs(value) + Fraction(1, 2)) * (1 if value >= 0 else -1))


@pytest.mark.parametrize("rounding", ["half_up", "away"])
def test_rescale_is_the_nearest_integer(rng, rounding):
    acc = np.concatenate([np.repeat(EDGES, 62 * 3), rng.integers(*INT32, 20_000, endpoint=True)])
    m = np.concatenate(
        [np.tile(np.repeat([2**30, 2**31 - 1, 1], 62), len(EDGES)), rng.integers(2**30, 2**31, 20_000)]
    )
    n = np.concatenate([np.tile(np.arange(1, 63), len(EDGES) * 3), rng.integers(1, 63, 20_000)])
    got = nx.rescale_fixed(acc, m, n, rounding)
    assert got.dtype == np.int32
    expected = [exact(int(a), int(b), int(c), rounding) for a, b, c in zip(acc, m, n, strict=True)]
    np.testing.assert_array_equal(got, expected)


def test_the_two_roundings_differ_at_negative_ties_only():
    acc = np.arange(-9, 10)
    up, away = nx.rescale_fixed(acc, 1, 1), nx.rescale_fixed(acc, 1, 1, "away")
    assert acc[up != away].tolist() == [-9, -7, -5, -3, -1]
    assert up.tolist() == [-4, -4, -3, -3, -2, -2, -1, -1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert away.tolist() == [-5, -4, -4, -3, -3, -2, -2, -1, -1, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]


def test_negative_multipliers_and_the_largest_product(rng):
    for rounding in ("half_up", "away"):
        for acc in EDGES:
            for n in (1, 2, 31, 61, 62):
                y = int(nx.rescale_fixed(acc, INT32[0], n, rounding))
                if rounding == "half_up":
                    assert y == exact(acc, INT32[0], n, rounding), (acc, n)
                else:  # the sign is the accumulator's alone, so ties of a negative multiplier go towards zero
                    sign = (acc > 0) - (acc < 0)
                    assert y == saturate(sign * ((abs(acc) * INT32[0] + 2 ** (n - 1)) >> n)), (acc, n)


def test_channels_broadcast_on_the_last_axis(rng):
    acc = rng.integers(-(2**20), 2**20, (5, 3))
    m, n, zp = np.array([2**30, 2**30 + 7, 2**31 - 1]), np.array([40, 38, 41]), 11
    got = nx.requantize_fixed(acc, m, n, zp, -100, 90)
    assert got.dtype == np.int8
    for r, c in np.ndindex(5, 3):
        y = exact(int(acc[r, c]), int(m[c]), int(n[c]), "half_up") + zp
        assert got[r, c] == min(max(y, -100), 90)


def test_rescale_refuses_bad_operands():
    for n in (0, 63):
        with pytest.raises(ValueError, match=f"shift must be in 1..62, not {n}"):
            nx.rescale_fixed(1, 1, n)
    with pytest.raises(ValueError, match="rounding must be one of"):
        nx.rescale_fixed(1, 1, 1, "half_even")
    with pytest.raises(ValueError, match="acc must fit int32"):
        nx.rescale_fixed(2**31, 1, 1)
    with pytest.raises(TypeError, match="multiplier must be integers, not float64"):
        nx.rescale_fixed(1, 0.5, 1)


def test_quantize_multiplier_is_the_nearest_31_bit_factor(rng):
    reals = np.concatenate([np.exp2(rng.uniform(-31.9, 29.9, 5000)), [1.0, 0.5, 2.0, 1 / 3, 2.0**-32, 2.0**29]])
    for real in reals:
        m, n = nx.quantize_multiplier(real)
        assert 2**30 <= m < 2**31 and 1 <= n <= 62
        # Half an ulp of m, exactly.
        assert abs(Fraction(m, 2**n) - Fraction(float(real))) <= Fraction(1, 2 ** (n + 1))


def test_quantize_multiplier_edges():
    assert nx.quantize_multiplier(0.0) == (0, 31)
    assert nx.quantize_multiplier(1.0) == (2**30, 30)
    assert nx.quantize_multiplier(1.0 - 2.0**-40) == (2**30, 30)  # rounds up to the next power of two
    assert nx.quantize_multiplier((2**30 + 0.5) / 2**31) == (2**30 + 1, 31)  # a tie goes away from zero
    assert nx.quantize_multiplier(2.0**-32) == (2**30, 62)
    assert nx.quantize_multiplier(2.0**-32 * (1 - 2.0**-20)) == (0, 31)
    assert nx.quantize_multiplier(2.0**30 * (1 - 2.0**-20)) == (2**31 - 2**11, 1)
    assert nx.quantize_multiplier(2.0**30) == (2**31 - 1, 1)
    assert nx.quantize_multiplier(1e300) == (2**31 - 1, 1)
    for bad in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="multiplier must be finite and >= 0"):
            nx.quantize_multiplier(bad)


def round_half_away(num: int, den: int) -> int:
    return (abs(num) * 2 + den) // (2 * den) * (1 if num >= 0 else -1)


def test_average_is_exact_for_every_sum_of_small_counts():
    for count in range(1, 130):
        sums = np.arange(-128 * count, 128 * count + 1)
        magnitude = (2 * np.abs(sums) + count) // (2 * count)
        np.testing.assert_array_equal(
            nx.rescale_fixed(sums, *nx.avg_multiplier(count), "away"), np.sign(sums) * magnitude, f"count {count}"
        )


def test_average_is_exact_at_every_step_up_to_8192():
    # The result steps where 2|s| + count crosses a multiple of 2*count: check both sides of all 128 steps.
    steps = np.arange(0, 129)
    for count in range(1, 8193):
        edge = -(-(2 * count * steps - count) // 2)
        sums = np.clip(np.concatenate([edge - 1, edge, edge + 1]), 0, 128 * count)
        sums = np.concatenate([sums, -sums])
        expected = np.sign(sums) * ((2 * np.abs(sums) + count) // (2 * count))
        got = nx.rescale_fixed(sums, *nx.avg_multiplier(count), "away")
        assert np.array_equal(got, expected), count


@pytest.mark.parametrize("count", [2**16 + 1, 3 * 2**19, 2**21 - 1, 2**21 + 1, 2**22 - 1, 2**22])
def test_average_is_exact_at_large_counts(rng, count):
    m, n = nx.avg_multiplier(count)
    assert 2**30 <= m < 2**31 and 1 <= n <= 62
    top = 128 * count
    near = [s + d for s in range(-top, top + 1, top // 256) for d in (-1, 0, 1) if -top <= s + d <= top]
    sums = np.concatenate([near, rng.integers(-top, top + 1, 20_000)])
    expected = [round_half_away(int(s), count) for s in sums]
    np.testing.assert_array_equal(nx.rescale_fixed(sums, m, n, "away"), expected)


def test_average_refuses_counts_outside_the_proof():
    for count in (0, 2**22 + 1):
        with pytest.raises(ValueError, match=f"not {count}"):
            nx.avg_multiplier(count)


def tflite_mean_multiplier(real: float, count: int) -> tuple[int, int]:
    """Transcribe QuantizedMeanOrSum (tensorflow/lite/kernels/internal/reference/reduce.h), in its own terms."""
    m, n = nx.quantize_multiplier(real)
    output_shift = 31 - n
    shift = 63 - (64 - count.bit_length())
    shift = min(shift, 32)
    shift = min(shift, 31 + output_shift)
    return (m << shift) // count, output_shift - shift


@pytest.mark.parametrize("count", [1, 2, 3, 49, 64, 1000, 4096, 65535])
def test_mean_multiplier_folds_the_count(count):
    for si, so in ((1.0, 1.0), (0.5, 0.25), (0.02, 0.013), (1e-9, 1.0)):
        m, n = nx.mean_multiplier(si, so, count)
        assert (m, 31 - n) == tflite_mean_multiplier(float(np.float32(si)) / float(np.float32(so)), count)
        real = Fraction(float(np.float32(si))) / Fraction(float(np.float32(so))) / count
        if n < 62:
            assert abs(Fraction(m, 2**n) / real - 1) < Fraction(1, 2**28)
