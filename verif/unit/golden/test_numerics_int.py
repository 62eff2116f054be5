"""Integer numerics against loops of Python integers and plain int64 NumPy."""

from __future__ import annotations

import os

import numpy as np
import pytest

from sluice.golden import numerics as nx

SEED = int(os.environ.get("SLUICE_SEED", "1"))


@pytest.fixture
def rng() -> np.random.Generator:
    print(f"SLUICE_SEED={SEED}")
    return np.random.default_rng(SEED)


def int8(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape, dtype=np.int8)


def wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (17, 13, 17), (31, 32, 31), (3, 257, 5), (1, 1000, 1)])
def test_matmul_equals_int64(rng, m, k, n):
    a, b = int8(rng, m, k), int8(rng, k, n)
    bias = rng.integers(-(2**31), 2**31, n, dtype=np.int32)
    expected = np.einsum("mk,kn->mn", a.astype(np.int64), b.astype(np.int64)) + bias
    got = nx.matmul_int8(a, b, bias)
    assert got.dtype == np.int32
    assert got.tolist() == [[wrap(int(v)) for v in row] for row in expected]
    assert nx.matmul_int8(a, b).tolist() == (expected - bias).tolist()


def test_matmul_is_exact_at_the_extremes_and_wraps_past_them():
    k = 2**31 // 2**14  # the K at which -128 * -128 summed reaches 2^31
    low = np.full((1, k), -128, dtype=np.int8)
    assert nx.matmul_int8(low[:, :-1], low[:, :-1].T)[0, 0] == 2**31 - 2**14
    assert nx.matmul_int8(low, low.T)[0, 0] == -(2**31)
    # An odd sum beyond float32's 24 bits: a product in single precision would lose the last bit.
    low[0, 0], high = -127, np.full((k, 1), 127, dtype=np.int8)
    assert nx.matmul_int8(low, high)[0, 0] == -128 * 127 * (k - 1) - 127 * 127
    bias = np.array([-(2**31)], dtype=np.int32)
    assert nx.matmul_int8(low[:, :1], high[:1], bias)[0, 0] == 2**31 - 127 * 127


def test_matmul_refuses_bad_operands():
    a = np.zeros((2, 3), dtype=np.int8)
    with pytest.raises(TypeError, match="a must be int8, not int16"):
        nx.matmul_int8(a.astype(np.int16), a.T)
    with pytest.raises(ValueError, match=r"not \(2, 3\) and \(2, 3\)"):
        nx.matmul_int8(a, a)
    with pytest.raises(TypeError, match="bias must be int32, not int64"):
        nx.matmul_int8(a, a.T, np.zeros(2, dtype=np.int64))
    with pytest.raises(ValueError, match=r"bias must have shape \(2,\), not \(3,\)"):
        nx.matmul_int8(a, a.T, np.zeros(3, dtype=np.int32))


def naive_conv(x, w, bias, stride, dilation, padding, zero_point, groups):
    """Convolve one output pixel at a time with Python integers, bounds tests instead of padding."""
    n, h, wd, _ = x.shape
    kh, kw, ci, co = w.shape
    (top, bottom), (left, right) = padding
    oh = (h + top + bottom - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (wd + left + right - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = np.zeros((n, oh, ow, co), dtype=np.int64)
    for b, oy, ox, o in np.ndindex(n, oh, ow, co):
        total = int(bias[o])
        for ky, kx, c in np.ndindex(kh, kw, ci):
            y, xx = oy * stride[0] + ky * dilation[0] - top, ox * stride[1] + kx * dilation[1] - left
            inside = 0 <= y < h and 0 <= xx < wd
            value = int(x[b, y, xx, (o // (co // groups)) * ci + c]) if inside else zero_point
            total += (value - zero_point) * int(w[ky, kx, c, o])
        out[b, oy, ox, o] = total
    return out


@pytest.mark.parametrize(
    ("size", "ci", "co", "kernel", "stride", "dilation", "padding", "groups"),
    [
        ((1, 1), 1, 1, (1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), 1),
        ((5, 7), 3, 4, (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 1),
        ((6, 5), 2, 3, (3, 2), (2, 1), (1, 1), ((0, 1), (1, 0)), 1),
        ((9, 8), 2, 2, (2, 3), (1, 2), (3, 2), ((2, 0), (1, 3)), 1),
        ((4, 4), 2, 6, (1, 1), (2, 2), (1, 1), ((1, 1), (1, 1)), 1),
        ((5, 4), 4, 8, (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 4),
        ((3, 3), 4, 6, (2, 2), (1, 1), (1, 1), ((0, 1), (0, 1)), 2),
    ],
)
def test_conv_with_folded_zero_point_equals_a_direct_loop(
    rng, size, ci, co, kernel, stride, dilation, padding, groups
):
    for zero_point in (-128, -3, 0, 127):
        x, w = int8(rng, 2, *size, ci), int8(rng, *kernel, ci // groups, co)
        bias = rng.integers(-(2**20), 2**20, co, dtype=np.int32)
        got = nx.conv2d_int8(
            x, w, nx.fold_zero_point(bias, w, zero_point), stride=stride, dilation=dilation, padding=padding,
            zero_point=zero_point, groups=groups,
        )
        assert got.dtype == np.int32
        np.testing.assert_array_equal(
            got, naive_conv(x, w, bias, stride, dilation, padding, zero_point, groups)
        )


def test_conv_refuses_what_does_not_fit():
    x, w = np.zeros((1, 4, 4, 3), dtype=np.int8), np.zeros((3, 3, 3, 2), dtype=np.int8)
    with pytest.raises(ValueError, match="kernel 3 with dilation 2 does not fit a padded axis of 4"):
        nx.conv2d_int8(x, w, dilation=(2, 2))
    with pytest.raises(ValueError, match="x with 3 channels does not fit"):
        nx.conv2d_int8(x, w, groups=3)
    with pytest.raises(ValueError, match="zero_point must be integers in -128..127, not 128"):
        nx.conv2d_int8(x, w, zero_point=128)
    with pytest.raises(ValueError, match="stride"):
        nx.conv2d_int8(x, w, stride=(0, 1))


def test_im2col_orders_k_as_ky_kx_c():
    x = np.arange(2 * 3 * 2, dtype=np.int8).reshape(1, 2, 3, 2)
    assert nx.im2col(x, (2, 2)).reshape(2, 8).tolist() == [[0, 1, 2, 3, 6, 7, 8, 9], [2, 3, 4, 5, 8, 9, 10, 11]]


def test_run_time_zero_points(rng):
    a, b = int8(rng, 5, 19), int8(rng, 19, 7)
    for za, zb in ((-128, 127), (0, 5), (-7, 0), (127, 127)):
        acc = nx.apply_zero_points(
            nx.matmul_int8(a, b), a.sum(1, dtype=np.int64), b.sum(0, dtype=np.int64), 19, za, zb
        )
        np.testing.assert_array_equal(acc, (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb))


def test_uint8_enters_as_x_minus_128():
    values = np.arange(256, dtype=np.uint8)
    assert nx.uint8_to_int8(values).tolist() == list(range(-128, 128))


def test_clamp_adds_the_zero_point_without_wrapping():
    extremes = np.array([-(2**31), -129, -1, 0, 1, 128, 2**31 - 1], dtype=np.int32)
    assert nx.clamp_int8(extremes, -128).tolist() == [-128, -128, -128, -128, -127, 0, 127]
    assert nx.clamp_int8(extremes, 127, -5, 100).tolist() == [-5, -2, 100, 100, 100, 100, 100]
    with pytest.raises(ValueError, match="lo=3, hi=2"):
        nx.clamp_int8(extremes, 0, 3, 2)
