"""The functions of the vector lanes, bit for bit: exp, log, tanh, sigmoid, erf, gelu, silu, reciprocal, rsqrt, sqrt.

One datapath serves all of them, in integers of at most 62 bits (widths are in the comments; Q a.b is a bits before and
b behind the point). In the words of ``docs/functions.md``:

A. exponent: t = |x| log2(e), or x^2 / 2 log2(e) for gelu; 2^f of its fraction from the table, and 2^n of its integer
B. table: a cubic in the mantissa, in |x| or in 2^(n + f)
C. product of A and B, complement for gelu, product with x, sum with a multiple of ln 2 for log
D. normalise, round once, to fp32 or to bf16, flush
"""

from __future__ import annotations

import numpy as np

from sluice.golden.numerics_float import FP32_NAN, bf16_to_fp32, fp32_bits, fp32_from_bits
from sluice_hw.functions import (
    COEFFICIENT_BITS,
    INDEX_BITS,
    LN2,
    LN2_BITS,
    LOG2E,
    LOG2E_BITS,
    SECTIONS,
    Z_BITS,
    Function,
    base,
    coefficients,
)

__all__ = [
    "Function",
    "apply",
    "apply_bf16",
    "erf",
    "exp",
    "gelu",
    "log",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "silu",
    "sqrt",
    "tanh",
]

_INF = 0x7F800000
_SIGN = 0x80000000
_CHUNK = 1 << 14
_AX_BITS = 32  # fraction bits of |x| or x^2 / 2, Q8.32
_CUT = 18  # the low part of LOG2E: no product has more than 62 bits

_EXPONENTIAL = (Function.EXP, Function.SIGMOID, Function.SILU, Function.GELU)
_SECTION = {
    Function.EXP: None, Function.LOG: "log", Function.TANH: "tanh", Function.SIGMOID: "reciprocal",
    Function.ERF: "erf", Function.GELU: "tail", Function.SILU: "reciprocal", Function.RECIPROCAL: "reciprocal",
    Function.RSQRT: "rsqrt", Function.SQRT: "rsqrt",
}  # fmt: skip
#: Sections that begin with [0, 1) and go on in octaves.
_OCTAVES = ("tanh", "erf", "tail")


def apply(function: Function, x: np.ndarray, *, bf16: bool = False) -> np.ndarray:
    """``function`` of every value.

    Parameters
    ----------
    x
        float32 values or uint32 bit patterns, any shape; subnormals read as zero.
    bf16
        Round once, to bf16, instead of to fp32. The result is fp32 with a bf16 value.

    Returns
    -------
    numpy.ndarray
        float32, as ``x`` in shape; no subnormals, one NaN.
    """
    function = Function(function)
    bits = fp32_bits(x)
    flat = bits.reshape(-1)
    out = np.empty(flat.shape, np.uint32)
    for start in range(0, len(flat), _CHUNK):
        out[start : start + _CHUNK] = _apply(function, flat[start : start + _CHUNK].astype(np.int64), bf16)
    return fp32_from_bits(out.reshape(bits.shape))


def apply_bf16(function: Function, bits: np.ndarray) -> np.ndarray:
    """``function`` from bf16 patterns to bf16 patterns (uint16), rounded once."""
    return (fp32_bits(apply(function, bf16_to_fp32(bits), bf16=True)) >> np.uint32(16)).astype(np.uint16)


def _cubic(row: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Value of the segments ``row`` at r, Q1.24, signed: Q2.32."""
    c0, c1, c2, c3 = _TABLE[:, row]
    shift = Z_BITS - INDEX_BITS - 1
    return c0 + ((c1 + ((c2 + (c3 * r >> shift)) * r >> shift)) * r >> shift)


_TABLE = np.array(coefficients(), np.int64).T.copy()


def _segment(unit: np.ndarray | int, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and r of z, Q0.30, in a unit of the table."""
    low = Z_BITS - INDEX_BITS
    return (unit << INDEX_BITS) + (z >> low), (z & ((1 << low) - 1)) - (1 << (low - 1))


def _apply(function: Function, bits: np.ndarray, bf16: bool) -> np.ndarray:
    sign, stored, man = bits >> 31, bits >> 23 & 0xFF, bits & 0x7FFFFF
    zero = stored == 0
    e = stored - 127
    sig = np.where(zero, 0, man | 1 << 23)  # Q1.23
    one = np.int64(1) << 30

    # A: 2^n ua = 2^(+-t)
    ua, n = np.broadcast_to(np.int64(1) << COEFFICIENT_BITS, bits.shape), np.zeros_like(bits)
    if function in _EXPONENTIAL:
        squared = function is Function.GELU
        top = sig * sig >> 8 if squared else sig << 16  # 40 bits, the top one worth 2^e or 2^2e
        distance = 7 - (2 * e if squared else e)
        ax = top >> np.clip(distance, 0, 63)  # Q8.32
        high, low = LOG2E >> _CUT, LOG2E & ((1 << _CUT) - 1)
        t = (ax * high + (ax * low >> _CUT)) >> (_AX_BITS + LOG2E_BITS - _CUT - Z_BITS)  # Q9.30
        t = np.where(distance < 0, (1 << 39) - 1, t)
        v = np.where((sign == 0) & (function is Function.EXP), t, -t)
        n = v >> Z_BITS
        ua = _cubic(*_segment(base("exp2"), v & ((1 << Z_BITS) - 1)))  # Q1.32
    near = ua >> np.clip(2 - n, 0, 63)  # 2^n ua, Q1.30, for n <= 0

    # B: a cubic
    section = _SECTION[function]
    unit, saturated = base(section) if section else 0, np.zeros_like(zero)
    z = man << (Z_BITS - 23)
    octave = np.zeros_like(e)
    if section in _OCTAVES:
        last = SECTIONS[section] - 2
        z = np.where(e < 0, sig << (Z_BITS - 23) >> np.clip(-e, 0, 63), z)
        octave = np.where(e < 0, 0, np.minimum(e, last) + 1)
        unit = unit + octave
        saturated = (e > last) & (section != "tail")
    elif function in (Function.SIGMOID, Function.SILU):
        z = np.minimum(near, one - 1)
    elif section == "rsqrt":
        unit = unit + (e & 1)
    p = _cubic(*_segment(unit, z)) >> 1 if section else np.broadcast_to(one << 1, bits.shape)  # Q1.31
    p = np.where(saturated, one << 1, p)

    # C: products
    a = np.broadcast_to(one, bits.shape)  # Q1.30
    exponent = np.zeros_like(e)
    if function is Function.EXP:
        a, exponent = ua >> 2, n
    elif function in (Function.SIGMOID, Function.SILU, Function.GELU):
        positive = near if function is Function.GELU else a
        a, exponent = np.where(sign == 1, ua >> 2, positive), np.where(sign == 1, n, 0)
    w = a * p >> 31  # Q1.30
    if function is Function.GELU:
        exponent = np.where(sign == 1, exponent - octave, exponent)
        w = np.where(sign == 1, w, one - (w >> octave))
    b = np.full_like(bits, 1 << 23)  # Q1.23
    times_x = np.zeros_like(zero)
    if function in (Function.SILU, Function.GELU, Function.SQRT):
        times_x = ~times_x
    elif section in ("tanh", "erf"):
        times_x = e < 0
    b = np.where(times_x, sig, b)
    if function in (Function.RSQRT, Function.SQRT):
        half = e >> 1
        exponent = half + (e & 1) if function is Function.SQRT else -half
    elif function is Function.RECIPROCAL:
        exponent = -e
    else:
        exponent = exponent + np.where(times_x, e, 0)
    out_sign = sign if function not in (Function.EXP, Function.SIGMOID) else np.zeros_like(sign)
    if function is Function.LOG:
        upper = man >> 22  # m in [3/2, 2) is halved
        total = np.where(upper == 1, man - (1 << 23), man << 1) * w  # m - 1 in Q0.24, times Q1.30
        total = total + ((e + upper) * LN2 << (54 - LN2_BITS))
        out_sign, magnitude = (total < 0).astype(np.int64), np.abs(total)
    else:
        magnitude = b * w << 1  # Q8.54

    # D: normalise, round, pack
    result = _round(out_sign, exponent, magnitude, bf16)

    # Special values
    nan, inf = (stored == 255) & (man != 0), (stored == 255) & (man == 0)
    negative = (sign == 1) & ~zero
    infinity = sign << 31 | _INF
    if function is Function.LOG:
        result = np.where(inf, _INF, np.where(zero, _SIGN | _INF, result))
    elif function is Function.RECIPROCAL:
        result = np.where(zero, infinity, result)
    elif function is Function.RSQRT:
        result = np.where(zero, infinity, np.where(inf, 0, result))
    elif function is Function.SQRT:
        result = np.where(inf, _INF, result)
    if function in (Function.LOG, Function.RSQRT, Function.SQRT):
        nan = nan | negative
    return np.where(nan, FP32_NAN, result).astype(np.uint32)


def _round(sign: np.ndarray, exponent: np.ndarray, magnitude: np.ndarray, bf16: bool) -> np.ndarray:
    """Bits of 2^exponent times magnitude (Q8.54), nearest even to fp32 or bf16, flushed as fp32 is."""
    # frexp of a float64 is exact enough to count the leading zeros where both halves are small.
    high = magnitude >> 31
    length = np.where(high > 0, np.frexp(high.astype(np.float64))[1] + 31, np.frexp(magnitude.astype(np.float64))[1])
    shift = 62 - length
    normal = magnitude << np.where(magnitude == 0, 0, shift)
    stored = exponent + 7 - shift + 127
    dropped = 54 if bf16 else 38  # 8 or 24 bits of 62 are left
    kept = normal >> dropped
    guard = normal >> (dropped - 1) & 1
    sticky = (normal & ((1 << (dropped - 1)) - 1)) != 0
    # 2^-126 - 2^-150 and above rounds to a normal number in fp32, and stays; for bf16 the same bound holds.
    rescued = (stored == 0) & (normal >> 38 == (1 << 24) - 1)
    rounded = kept + ((guard & (sticky | kept & 1)) | rescued)
    width = 62 - dropped
    stored_up = stored + (rounded >> width)
    fraction = (rounded & ((1 << (width - 1)) - 1)) << (24 - width)  # all zero after a carry
    flushed = (magnitude == 0) | (stored < 0) | ((stored == 0) & ~rescued)
    number = np.where(stored_up >= 255, _INF, np.where(flushed, 0, stored_up << 23 | fraction))
    return sign << 31 | number


def exp(x: np.ndarray, *, bf16: bool = False) -> np.ndarray:
    """e^x; see :func:`apply`."""
    return apply(Function.EXP, x, bf16=bf16)


def log(x: np.ndarray, *, bf16: bool = False) -> np.ndarray:
    """Natural logarithm; see :func:`apply`."""
    return apply(Function.LOG, x, bf16=bf16)


def tanh(x: np.ndarray, *, bf16: bool = False) -> np.ndarray:
    """Hyperbolic tangent; see :func:`apply`."""
    return apply(Function.TANH, x, bf16=bf16)


def sigmoid(x: np.ndarray, *, bf16: bool = False) -> np.ndarray:
    """1 / (1 + e^-x); see :func:`apply`."""
    return apply(Function.SIGMOID, x, bf16=bf16)


def erf(x: np.ndarray, *, bf16: bool = False) -> np.ndarray:
    """Error function; see :func:`apply`."""
    return apply(Function.ERF, x, bf16=bf16)


def gelu(x: np.ndarray, *, bf16: bool = False) -> np.ndarray:
    """x / 2 (1 + erf(x / sqrt 2)); see :func:`apply`."""
    return apply(Function.GELU, x, bf16=bf16)


def silu(x: np.ndarray, *, bf16: bool = False) -> np.ndarray:
    """x / (1 + e^-x); see :func:`apply`."""
    return apply(Function.SILU, x, bf16=bf16)


def reciprocal(x: np.ndarray, *, bf16: bool = False) -> np.ndarray:
    """1 / x; see :func:`apply`."""
    return apply(Function.RECIPROCAL, x, bf16=bf16)


def rsqrt(x: np.ndarray, *, bf16: bool = False) -> np.ndarray:
    """1 / sqrt(x); see :func:`apply`."""
    return apply(Function.RSQRT, x, bf16=bf16)


def sqrt(x: np.ndarray, *, bf16: bool = False) -> np.ndarray:
    """Square root; see :func:`apply`."""
    return apply(Function.SQRT, x, bf16=bf16)
