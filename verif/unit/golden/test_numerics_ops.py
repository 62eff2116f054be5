"""ADD, MUL, pools, MEAN and bounds, each against scalar Python written from the published kernels."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np
import pytest

from sluice.golden import numerics as nx

SEED = int(os.environ.get("SLUICE_SEED", "1"))
ALL = np.arange(-128, 128, dtype=np.int8)
QA, QB = (grid.ravel() for grid in np.meshgrid(ALL, ALL))  # all 65,536 pairs


@pytest.fixture
def rng() -> np.random.Generator:
    print(f"SLUICE_SEED={SEED}")
    return np.random.default_rng(SEED)


def half_up(value: Fraction) -> int:
    return math.floor(value + Fraction(1, 2))


def clamp(value: int, lo: int = -128, hi: int = 127) -> int:
    return min(max(value, lo), hi)


SCALES = [(0.5, 0.25, 0.6), (0.0123, 0.0456, 0.05), (0.1, 0.1, 0.1), (3e-5, 2e-4, 1.7e-4)]


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("zeros", [(0, 0, 0), (-128, 127, 5), (11, -7, -128)])
def test_add_fixed_over_all_pairs(scales, zeros):
    za, zb, zo = zeros
    m = nx.add_multipliers(*scales)

    def rescale(value: int, pair: tuple[int, int]) -> int:
        return half_up(Fraction(value * pair[0], 2 ** pair[1]))

    in_a = [rescale((q - za) << 20, m.a) for q in range(-128, 128)]
    in_b = [rescale((q - zb) << 20, m.b) for q in range(-128, 128)]
    got = nx.add_fixed(QA, QB, za, zb, m, zo, -120, 119).tolist()
    for a, b, y in zip(QA.tolist(), QB.tolist(), got, strict=True):
        total = in_a[a + 128] + in_b[b + 128]
        assert y == clamp(((total * m.out[0] + (1 << m.out[1] - 1)) >> m.out[1]) + zo, -120, 119)


def test_add_multipliers_are_those_of_tflite():
    # Scales that are powers of two, so that each factor can be read off: twice the larger is 1.
    assert nx.add_multipliers(0.5, 0.125, 2.0) == ((2**30, 31), (2**30, 33), (2**30, 51))
    for bad in ((0.0, 1, 1), (1, -1, 1), (1, 1, 0)):
        with pytest.raises(ValueError, match="must be > 0"):
            nx.add_multipliers(*bad)
    with pytest.raises(ValueError, match="too small"):
        nx.add_multipliers(1.0, 1.0, 2.0**-20)


@pytest.mark.parametrize("scales", SCALES)
def test_adds_are_within_one_step_of_the_real_sum(scales):
    real = (QA.astype(float) - 3) * scales[0] + (QB.astype(float) + 9) * scales[1]
    ideal = np.clip(real / scales[2] - 5, -128, 127)
    fixed = nx.add_fixed(QA, QB, 3, -9, nx.add_multipliers(*scales), -5)
    floating = nx.add_float(QA, QB, 3, -9, *nx.add_ratios(*scales), -5)
    assert np.abs(fixed - ideal).max() <= 0.5 + 1e-3
    assert np.abs(floating - ideal).max() <= 0.5 + 1e-4


@pytest.mark.parametrize("scales", SCALES)
def test_add_float_over_all_pairs(scales):
    ra, rb = nx.add_ratios(*scales)
    za, zb, zo = -3, 17, 4
    # No value here is subnormal, so plain float32 arithmetic keeps the contract: check the steps against it.
    t = (QA.astype(np.float32) - np.float32(za)) * ra
    u = (QB.astype(np.float32) - np.float32(zb)) * rb
    expected = np.clip(np.rint(t + u).astype(np.int64) + zo, -128, 100)
    np.testing.assert_array_equal(nx.add_float(QA, QB, za, zb, ra, rb, zo, hi=100), expected)


def test_add_ratios_round_once():
    for scales in SCALES:
        for got, s in zip(nx.add_ratios(*scales), scales[:2], strict=True):
            exact = Fraction(float(np.float32(s))) / Fraction(float(np.float32(scales[2])))
            error = abs(Fraction(float(got)) - exact)
            for neighbour in (np.nextafter(got, np.float32(0)), np.nextafter(got, np.float32(1e9))):
                assert error <= abs(Fraction(float(neighbour)) - exact)


@pytest.mark.parametrize("zeros", [(0, 0, 0), (-128, 127, 5)])
def test_mul_over_all_pairs(zeros):
    za, zb, zo = zeros
    m, n = nx.quantize_multiplier(0.013)
    product = (QA.astype(np.int64) - za) * (QB.astype(np.int64) - zb)
    fixed = [clamp(half_up(Fraction(p * m, 2**n)) + zo) for p in product.tolist()]
    assert nx.mul_fixed(QA, QB, za, zb, m, n, zo).tolist() == fixed
    expected = np.clip(np.rint(product.astype(np.float32) * np.float32(0.013)) + zo, -128, 127)
    np.testing.assert_array_equal(nx.mul_float(QA, QB, za, zb, 0.013, zo), expected)


POOLS = [
    ((4, 6), (2, 2), (2, 2), ((0, 0), (0, 0))),
    ((5, 5), (3, 3), (1, 1), ((1, 1), (1, 1))),
    ((5, 4), (3, 2), (2, 3), ((0, 1), (1, 0))),
    ((6, 6), (1, 1), (2, 2), ((0, 0), (0, 0))),
    ((7, 3), (7, 3), (1, 1), ((0, 0), (0, 0))),
]


def windows(x, kernel, stride, padding):
    """Yield each output place of one NHWC image set and the values of its window, padding left out."""
    n, h, w, c = x.shape
    oh = (h + sum(padding[0]) - kernel[0]) // stride[0] + 1
    ow = (w + sum(padding[1]) - kernel[1]) // stride[1] + 1
    for b, oy, ox, ch in np.ndindex(n, oh, ow, c):
        y0, x0 = oy * stride[0] - padding[0][0], ox * stride[1] - padding[1][0]
        yield (b, oy, ox, ch), [
            int(x[b, y, xx, ch])
            for y in range(max(y0, 0), min(y0 + kernel[0], h))
            for xx in range(max(x0, 0), min(x0 + kernel[1], w))
        ]


@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), POOLS)
def test_pools(rng, size, kernel, stride, padding):
    x = rng.integers(-128, 128, (2, *size, 3), dtype=np.int8)
    si, so, zi, zo = 0.021, 0.017, -9, 6
    largest = nx.max_pool_int8(x, kernel, stride, padding, -50, 90)
    fixed = nx.avg_pool_fixed(x, kernel, stride, padding, -50, 90)
    kwargs = dict(input_scale=si, output_scale=so, input_zero_point=zi, zero_point=zo)
    floating = nx.avg_pool_float(x, kernel, stride, padding, **kwargs)
    padded = nx.avg_pool_float(x, kernel, stride, padding, count_include_pad=True, **kwargs)
    seen = 0
    for place, values in windows(x, kernel, stride, padding):
        count, total = len(values), sum(values)
        assert largest[place] == clamp(max(values), -50, 90)
        # TFLite AveragePool: add or subtract count / 2, then divide truncating towards zero.
        magnitude = (abs(total) + count // 2) // count
        assert fixed[place] == clamp(magnitude if total > 0 else -magnitude, -50, 90)
        for got, pixels in ((floating, count), (padded, kernel[0] * kernel[1])):
            scale = np.float32(float(np.float32(si)) / (float(np.float32(so)) * pixels))
            assert got[place] == clamp(int(np.rint(np.float32(total - count * zi) * scale)) + zo)
        seen += 1
    assert seen == largest.size == fixed.size == floating.size


def test_average_of_extremes_and_ties():
    for fill in (-128, 127):
        x = np.full((1, 64, 64, 1), fill, dtype=np.int8)
        assert nx.avg_pool_fixed(x, (64, 64), (1, 1)).ravel().tolist() == [fill]
    ties = np.array([[-3, -2], [2, 3], [-1, 0], [0, 1]], dtype=np.int8).reshape(4, 1, 2, 1)
    assert nx.avg_pool_fixed(ties, (1, 2), (1, 1)).ravel().tolist() == [-3, 3, -1, 1]


def test_pool_refuses_a_window_that_may_lie_in_the_padding():
    x = np.zeros((1, 4, 4, 1), dtype=np.int8)
    for pool in (nx.max_pool_int8, nx.avg_pool_fixed):
        with pytest.raises(ValueError, match="must be smaller than the kernel"):
            pool(x, (2, 2), (1, 1), ((2, 0), (0, 0)))


def test_mean(rng):
    x = rng.integers(-128, 128, (3, 7, 7, 5), dtype=np.int8)
    si, so, zi, zo = 0.03, 0.011, 12, -4
    m, n = nx.mean_multiplier(si, so, 49)
    scale = nx.average_scale(si, so, 49)
    fixed, floating = nx.mean_fixed(x, (1, 2), zi, m, n, zo), nx.mean_float(x, (1, 2), zi, scale, zo)
    assert fixed.shape == floating.shape == (3, 5)
    for b, c in np.ndindex(3, 5):
        total = sum(int(v) - zi for v in x[b, :, :, c].ravel())
        assert fixed[b, c] == clamp(((total * m + (1 << n - 1)) >> n) + zo)
        assert floating[b, c] == clamp(int(np.rint(np.float32(total) * scale)) + zo)
        assert abs(fixed[b, c] - clamp(round(total / 49 * si / so) + zo)) <= 1


@pytest.mark.parametrize(
    ("kind", "scale", "zero_point", "bounds"),
    [
        ("none", 0.1, 3, (-128, 127)),
        ("relu", 0.1, 3, (3, 127)),
        ("relu", 0.1, -128, (-128, 127)),
        ("relu6", 0.1, -128, (-128, -68)),
        ("relu6", 4.0, 0, (0, 2)),  # 6 / 4 = 1.5 rounds away from zero
        ("relu6", 0.001, -128, (-128, 127)),
        ("relu6", 1e-44, 0, None),
        ("relu_n1_to_1", 0.4, 1, (-2, 4)),  # 1 / 0.4 = 2.5 in fp32 (2.4999999 in float64): -3 and +3
        ("relu_n1_to_1", 0.004, 0, (-128, 127)),
    ],
)
def test_activation_bounds(kind, scale, zero_point, bounds):
    if bounds is None:
        bounds = (0, 127)
    assert nx.activation_bounds(kind, scale, zero_point) == bounds


def test_activation_refusals():
    with pytest.raises(ValueError, match="activation must be one of .*'swish'"):
        nx.activation_bounds("swish", 1.0, 0)
    with pytest.raises(ValueError, match="scale must be > 0, not 0"):
        nx.activation_bounds("relu", 0, 0)
