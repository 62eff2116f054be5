"""Binary floating-point formats."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.lib import data

__all__ = ["BF16", "FP32", "FloatFormat"]


@dataclass(frozen=True, kw_only=True)
class FloatFormat:
    """An IEEE 754 binary interchange format: sign, biased exponent, fraction with a hidden bit.

    Parameters
    ----------
    exp_bits
        Width of the exponent, >= 3.
    man_bits
        Width of the stored fraction, >= 2 (a quiet NaN and an infinity must differ, and rounding needs an even bit).
    """

    exp_bits: int
    man_bits: int

    def __post_init__(self) -> None:
        for name, least in (("exp_bits", 3), ("man_bits", 2)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an int, not {value!r}")
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")

    @property
    def layout(self) -> data.StructLayout:
        """Bits of a number, least significant field first."""
        return data.StructLayout({"man": self.man_bits, "exp": self.exp_bits, "sign": 1})

    @property
    def bias(self) -> int:
        """What is added to an exponent to store it."""
        return 2 ** (self.exp_bits - 1) - 1

    @property
    def exp_special(self) -> int:
        """Stored exponent of infinities and NaNs."""
        return 2**self.exp_bits - 1

    @property
    def significand_bits(self) -> int:
        """Fraction and hidden bit."""
        return self.man_bits + 1

    @property
    def width(self) -> int:
        """Bits of a number."""
        return 1 + self.exp_bits + self.man_bits

    @property
    def nan_man(self) -> int:
        """Fraction of the one NaN that results have; its sign is 0."""
        return 1 << (self.man_bits - 1)


FP32 = FloatFormat(exp_bits=8, man_bits=23)
BF16 = FloatFormat(exp_bits=8, man_bits=7)
