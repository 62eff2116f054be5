"""fp32 units of the numerics contract: conversions, product, sum.

All of them read a subnormal operand as zero with its sign, round to nearest even, return zero with its sign for a
subnormal result, and have one NaN: positive, quiet, otherwise empty (0x7FC00000). Each works for any
:class:`~.format.FloatFormat`, so that small formats can be checked exhaustively.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data

from .add import Fp32Add
from .float_lane import FloatLane, check_format
from .format import FP32, FloatFormat
from .shift import normalise_left, shift_right_sticky

__all__ = ["Fp32Add", "Fp32Mul", "Fp32ToInt", "IntToFp32"]


class IntToFp32(FloatLane):
    """Convert a signed integer to floating point, nearest even.

    Parameters
    ----------
    width
        Bits of the integer, >= 2.
    fmt
        Format of the result.

    Members
    -------
    value : In(signed(width))
    result : Out(fmt.layout)
    """

    LATENCY = 3

    def __init__(self, *, width: int = 32, fmt: FloatFormat = FP32) -> None:
        _check_width(width)
        check_format(fmt)
        self._width = width
        super().__init__(fmt=fmt, inputs={"value": signed(width)}, result=fmt.layout)

    @property
    def width(self) -> int:
        """Bits of the integer."""
        return self._width

    def elaborate(self, platform) -> Module:
        m = Module()
        fmt, width = self._fmt, self._width
        valid = self.valid_pipeline(m)

        magnitude = Signal(width, reset_less=True)
        sign_1 = Signal(reset_less=True)
        with m.If(valid[0]):
            m.d.sync += [magnitude.eq(Mux(self.value < 0, -self.value, self.value)), sign_1.eq(self.value < 0)]

        shifted, count = normalise_left(m, magnitude, name="normalise")
        # Bits below the significand: at least a guard and a sticky one.
        below = max(width - fmt.significand_bits, 2)
        normal = Signal(fmt.significand_bits + below, reset_less=True)
        exp = Signal(signed(max(fmt.exp_bits, width.bit_length()) + 2), reset_less=True)
        sign_2 = Signal(reset_less=True)
        with m.If(valid[1]):
            m.d.sync += [
                normal.eq(shifted << (len(normal) - width)),
                exp.eq(fmt.bias + width - 1 - count),
                sign_2.eq(sign_1),
            ]

        out = self.round_pack(
            m, exp=exp, sig=normal[below:], guard=normal[below - 1], sticky=normal[: below - 1].any(), sign=sign_2,
            nan=Const(0), inf=Const(0), zero=~normal[-1],
        )  # fmt: skip
        result = Signal(fmt.layout, reset_less=True)
        with m.If(valid[2]):
            m.d.sync += result.eq(out)
        m.d.comb += self.result.eq(result)
        return m


class Fp32Mul(FloatLane):
    """``a * b``.

    Parameters
    ----------
    fmt
        Format of operands and result.

    Members
    -------
    a, b : In(fmt.layout)
    result : Out(fmt.layout)
    """

    LATENCY = 4

    def __init__(self, *, fmt: FloatFormat = FP32) -> None:
        check_format(fmt)
        super().__init__(fmt=fmt, inputs={"a": fmt.layout, "b": fmt.layout}, result=fmt.layout)

    def elaborate(self, platform) -> Module:
        m = Module()
        fmt, bits = self._fmt, self._fmt.significand_bits
        valid = self.valid_pipeline(m)
        flags = data.StructLayout({"sign": 1, "nan": 1, "inf": 1, "zero": 1})

        # 1, 2: the product in two halves of a, so that neither stage holds a full-width multiplier.
        a, b = self.a, self.b
        split = bits // 2
        sig_a = Signal(bits)
        m.d.comb += sig_a.eq(self.significand(a))
        low = Signal(split + bits, reset_less=True)
        high = Signal(bits - split + bits, reset_less=True)
        exp_1 = Signal(unsigned(fmt.exp_bits + 1), reset_less=True)
        flags_1 = Signal(flags, reset_less=True)
        with m.If(valid[0]):
            m.d.sync += [
                low.eq(sig_a[:split] * self.significand(b)),
                high.eq(sig_a[split:] * self.significand(b)),
                exp_1.eq(a.exp + b.exp),
                flags_1.sign.eq(a.sign ^ b.sign),
                flags_1.zero.eq(self.is_zero(a) | self.is_zero(b)),
                flags_1.inf.eq(self.is_inf(a) | self.is_inf(b)),
                flags_1.nan.eq(
                    self.is_nan(a)
                    | self.is_nan(b)
                    | (self.is_inf(a) & self.is_zero(b))
                    | (self.is_zero(a) & self.is_inf(b))
                ),
            ]
        product = Signal(2 * bits, reset_less=True)
        exp_2 = Signal(signed(fmt.exp_bits + 2), reset_less=True)
        flags_2 = Signal(flags, reset_less=True)
        with m.If(valid[1]):
            m.d.sync += [product.eq((high << split) + low), exp_2.eq(exp_1 - fmt.bias), flags_2.eq(flags_1)]

        # 3: both significands lie in [1, 2), so their product in [1, 4): one place to choose.
        normal = Signal(bits + 2, reset_less=True)  # significand, guard, sticky
        exp_3 = Signal(signed(fmt.exp_bits + 3), reset_less=True)
        flags_3 = Signal(flags, reset_less=True)
        top = product[-1]
        with m.If(valid[2]):
            m.d.sync += [
                normal[1:].eq(Mux(top, product[bits - 1 :], product[bits - 2 : -1])),
                normal[0].eq(product[: bits - 2].any() | (top & product[bits - 2])),
                exp_3.eq(exp_2 + top),
                flags_3.eq(flags_2),
            ]

        out = self.round_pack(
            m, exp=exp_3, sig=normal[2:], guard=normal[1], sticky=normal[0], sign=flags_3.sign, nan=flags_3.nan,
            inf=flags_3.inf, zero=flags_3.zero,
        )  # fmt: skip
        result = Signal(fmt.layout, reset_less=True)
        with m.If(valid[3]):
            m.d.sync += result.eq(out)
        m.d.comb += self.result.eq(result)
        return m


class Fp32ToInt(FloatLane):
    """Round to the nearest signed integer, ties to even, saturating; a NaN becomes 0.

    Parameters
    ----------
    width
        Bits of the integer, >= 2.
    fmt
        Format of the operand.

    Members
    -------
    value : In(fmt.layout)
    result : Out(signed(width))
    """

    LATENCY = 3

    def __init__(self, *, width: int = 32, fmt: FloatFormat = FP32) -> None:
        _check_width(width)
        check_format(fmt)
        self._width = width
        super().__init__(fmt=fmt, inputs={"value": fmt.layout}, result=signed(width))

    @property
    def width(self) -> int:
        """Bits of the integer."""
        return self._width

    def elaborate(self, platform) -> Module:
        m = Module()
        fmt, width, bits = self._fmt, self._width, self._fmt.significand_bits
        valid = self.valid_pipeline(m)

        # Fixed point: `width` integer bits above a fraction that holds the significand, a guard and a sticky bit. The
        # significand enters with its top bit at weight 2^(width-1) and is shifted down to its exponent.
        fraction = max(bits - width, 0) + 2
        full = width + fraction
        distance_bits = full.bit_length()
        far = 2**distance_bits - 1
        top_exp = fmt.bias + width - 1
        distance = Signal(signed(max(fmt.exp_bits, top_exp.bit_length()) + 2))
        m.d.comb += distance.eq(top_exp - self.value.exp)

        sig_1 = Signal(bits, reset_less=True)
        distance_1 = Signal(distance_bits, reset_less=True)
        large_1 = Signal(reset_less=True)
        sign_1 = Signal(reset_less=True)
        with m.If(valid[0]):
            m.d.sync += [
                sig_1.eq(Mux(self.is_nan(self.value), 0, self.significand(self.value))),
                distance_1.eq(Mux(distance > far, far, distance)),
                # At 2^(width-1) and beyond, infinities included: saturates, or is the minimum itself. Rounding must not
                # be asked: just below 2^width it would carry out of the integer.
                large_1.eq((distance <= 0) & ~self.is_nan(self.value)),
                sign_1.eq(self.value.sign),
            ]

        shifted = shift_right_sticky(m, Cat(Const(0, full - bits), sig_1), distance_1, name="align")
        fixed = Signal(full, reset_less=True)
        large_2 = Signal(reset_less=True)
        sign_2 = Signal(reset_less=True)
        with m.If(valid[1]):
            m.d.sync += [fixed.eq(shifted), large_2.eq(large_1), sign_2.eq(sign_1)]

        integer, guard, sticky = fixed[fraction:], fixed[fraction - 1], fixed[: fraction - 1].any()
        magnitude = Signal(width)
        m.d.comb += magnitude.eq(integer + (guard & (sticky | integer[0])))
        result = Signal(signed(width), reset_less=True)
        limit = 2 ** (width - 1) - 1
        with m.If(valid[2]):
            # Rounding up may reach 2^(width-1) as well; as a negative number that still fits.
            with m.If(large_2 | magnitude[-1]):
                m.d.sync += result.eq(Mux(sign_2, -limit - 1, limit))
            with m.Else():
                m.d.sync += result.eq(Mux(sign_2, -magnitude, magnitude))
        m.d.comb += self.result.eq(result)
        return m


def _check_width(width: int) -> None:
    if not isinstance(width, int) or isinstance(width, bool):
        raise TypeError(f"width must be an int, not {width!r}")
    if width < 2:
        raise ValueError(f"width must be at least 2, not {width}")
