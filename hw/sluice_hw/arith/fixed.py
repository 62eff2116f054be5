"""Requantise dialect ``fixed``: multiply by an int32 factor, shift right, round once, saturate."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed, unsigned
from amaranth.lib import enum

from .lane import Lane

__all__ = ["RequantFixed", "Rounding"]


class Rounding(enum.Enum, shape=1):
    """Where ties go."""

    HALF_UP = 0
    """Towards plus infinity: ``(acc*mul + 2^(shift-1)) >> shift``."""
    AWAY = 1
    """By the accumulator's sign: ``sign(acc) * ((|acc|*mul + 2^(shift-1)) >> shift)``."""


class RequantFixed(Lane):
    """``acc * mul * 2^-shift``, rounded once, saturated to ``acc_width`` bits.

    Parameters
    ----------
    acc_width
        Bits of the accumulator and of the result, >= 4.
    mul_width
        Bits of the signed factor, >= 2.

    Members
    -------
    acc : In(signed(acc_width))
    mul : In(signed(mul_width))
    shift : In(shift_width)
        1 to ``acc_width + mul_width - 2``; for 0 the result has no meaning.
    rounding : In(Rounding)
    result : Out(signed(acc_width))
    """

    LATENCY = 5

    def __init__(self, *, acc_width: int = 32, mul_width: int = 32) -> None:
        for name, value, least in (("acc_width", acc_width, 4), ("mul_width", mul_width, 2)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} must be an int, not {value!r}")
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        self._acc_width = acc_width
        self._mul_width = mul_width
        inputs = {
            "acc": signed(acc_width),
            "mul": signed(mul_width),
            "shift": unsigned(self.shift_width),
            "rounding": Rounding,
        }
        super().__init__(inputs=inputs, result=signed(acc_width))

    @property
    def acc_width(self) -> int:
        """Bits of the accumulator and of the result."""
        return self._acc_width

    @property
    def mul_width(self) -> int:
        """Bits of the factor."""
        return self._mul_width

    @property
    def shift_max(self) -> int:
        """Largest shift: the product and its rounding constant then just fit ``acc_width + mul_width`` bits."""
        return self._acc_width + self._mul_width - 2

    @property
    def shift_width(self) -> int:
        """Bits of the shift."""
        return self.shift_max.bit_length()

    def elaborate(self, platform) -> Module:
        m = Module()
        width, mul_width = self._acc_width, self._mul_width
        valid = self.valid_pipeline(m)

        # 1: for AWAY take the magnitude, which needs a bit more than acc: -2^(w-1) turns positive.
        x = Signal(signed(width + 1), reset_less=True)
        mul_1 = Signal(signed(mul_width), reset_less=True)
        # shift - 1, because (p + 2^(n-1)) >> n == ((p >> (n-1)) + 1) >> 1: the rounding constant becomes a plain 1.
        places_1 = Signal(self.shift_width, reset_less=True)
        negate_1 = Signal(reset_less=True)
        negative = Signal()
        m.d.comb += negative.eq((self.rounding == Rounding.AWAY) & (self.acc < 0))
        with m.If(valid[0]):
            m.d.sync += [
                x.eq(Mux(negative, -self.acc, self.acc)),
                mul_1.eq(self.mul),
                places_1.eq(self.shift - 1),
                negate_1.eq(negative),
            ]

        # 2, 3: the product in two halves of x, so that neither stage holds a full-width multiplier.
        split = (width + 1) // 2
        high = Signal(signed(width + 1 - split + mul_width), reset_less=True)
        low = Signal(signed(split + 1 + mul_width), reset_less=True)
        places_2 = Signal.like(places_1, reset_less=True)
        negate_2 = Signal(reset_less=True)
        with m.If(valid[1]):
            m.d.sync += [
                high.eq(x[split:].as_signed() * mul_1),
                low.eq(x[:split] * mul_1),
                places_2.eq(places_1),
                negate_2.eq(negate_1),
            ]
        product = Signal(signed(width + mul_width), reset_less=True)
        places_3 = Signal.like(places_1, reset_less=True)
        negate_3 = Signal(reset_less=True)
        with m.If(valid[2]):
            m.d.sync += [
                product.eq((high << split) + low),
                places_3.eq(places_2),
                negate_3.eq(negate_2),
            ]

        # 4: shift but for the last place. One bit more than the result is enough to see that it will saturate.
        kept = width + 1
        shifted = Signal(signed(width + mul_width))
        m.d.comb += shifted.eq(product >> places_3)
        twice = Signal(signed(kept), reset_less=True)
        negate_4 = Signal(reset_less=True)
        top = 2 ** (kept - 1) - 1
        with m.If(valid[3]):
            m.d.sync += negate_4.eq(negate_3)
            with m.If(shifted > top):
                m.d.sync += twice.eq(top)
            with m.Elif(shifted < -top - 1):
                m.d.sync += twice.eq(-top - 1)
            with m.Else():
                m.d.sync += twice.eq(shifted)

        # 5: round, give the sign back, saturate.
        rounded = Signal(signed(kept))
        value = Signal(signed(kept))
        m.d.comb += rounded.eq((twice + 1) >> 1)
        m.d.comb += value.eq(Mux(negate_4, -rounded, rounded))
        result = Signal(signed(width), reset_less=True)
        limit = 2 ** (width - 1) - 1
        with m.If(valid[4]):
            with m.If(value > limit):
                m.d.sync += result.eq(limit)
            with m.Elif(value < -limit - 1):
                m.d.sync += result.eq(-limit - 1)
            with m.Else():
                m.d.sync += result.eq(value)
        m.d.comb += self.result.eq(result)
        return m
