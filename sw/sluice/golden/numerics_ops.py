"""ADD, MUL, pooling, MEAN and activation bounds, per requantise dialect.

Each is built from the two rescales alone, because that is what the vector unit has. Sources: TFLite's int8 reference
kernels (``fixed``), ONNX QLinear* and XNNPACK (``float``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sluice.golden.numerics_fixed import (
    avg_multiplier,
    quantize_multiplier,
    requantize_fixed,
    rescale_fixed,
)
from sluice.golden.numerics_float import (
    fp32_add,
    fp32_mul,
    fp32_to_int32,
    int32_to_fp32,
    requantize_float,
    require_scale,
)
from sluice.golden.numerics_int import (
    INT32_MAX,
    INT32_MIN,
    Padding,
    clamp_int8,
    conv_output_size,
    im2col,
    require_dtype,
    require_zero_point,
)

ADD_LEFT_SHIFT = 20
NO_PADDING: Padding = ((0, 0), (0, 0))


class AddMultipliers(NamedTuple):
    """The three fixed-point factors of a quantised ADD, each ``(m, n)``."""

    a: tuple[int, int]
    b: tuple[int, int]
    out: tuple[int, int]


def _positive(name: str, scale: float) -> float:
    value = float(require_scale(name, scale))
    if value <= 0:
        raise ValueError(f"{name} must be > 0, not {scale!r}")
    return value


def _zero_based(name: str, q: np.ndarray, zero_point: int) -> np.ndarray:
    return require_dtype(name, q, np.int8).astype(np.int64) - require_zero_point(f"{name} zero point", zero_point)


def add_multipliers(scale_a: float, scale_b: float, scale_out: float) -> AddMultipliers:
    """Derive the factors of :func:`add_fixed` from fp32 scales, as TFLite's ADD ``Prepare`` does.

    ``2*max(sa, sb)`` is the common scale of the shifted inputs; the output factor undoes ``ADD_LEFT_SHIFT``.
    """
    sa, sb = _positive("scale_a", scale_a), _positive("scale_b", scale_b)
    twice_max = 2.0 * max(sa, sb)
    out = twice_max / (2.0**ADD_LEFT_SHIFT * _positive("scale_out", scale_out))
    if out >= 1.0:
        raise ValueError(f"scale_out {scale_out} is too small for input scales {scale_a}, {scale_b}")
    return AddMultipliers(*(quantize_multiplier(real) for real in (sa / twice_max, sb / twice_max, out)))


def add_fixed(
    qa: np.ndarray,
    qb: np.ndarray,
    za: int,
    zb: int,
    multipliers: AddMultipliers,
    zero_point: int,
    lo: int = -128,
    hi: int = 127,
) -> np.ndarray:
    """Add two int8 tensors as TFLite does, each of its three rescales rounding once, half up.

    ``in_i = rescale((q_i - z_i) << 20)``, their int32 sum (saturating; factors from :func:`add_multipliers` never
    reach that), rescaled to the output, plus zero point, clamped.
    """
    in_a = rescale_fixed(_zero_based("qa", qa, za) << ADD_LEFT_SHIFT, *multipliers.a).astype(np.int64)
    in_b = rescale_fixed(_zero_based("qb", qb, zb) << ADD_LEFT_SHIFT, *multipliers.b).astype(np.int64)
    return requantize_fixed(np.clip(in_a + in_b, INT32_MIN, INT32_MAX), *multipliers.out, zero_point, lo, hi)


def add_ratios(scale_a: float, scale_b: float, scale_out: float) -> tuple[np.float32, np.float32]:
    """Return ``fp32(sa / so)`` and ``fp32(sb / so)``, the factors of :func:`add_float`."""
    so = _positive("scale_out", scale_out)
    ratio_a, ratio_b = _positive("scale_a", scale_a) / so, _positive("scale_b", scale_b) / so
    return np.float32(require_scale("sa / so", ratio_a)), np.float32(require_scale("sb / so", ratio_b))


def add_float(
    qa: np.ndarray,
    qb: np.ndarray,
    za: int,
    zb: int,
    ratio_a: float,
    ratio_b: float,
    zero_point: int,
    lo: int = -128,
    hi: int = 127,
) -> np.ndarray:
    """Add two int8 tensors in fp32: ``(qa-za)*ra + (qb-zb)*rb``, every step rounded, then to int8."""
    t = fp32_mul(int32_to_fp32(_zero_based("qa", qa, za)), require_scale("ratio_a", ratio_a))
    u = fp32_mul(int32_to_fp32(_zero_based("qb", qb, zb)), require_scale("ratio_b", ratio_b))
    return clamp_int8(fp32_to_int32(fp32_add(t, u)), zero_point, lo, hi)


def mul_fixed(
    qa: np.ndarray,
    qb: np.ndarray,
    za: int,
    zb: int,
    multiplier: int,
    shift: int,
    zero_point: int,
    lo: int = -128,
    hi: int = 127,
) -> np.ndarray:
    """Multiply two int8 tensors: ``(qa-za)*(qb-zb)`` requantised; ``(m, n) = quantize_multiplier(sa*sb/so)``."""
    product = _zero_based("qa", qa, za) * _zero_based("qb", qb, zb)
    return requantize_fixed(product, multiplier, shift, zero_point, lo, hi)


def mul_float(
    qa: np.ndarray, qb: np.ndarray, za: int, zb: int, scale: float, zero_point: int, lo: int = -128, hi: int = 127
) -> np.ndarray:
    """Multiply two int8 tensors: the exact ``(qa-za)*(qb-zb)`` requantised by ``fp32(sa*sb/so)``."""
    return requantize_float(_zero_based("qa", qa, za) * _zero_based("qb", qb, zb), scale, zero_point, lo, hi)


def _check_window(kernel: tuple[int, int], padding: Padding) -> None:
    for size, pad in zip(kernel, padding, strict=True):
        if max(pad) >= size:
            raise ValueError(f"pooling padding {padding} must be smaller than the kernel {kernel}")


def max_pool_int8(
    x: np.ndarray,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: Padding = NO_PADDING,
    lo: int = -128,
    hi: int = 127,
) -> np.ndarray:
    """Take the maximum of each NHWC window, padding excluded, clamped to ``[lo, hi]``; the same in both dialects."""
    _check_window(kernel, padding)
    windows = im2col(require_dtype("x", x, np.int8), kernel, stride, padding=padding, pad_value=-128)
    return clamp_int8(windows.max(axis=(3, 4)), 0, lo, hi)


def window_sum(
    x: np.ndarray,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: Padding = NO_PADDING,
    zero_point: int = 0,
) -> np.ndarray:
    """Sum ``x - zero_point`` over each NHWC window, padding counting nothing; int32 NHWC."""
    _check_window(kernel, padding)
    based = _zero_based("x", x, zero_point)
    return im2col(based, kernel, stride, padding=padding).sum(axis=(3, 4)).astype(np.int32)


def window_count(
    size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], padding: Padding = NO_PADDING
) -> np.ndarray:
    """Count the pixels of each window that lie inside an image of ``size`` (height, width); int64 ``[OH, OW]``."""
    axes = []
    for length, k, s, pad in zip(size, kernel, stride, padding, strict=True):
        start = np.arange(conv_output_size(length, k, s, 1, pad)) * s - pad[0]
        axes.append(np.minimum(start + k, length) - np.maximum(start, 0))
    return np.outer(*axes)


def avg_pool_fixed(
    x: np.ndarray,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: Padding = NO_PADDING,
    lo: int = -128,
    hi: int = 127,
) -> np.ndarray:
    """Average each NHWC window as TFLite does: sum / pixels inside the image, rounded half away from zero.

    Input and output share scale and zero point, so the zero point needs no handling.
    """
    total = window_sum(x, kernel, stride, padding)
    counts = window_count(np.shape(x)[1:3], kernel, stride, padding)
    pairs = np.array([avg_multiplier(int(c)) for c in counts.flat], dtype=np.int64).reshape(*counts.shape, 2)
    return requantize_fixed(total, pairs[..., :1], pairs[..., 1:], 0, lo, hi, rounding="away")


def average_scale(input_scale: float, output_scale: float, count: int) -> np.float32:
    """Return ``fp32(si / (so * count))``, computed in float64, the factor of an average in dialect ``float``."""
    if count < 1:
        raise ValueError(f"count must be >= 1, not {count}")
    real = _positive("input_scale", input_scale) / (_positive("output_scale", output_scale) * count)
    return np.float32(require_scale("si / (so * count)", real))


def avg_pool_float(
    x: np.ndarray,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: Padding = NO_PADDING,
    *,
    input_scale: float,
    output_scale: float,
    input_zero_point: int,
    zero_point: int,
    count_include_pad: bool = False,
    lo: int = -128,
    hi: int = 127,
) -> np.ndarray:
    """Average each NHWC window: ``sum(x - zi)`` requantised by :func:`average_scale` of its pixel count.

    With ``count_include_pad`` (ONNX) padding counts as real zeros; otherwise only pixels inside the image count.
    """
    total = window_sum(x, kernel, stride, padding, input_zero_point)
    counts = window_count(np.shape(x)[1:3], kernel, stride, padding)
    if count_include_pad:
        counts = np.full_like(counts, kernel[0] * kernel[1])
    scales = np.array([average_scale(input_scale, output_scale, int(c)) for c in counts.flat], dtype=np.float32)
    return requantize_float(total, scales.reshape(*counts.shape, 1), zero_point, lo, hi)


def _mean_sum(x: np.ndarray, axis: int | tuple[int, ...], zero_point: int) -> np.ndarray:
    return _zero_based("x", x, zero_point).sum(axis=axis)


def mean_fixed(
    x: np.ndarray,
    axis: int | tuple[int, ...],
    input_zero_point: int,
    multiplier: int,
    shift: int,
    zero_point: int,
    lo: int = -128,
    hi: int = 127,
) -> np.ndarray:
    """MEAN as TFLite's ``QuantizedMeanOrSum``: ``sum(x - zi)`` rescaled half up by :func:`mean_multiplier`."""
    return requantize_fixed(_mean_sum(x, axis, input_zero_point), multiplier, shift, zero_point, lo, hi)


def mean_float(
    x: np.ndarray,
    axis: int | tuple[int, ...],
    input_zero_point: int,
    scale: float,
    zero_point: int,
    lo: int = -128,
    hi: int = 127,
) -> np.ndarray:
    """MEAN in fp32: ``sum(x - zi)`` requantised by ``average_scale(si, so, count)``."""
    return requantize_float(_mean_sum(x, axis, input_zero_point), scale, zero_point, lo, hi)


def activation_bounds(kind: str, scale: float, zero_point: int) -> tuple[int, int]:
    """Return the clamp bounds of a fused activation: ``none``, ``relu``, ``relu6`` or ``relu_n1_to_1``.

    TFLite's ``CalculateActivationRangeQuantized``: a real bound f becomes ``zp + round_half_away(fp32(f / scale))``.
    """
    real = {"none": (None, None), "relu": (0.0, None), "relu6": (0.0, 6.0), "relu_n1_to_1": (-1.0, 1.0)}
    if kind not in real:
        raise ValueError(f"activation must be one of {sorted(real)}, not {kind!r}")
    scale32, zp = np.float32(_positive("scale", scale)), int(require_zero_point("zero_point", zero_point))

    def quantise(f: float) -> int:
        with np.errstate(over="ignore"):
            ratio = float(np.float32(f) / scale32)
        # Beyond 2^9 every bound is cut to int8 anyway; cutting first keeps an infinite ratio out of int().
        ratio = min(max(ratio, -512.0), 512.0)
        return zp + int(np.copysign(np.floor(abs(ratio) + 0.5), ratio))

    low, high = real[kind]
    lo = -128 if low is None else max(-128, quantise(low))
    hi = 127 if high is None else min(127, quantise(high))
    return lo, hi
