"""Floating point by exact rationals, for any format: what golden numerics and the fp units are checked against."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class ExactFloat:
    """Operations on bit patterns: subnormal operands read as zero, IEEE nearest even, then flush, one NaN."""

    exp_bits: int
    man_bits: int

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.exp_bits + self.man_bits)

    @property
    def inf(self) -> int:
        """Positive infinity."""
        return (2**self.exp_bits - 1) << self.man_bits

    @property
    def nan(self) -> int:
        """The one NaN of results."""
        return self.inf | 1 << (self.man_bits - 1)

    @property
    def bias(self) -> int:
        """Exponent bias."""
        return 2 ** (self.exp_bits - 1) - 1

    def is_nan(self, bits: int) -> bool:
        """Whether the pattern is any NaN."""
        return bits & (self.sign - 1) > self.inf

    def is_inf(self, bits: int) -> bool:
        """Whether the pattern is an infinity."""
        return bits & (self.sign - 1) == self.inf

    def decode(self, bits: int) -> Fraction:
        """Value of a finite pattern; subnormals are zero."""
        exp = (bits & (self.sign - 1)) >> self.man_bits
        if exp == 0:
            return Fraction(0)
        man = bits & ((1 << self.man_bits) - 1) | 1 << self.man_bits
        value = Fraction(man) * Fraction(2) ** (exp - self.bias - self.man_bits)
        return -value if bits & self.sign else value

    def encode(self, value: Fraction, zero_sign: int = 0) -> int:
        """Round on the IEEE grid, subnormals included, nearest even; then flush."""
        sign = self.sign if value < 0 else 0 if value > 0 else zero_sign
        magnitude, least = abs(value), 1 - self.bias
        exp = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 1, least)
        while magnitude >= Fraction(2) ** (exp + 1):  # the estimate is never too large, at most one too small
            exp += 1
        steps = round(magnitude / Fraction(2) ** (exp - self.man_bits))  # round() of a Fraction is half to even
        if steps == 2 << self.man_bits:
            steps, exp = 1 << self.man_bits, exp + 1
        if exp > self.bias:
            return sign | self.inf
        if steps < 1 << self.man_bits:
            return sign
        return sign | (exp + self.bias) << self.man_bits | steps - (1 << self.man_bits)

    def add(self, a: int, b: int) -> int:
        """``a + b``."""
        if self.is_nan(a) or self.is_nan(b) or (self.is_inf(a) and self.is_inf(b) and a != b):
            return self.nan
        if self.is_inf(a) or self.is_inf(b):
            return a if self.is_inf(a) else b
        total = self.decode(a) + self.decode(b)
        negative_zero = self.decode(a) == 0 and self.decode(b) == 0 and a & b & self.sign
        return self.encode(total, self.sign if negative_zero else 0)

    def mul(self, a: int, b: int) -> int:
        """``a * b``."""
        sign = (a ^ b) & self.sign
        if self.is_nan(a) or self.is_nan(b):
            return self.nan
        if self.is_inf(a) or self.is_inf(b):
            other = b if self.is_inf(a) else a
            return self.nan if not self.is_inf(other) and self.decode(other) == 0 else sign | self.inf
        return self.encode(self.decode(a) * self.decode(b), sign)

    def to_int(self, bits: int, width: int) -> int:
        """Round to the nearest ``width``-bit signed integer, ties to even, saturating; NaN becomes 0."""
        low, high = -(2 ** (width - 1)), 2 ** (width - 1) - 1
        if self.is_nan(bits):
            return 0
        if self.is_inf(bits):
            return low if bits & self.sign else high
        return min(max(round(self.decode(bits)), low), high)
