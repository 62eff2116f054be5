"""Requantise dialect ``fixed``: an int32 multiplier and a right shift, with one rounding.

The formula is that of TFLite's ``MultiplyByQuantizedMultiplier`` built with ``TFLITE_SINGLE_ROUNDING``. A pair
``(m, n)`` stands for the real factor ``m * 2^-n``; TFLite's ``shift`` is ``31 - n``.
"""

from __future__ import annotations

import math

import numpy as np

from sluice.golden.numerics_int import INT32_MAX, INT32_MIN, clamp_int8, require_int32_range

SHIFT_MIN, SHIFT_MAX = 1, 62
ROUNDINGS = ("half_up", "away")
AVG_COUNT_MAX = 2**22


def rescale_fixed(
    acc: np.ndarray, multiplier: np.ndarray | int, shift: np.ndarray | int, rounding: str = "half_up"
) -> np.ndarray:
    """``acc * multiplier * 2^-shift``, rounded once and saturated to int32.

    ``half_up``: ``(acc*m + 2^(n-1)) >> n`` with an arithmetic shift, so ties go towards +infinity.
    ``away``: ``sign(acc) * ((|acc|*m + 2^(n-1)) >> n)``, so ties go away from zero (for m >= 0).

    Every intermediate fits int64: ``|acc*m| <= 2^62`` and ``2^(n-1) <= 2^61``.

    Parameters
    ----------
    acc
        Integers that fit int32, any shape.
    multiplier
        Integers that fit int32; broadcast against ``acc``, so a vector is per last-axis channel.
    shift
        n, 1..62; broadcast likewise.
    """
    acc, m = require_int32_range("acc", acc), require_int32_range("multiplier", multiplier)
    n = require_int32_range("shift", shift)
    if n.size and (n.min() < SHIFT_MIN or n.max() > SHIFT_MAX):
        raise ValueError(f"shift must be in {SHIFT_MIN}..{SHIFT_MAX}, not {n.min()}..{n.max()}")
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be one of {ROUNDINGS}, not {rounding!r}")
    half = np.left_shift(np.int64(1), n - 1)
    if rounding == "half_up":
        y = (acc * m + half) >> n
    else:
        y = np.sign(acc) * ((np.abs(acc) * m + half) >> n)
    return np.clip(y, INT32_MIN, INT32_MAX).astype(np.int32)


def requantize_fixed(
    acc: np.ndarray,
    multiplier: np.ndarray | int,
    shift: np.ndarray | int,
    zero_point: int = 0,
    lo: int = -128,
    hi: int = 127,
    *,
    rounding: str = "half_up",
) -> np.ndarray:
    """Requantise int32 to int8: :func:`rescale_fixed`, plus the zero point, clamped to ``[lo, hi]``."""
    return clamp_int8(rescale_fixed(acc, multiplier, shift, rounding), zero_point, lo, hi)


def quantize_multiplier(real: float) -> tuple[int, int]:
    """Split a real factor into ``(m, n)`` with ``m`` in [2^30, 2^31), as TFLite's ``QuantizeMultiplier`` does.

    Zero and factors below 2^-32 become ``(0, 31)``; factors from 2^30 up saturate to ``(2^31 - 1, 1)``.
    """
    real = float(real)
    if not math.isfinite(real) or real < 0:
        raise ValueError(f"multiplier must be finite and >= 0, not {real}")
    if real == 0.0:
        return 0, 31
    fraction, exponent = math.frexp(real)
    # fraction * 2^31 < 2^31 has at most 22 fraction bits, so adding 0.5 is exact: round half away, as std::round.
    m = math.floor(fraction * 2.0**31 + 0.5)
    if m == 2**31:
        m, exponent = 2**30, exponent + 1
    if exponent < -31:
        return 0, 31
    if exponent > 30:
        return 2**31 - 1, 1
    return m, 31 - exponent


def avg_multiplier(count: int) -> tuple[int, int]:
    """Return ``(m, n)`` that divides a sum of ``count`` int8 values exactly, rounding half away from zero.

    ``rescale_fixed(s, m, n, "away")`` equals ``s / count`` rounded half away for every ``|s| <= 128 * count``.

    Proof. Let k = floor(log2(count)). If count = 2^k: m = 2^30, n = 30 + k, m * 2^-n = 1/count exactly.
    Otherwise n = 31 + k and m = ceil(2^n / count) = (2^n + e) / count with 0 < e < count; m < 2^31 since count > 2^k.
    For s >= 0 the formula is floor(x + d) with x = s/count + 1/2 and d = s*e / (count * 2^n). x is a multiple of
    1/(2*count), so floor(x + d) = floor(x), the wanted result, as soon as d < 1/(2*count), that is 2*s*e < 2^n.
    From s <= 128*count, e < count and count < 2^(k+1): 2*s*e < 2^8 * count^2 < 2^(10+2k) <= 2^(31+k) for k <= 21.
    Negative sums are the mirror image.

    Parameters
    ----------
    count
        Number of values summed, 1..2^22.
    """
    if not 1 <= count <= AVG_COUNT_MAX:
        raise ValueError(f"count must be in 1..{AVG_COUNT_MAX}, not {count}")
    k = int(count).bit_length() - 1
    if count == 1 << k:
        return 2**30, 30 + k
    n = 31 + k
    return -(-(1 << n) // int(count)), n


def mean_multiplier(input_scale: float, output_scale: float, count: int) -> tuple[int, int]:
    """Return ``(m, n)`` for MEAN over ``count`` values, as TFLite's ``QuantizedMeanOrSum`` folds 1/count.

    ``m = (quantize_multiplier(si / so).m << k) / count`` with ``k = floor(log2(count))`` (truncated, and limited so
    that n stays <= 62), so MEAN is one half-up rescale of ``sum(x - zi)``.
    """
    if count < 1:
        raise ValueError(f"count must be >= 1, not {count}")
    m, n = quantize_multiplier(float(np.float32(input_scale)) / float(np.float32(output_scale)))
    k = min(int(count).bit_length() - 1, 32, SHIFT_MAX - n)
    return (m << k) // int(count), n + k
