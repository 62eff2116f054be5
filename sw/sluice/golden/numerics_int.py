"""Integer tensor arithmetic: int8 matmul and convolution into int32, zero points, the final clamp."""

from __future__ import annotations

import numpy as np

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1

Padding = tuple[tuple[int, int], tuple[int, int]]


def require_dtype(name: str, array: np.ndarray, dtype: type) -> np.ndarray:
    """Return ``array`` as an ndarray, or raise ``TypeError`` if it is not of exactly ``dtype``."""
    array = np.asarray(array)
    if array.dtype != dtype:
        raise TypeError(f"{name} must be {np.dtype(dtype)}, not {array.dtype}")
    return array


def require_int32_range(name: str, array: np.ndarray) -> np.ndarray:
    """Return ``array`` as int64, or raise if it is not of integers that fit int32."""
    array = np.asarray(array)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers, not {array.dtype}")
    # Compare before widening: a uint64 above 2^63 would otherwise turn negative.
    if array.size and (array.min() < INT32_MIN or array.max() > INT32_MAX):
        raise ValueError(f"{name} must fit int32, not {array.min()}..{array.max()}")
    return array.astype(np.int64)


def wrap_int32(x: np.ndarray) -> np.ndarray:
    """Wrap int64 values to int32 as two's complement hardware does."""
    return np.asarray(x, dtype=np.int64).astype(np.uint64).astype(np.uint32).view(np.int32)


def uint8_to_int8(x: np.ndarray) -> np.ndarray:
    """Map uint8 onto the chip's int8 as ``x - 128``; its zero point moves by the same 128."""
    return (require_dtype("x", x, np.uint8) ^ np.uint8(0x80)).view(np.int8)


def clamp_int8(x: np.ndarray, zero_point: np.ndarray | int = 0, lo: int = -128, hi: int = 127) -> np.ndarray:
    """Add the zero point and clamp to ``[lo, hi]`` within int8; the sum never wraps.

    Parameters
    ----------
    x
        Rescaled values that fit int32, any shape.
    zero_point
        Output zero point, -128..127, broadcast against ``x``.
    """
    if not -128 <= lo <= hi <= 127:
        raise ValueError(f"clamp bounds must satisfy -128 <= lo <= hi <= 127, not lo={lo}, hi={hi}")
    zero_point = require_zero_point("zero_point", zero_point)
    return np.clip(require_int32_range("x", x) + zero_point, lo, hi).astype(np.int8)


def require_zero_point(name: str, value: np.ndarray | int) -> np.ndarray:
    """Return an int8 zero point (or an array of them) as int64, or raise ``ValueError``."""
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or array.size == 0 or array.min() < -128 or array.max() > 127:
        raise ValueError(f"{name} must be integers in -128..127, not {value!r}")
    return array.astype(np.int64)


def matmul_int8(a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """``a[M, K] @ b[K, N] + bias[N]`` into int32, wrapping like the accumulator if it overflows.

    Raises
    ------
    TypeError
        Operands that are not int8, or a bias that is not int32.
    ValueError
        Shapes that do not fit together.
    """
    a, b = require_dtype("a", a, np.int8), require_dtype("b", b, np.int8)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul needs a[M, K] and b[K, N], not {a.shape} and {b.shape}")
    # float64 holds every partial sum exactly up to K = 2^38 (|product| <= 2^14) and runs on BLAS, which int64 does not.
    acc = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    if bias is not None:
        bias = require_dtype("bias", bias, np.int32)
        if bias.shape != (b.shape[1],):
            raise ValueError(f"bias must have shape ({b.shape[1]},), not {bias.shape}")
        acc = acc + bias
    return wrap_int32(acc)


def fold_zero_point(bias: np.ndarray | None, weights: np.ndarray, za: int) -> np.ndarray:
    """Fold the activation zero point into the bias: ``bias[n] - za * sum(weights[..., n])``, int32, wrapping.

    Parameters
    ----------
    weights
        int8, output channel last: ``[K, N]`` or HWIO. With it ``(a - za) @ w + bias == a @ w + folded``.
    """
    weights = require_dtype("weights", weights, np.int8)
    column_sums = weights.astype(np.int64).reshape(-1, weights.shape[-1]).sum(axis=0)
    folded = -int(require_zero_point("za", za)) * column_sums
    if bias is not None:
        bias = require_dtype("bias", bias, np.int32)
        if bias.shape != column_sums.shape:
            raise ValueError(f"bias must have shape {column_sums.shape}, not {bias.shape}")
        folded = folded + bias
    return wrap_int32(folded)


def apply_zero_points(
    acc: np.ndarray, row_sums: np.ndarray, col_sums: np.ndarray, k: int, za: int, zb: int
) -> np.ndarray:
    """Correct ``a @ b`` for run-time zero points: ``acc - za*Sb - zb*Sa + K*za*zb``, int32, wrapping.

    Parameters
    ----------
    acc
        int32 ``[M, N]``, the raw product.
    row_sums, col_sums
        ``Sa[M]``, sums of the rows of ``a``, and ``Sb[N]``, sums of the columns of ``b``.
    k
        Length of the sums.
    """
    acc = require_int32_range("acc", acc)
    sa, sb = require_int32_range("row_sums", row_sums), require_int32_range("col_sums", col_sums)
    if acc.shape != (sa.size, sb.size):
        raise ValueError(f"acc must have shape ({sa.size}, {sb.size}), not {acc.shape}")
    za, zb = int(require_zero_point("za", za)), int(require_zero_point("zb", zb))
    return wrap_int32(acc - za * sb[None, :] - zb * sa[:, None] + k * za * zb)


def conv_output_size(size: int, kernel: int, stride: int, dilation: int, pad: tuple[int, int]) -> int:
    """Return the output length along one axis, or raise ``ValueError`` if the kernel does not fit."""
    if min(kernel, stride, dilation) < 1 or min(pad) < 0:
        raise ValueError(f"kernel, stride, dilation must be >= 1 and padding >= 0, not {kernel, stride, dilation, pad}")
    span = size + sum(pad) - (dilation * (kernel - 1) + 1)
    if span < 0:
        raise ValueError(f"kernel {kernel} with dilation {dilation} does not fit a padded axis of {size + sum(pad)}")
    return span // stride + 1


def im2col(
    x: np.ndarray,
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: Padding = ((0, 0), (0, 0)),
    pad_value: int = 0,
) -> np.ndarray:
    """Gather convolution windows: NHWC -> ``[N, OH, OW, KH, KW, C]``; flattened, the last three are the K axis.

    Parameters
    ----------
    padding
        ``((top, bottom), (left, right))`` in pixels, filled with ``pad_value``.
    """
    x = np.asarray(x)
    if x.ndim != 4:
        raise ValueError(f"x must be NHWC, not of shape {x.shape}")
    n, h, w, c = x.shape
    oh = conv_output_size(h, kernel[0], stride[0], dilation[0], padding[0])
    ow = conv_output_size(w, kernel[1], stride[1], dilation[1], padding[1])
    padded = np.pad(x, ((0, 0), *padding, (0, 0)), constant_values=pad_value)
    out = np.empty((n, oh, ow, *kernel, c), dtype=x.dtype)
    for ky in range(kernel[0]):
        for kx in range(kernel[1]):
            y0, x0 = ky * dilation[0], kx * dilation[1]
            rows = slice(y0, y0 + (oh - 1) * stride[0] + 1, stride[0])
            cols = slice(x0, x0 + (ow - 1) * stride[1] + 1, stride[1])
            out[:, :, :, ky, kx] = padded[:, rows, cols]
    return out


def conv2d_int8(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: Padding = ((0, 0), (0, 0)),
    zero_point: int = 0,
    groups: int = 1,
) -> np.ndarray:
    """Convolve NHWC int8 with HWIO int8 weights into int32 NHWC; raw products, padding reads ``zero_point``.

    With ``bias = fold_zero_point(bias, weights, zero_point)`` the result is ``sum((x - zero_point) * w) + bias``.

    Parameters
    ----------
    weights
        ``[KH, KW, C / groups, O]``; ``groups == C`` is a depthwise convolution.
    """
    x, weights = require_dtype("x", x, np.int8), require_dtype("weights", weights, np.int8)
    if x.ndim != 4 or weights.ndim != 4:
        raise ValueError(f"conv2d needs x NHWC and weights HWIO, not {x.shape} and {weights.shape}")
    kh, kw, ci, co = weights.shape
    if groups < 1 or x.shape[3] != ci * groups or co % groups:
        raise ValueError(f"x with {x.shape[3]} channels does not fit weights {weights.shape} in {groups} groups")
    zp = int(require_zero_point("zero_point", zero_point))
    cols = im2col(x, (kh, kw), stride, dilation, padding, zp)
    n, oh, ow = cols.shape[:3]
    out = np.empty((n, oh, ow, co), dtype=np.int32)
    per_group = co // groups
    for g in range(groups):
        part = cols[..., g * ci : (g + 1) * ci].reshape(-1, kh * kw * ci)
        span = slice(g * per_group, (g + 1) * per_group)
        kernel = weights[..., span].reshape(-1, per_group)
        out[..., span] = matmul_int8(part, kernel, None if bias is None else bias[span]).reshape(n, oh, ow, per_group)
    return out
