"""fp32 sums and bf16 products in integers alone, from the contract: quick enough for a million of them.

Every finite fp32 number is a multiple of 2^-149 and every product of two bf16 numbers one of 2^-266, so values are
Python integers in these units. Operands and results are bit patterns.
"""

from __future__ import annotations

FP32_NAN, BF16_NAN, FP32_INF, SIGN = 0x7FC00000, 0x7FC0, 0x7F800000, 0x80000000


def _scaled(bits: int) -> int:
    """A finite fp32 number times 2^149; what is subnormal counts as zero."""
    exp = bits >> 23 & 255
    return 0 if exp == 0 else (bits & 0x7FFFFF | 0x800000) << exp - 1


def add(a: int, b: int) -> int:
    """``a + b`` in fp32."""
    if bits_nan(a) or bits_nan(b):
        return FP32_NAN
    a_inf, b_inf = a & 0x7FFFFFFF == FP32_INF, b & 0x7FFFFFFF == FP32_INF
    if a_inf or b_inf:
        return FP32_NAN if a_inf and b_inf and a != b else a if a_inf else b
    total = (-_scaled(a) if a & SIGN else _scaled(a)) + (-_scaled(b) if b & SIGN else _scaled(b))
    if total == 0:
        # Zero operands with one sign keep it; anything else that cancels is +0.
        return SIGN if a & b & SIGN and _scaled(a) == 0 else 0
    return (SIGN if total < 0 else 0) | _round(abs(total), 24)


def _round(magnitude: int, places: int) -> int:
    """A positive multiple of 2^-149 to nearest even on `places` significant bits, as fp32 without a sign; flushed."""
    shift = magnitude.bit_length() - places
    if shift > 0:
        kept, rest = divmod(magnitude, 1 << shift)
        if 2 * rest > 1 << shift or (2 * rest == 1 << shift and kept & 1):
            kept += 1
        magnitude = kept << shift
    length = magnitude.bit_length()
    if length < 24:  # below 2^-126
        return 0
    if length > 277:  # 2^128 and beyond
        return FP32_INF
    return length - 23 << 23 | (magnitude >> length - 24) & 0x7FFFFF


def bits_nan(bits: int) -> bool:
    """Whether an fp32 pattern is any NaN."""
    return bits & 0x7FFFFFFF > FP32_INF


def to_bf16(bits: int) -> int:
    """An fp32 pattern to bf16."""
    if bits_nan(bits):
        return BF16_NAN
    if bits & 0x7FFFFFFF == FP32_INF:
        return bits >> 16
    value = _scaled(bits)
    return (bits & SIGN | (_round(value, 8) if value else 0)) >> 16


def from_bf16(bits: int) -> int:
    """A bf16 pattern to fp32: subnormals flush, one NaN."""
    wide = bits << 16
    return FP32_NAN if bits_nan(wide) else wide & SIGN if bits >> 7 & 255 == 0 else wide


def mul(a: int, b: int) -> int:
    """The product of two bf16 numbers in fp32."""
    sign = (a ^ b) << 16 & SIGN
    a_exp, b_exp, a_man, b_man = a >> 7 & 255, b >> 7 & 255, a & 127, b & 127
    if (a_exp == 255 and a_man) or (b_exp == 255 and b_man):
        return FP32_NAN
    if a_exp == 255 or b_exp == 255:
        return FP32_NAN if a_exp == 0 or b_exp == 0 else sign | FP32_INF
    if a_exp == 0 or b_exp == 0:
        return sign
    # In units of 2^-266: 2^(127 + 7) for each operand, its least exponent being 1.
    product = (a_man | 128) * (b_man | 128) << a_exp + b_exp - 2
    if product < 1 << 266 - 126:
        return sign
    if product >= 1 << 266 + 128:
        return sign | FP32_INF
    assert product % (1 << 266 - 149) == 0, "exact in fp32"
    return sign | _round(product >> 266 - 149, 24)


def column(a: list[int], w: list[int], rows: int) -> int:
    """The sum at the foot of a column of `rows` rows; operands behind the end of the lists are zero."""
    total = 0
    for row in range(rows):
        total = add(total, mul(a[row], w[row]) if row < len(a) else mul(0, 0))
    return total
