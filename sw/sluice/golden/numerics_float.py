"""fp32 and bf16 by the contract, and requantise dialect ``float``.

NumPy follows the CPU: it keeps subnormals (or not, if someone set the flush flag) and its NaN payloads differ by
machine. So operands are cleaned first, results are cleaned after every step, and no step depends on how the CPU treats
subnormals.

Operands may be float32 arrays or uint32 arrays of bit patterns; results are float32 unless said otherwise.
"""

from __future__ import annotations

import numpy as np

from sluice.golden.numerics_int import INT32_MAX, INT32_MIN, clamp_int8, require_int32_range

FP32_NAN = 0x7FC00000
BF16_NAN = 0x7FC0
_EXP, _MAN, _SIGN = np.uint32(0x7F800000), np.uint32(0x007FFFFF), np.uint32(0x80000000)
_TINY = 2.0**-126
# Halfway between the largest subnormal, 2^-126 - 2^-149, and 2^-126: nearest even rounds it up to a normal number.
_TINY_TIE = 2.0**-126 - 2.0**-150


def fp32_bits(x: np.ndarray) -> np.ndarray:
    """Return the uint32 bit patterns of float32 values; uint32 passes through, any other type is an error."""
    x = np.asarray(x)
    if x.dtype == np.uint32:
        return x
    if x.dtype != np.float32:
        raise TypeError(f"operand must be float32 values or uint32 bit patterns, not {x.dtype}")
    return np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)


def fp32_from_bits(bits: np.ndarray) -> np.ndarray:
    """Return uint32 bit patterns as float32 values."""
    bits = np.asarray(bits)
    if bits.dtype != np.uint32:
        raise TypeError(f"bit patterns must be uint32, not {bits.dtype}")
    return np.ascontiguousarray(bits).view(np.float32).reshape(bits.shape)


def _clean_bits(x: np.ndarray) -> np.ndarray:
    bits = fp32_bits(x)
    exp, man = bits & _EXP, bits & _MAN
    bits = np.where(exp == 0, bits & _SIGN, bits)
    return np.where((exp == _EXP) & (man != 0), np.uint32(FP32_NAN), bits).astype(np.uint32)


def fp32_flush(x: np.ndarray) -> np.ndarray:
    """Turn subnormals into zero with their sign, and every NaN into 0x7FC00000."""
    return fp32_from_bits(_clean_bits(x))


def fp32_add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a + b``: subnormal operands read as zero, nearest even, then flush.

    The sum of two normal numbers that is subnormal is exact, so flushing after rounding loses nothing it could keep.
    """
    with np.errstate(all="ignore"):
        return fp32_flush(np.add(fp32_flush(a), fp32_flush(b), dtype=np.float32))


def fp32_mul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a * b``: subnormal operands read as zero, IEEE nearest even, then flush.

    A product from ``2^-126 - 2^-150`` up rounds to 2^-126, which is normal and stays; anything below becomes zero.
    """
    with np.errstate(all="ignore"):
        exact = fp32_flush(a).astype(np.float64) * fp32_flush(b).astype(np.float64)  # 48 bits: exact
        magnitude = np.abs(exact)
        kept = np.where(magnitude < _TINY_TIE, 0.0, np.where(magnitude < _TINY, _TINY, magnitude))
        return fp32_flush(np.copysign(np.where(np.isnan(exact), exact, kept), exact).astype(np.float32))


def int32_to_fp32(x: np.ndarray) -> np.ndarray:
    """Convert integers that fit int32 to fp32, nearest even."""
    return require_int32_range("x", x).astype(np.float64).astype(np.float32)  # float64 is exact, so one rounding


def fp32_to_int32(x: np.ndarray) -> np.ndarray:
    """Round fp32 to the nearest integer, ties to even, saturating to int32; NaN becomes 0."""
    value = fp32_flush(x).astype(np.float64)
    value = np.where(np.isnan(value), 0.0, value)
    return np.clip(np.rint(value), INT32_MIN, INT32_MAX).astype(np.int64).astype(np.int32)


def fp32_to_bf16(x: np.ndarray) -> np.ndarray:
    """Convert to bf16 bit patterns (uint16): subnormals flush first, nearest even, overflow to infinity."""
    bits = _clean_bits(x).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(bits == FP32_NAN, BF16_NAN, rounded).astype(np.uint16)


def bf16_to_fp32(bits: np.ndarray) -> np.ndarray:
    """Convert bf16 bit patterns (uint16) to fp32; subnormals read as zero with their sign, NaN is canonical."""
    bits = np.asarray(bits)
    if bits.dtype != np.uint16:
        raise TypeError(f"bf16 bit patterns must be uint16, not {bits.dtype}")
    return fp32_flush(bits.astype(np.uint32) << np.uint32(16))


def rescale_float(acc: np.ndarray, scale: np.ndarray | float) -> np.ndarray:
    """``acc * scale`` in dialect ``float``: to fp32, times fp32, to int32, each nearest even; saturating.

    Parameters
    ----------
    acc
        Integers that fit int32, any shape.
    scale
        Finite; rounded to fp32 if it is not; broadcast against ``acc``, so a vector is per last-axis channel.
    """
    return fp32_to_int32(fp32_mul(int32_to_fp32(acc), require_scale("scale", scale)))


def requantize_float(
    acc: np.ndarray, scale: np.ndarray | float, zero_point: int = 0, lo: int = -128, hi: int = 127
) -> np.ndarray:
    """Requantise int32 to int8: :func:`rescale_float`, plus the zero point, clamped to ``[lo, hi]``."""
    return clamp_int8(rescale_float(acc, scale), zero_point, lo, hi)


def require_scale(name: str, scale: np.ndarray | float) -> np.ndarray:
    """Return a scale (or an array of them) as fp32, or raise ``ValueError`` if it is not finite there."""
    with np.errstate(over="ignore"):
        array = np.asarray(scale, dtype=np.float32)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite in fp32, not {scale!r}")
    return array
