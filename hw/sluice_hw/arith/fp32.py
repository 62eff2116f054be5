"""fp32 units of the numerics contract: conversions, product, sum.

All of them read a subnormal operand as zero with its sign, round to nearest even, return zero with its sign for a
subnormal result, and have one NaN: positive, quiet, otherwise empty (0x7FC00000). Each works for any
:class:`~.format.FloatFormat`, so that small formats can be checked exhaustively.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data

from .format import FP32, FloatFormat
from .lane import Lane
from .shift import normalise_left, shift_right_sticky

__all__ = ["Fp32Add", "Fp32Mul", "Fp32ToInt", "IntToFp32"]


class _FloatLane(Lane):
    def __init__(self, *, fmt: FloatFormat, inputs: dict, result) -> None:
        self._fmt = fmt
        super().__init__(inputs=inputs, result=result)

    @property
    def fmt(self) -> FloatFormat:
        """The floating-point format."""
        return self._fmt

    def is_zero(self, x: data.View) -> Value:
        """Zero or subnormal, which reads as zero."""
        return x.exp == 0

    def is_nan(self, x: data.View) -> Value:
        return (x.exp == self._fmt.exp_special) & (x.man != 0)

    def is_inf(self, x: data.View) -> Value:
        return (x.exp == self._fmt.exp_special) & (x.man == 0)

    def significand(self, x: data.View) -> Value:
        """Fraction with its hidden bit; 0 for what reads as zero."""
        return Mux(self.is_zero(x), 0, Cat(x.man, Const(1, 1)))

    def round_pack(
        self, m: Module, *, exp: Value, sig: Value, guard: Value, sticky: Value, sign: Value, nan: Value, inf: Value,
        zero: Value,
    ) -> data.View:  # fmt: skip
        """Round a normalised number to nearest even and pack it, combinationally.

        Parameters
        ----------
        exp
            Signed, biased exponent of ``sig``.
        sig
            Significand with its top bit set.
        guard, sticky
            The bit below ``sig``, and whether anything is set below that.
        nan, inf, zero
            Overrides, in this order of priority.
        """
        fmt = self._fmt
        # One below the normal range the IEEE grid has a place less: what is all ones rounds up to the smallest normal
        # number, which is not flushed.
        rescued = Signal()
        m.d.comb += rescued.eq((exp == 0) & sig.all())
        total = Signal(fmt.significand_bits + 1)
        m.d.comb += total.eq(sig + ((guard & (sticky | sig[0])) | rescued))
        carry = total[-1]
        rounded_exp = Signal(signed(len(exp) + 1))
        m.d.comb += rounded_exp.eq(exp + carry)

        out = Signal(fmt.layout)
        m.d.comb += out.sign.eq(sign)
        with m.If(nan):
            m.d.comb += [out.sign.eq(0), out.exp.eq(fmt.exp_special), out.man.eq(fmt.nan_man)]
        with m.Elif(inf):
            m.d.comb += out.exp.eq(fmt.exp_special)
        with m.Elif(zero | (rounded_exp <= 0)):
            m.d.comb += out.exp.eq(0)
        with m.Elif(rounded_exp >= fmt.exp_special):
            m.d.comb += out.exp.eq(fmt.exp_special)
        with m.Else():
            # After a carry the fraction is zero, in total as well: all ones became 1 followed by zeros.
            m.d.comb += [out.exp.eq(rounded_exp), out.man.eq(total[: fmt.man_bits])]
        return out


class IntToFp32(_FloatLane):
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
        _check_format(fmt)
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


class Fp32Mul(_FloatLane):
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
        _check_format(fmt)
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


class Fp32Add(_FloatLane):
    """``a + b``; an exact zero from operands of unlike sign is +0.

    Parameters
    ----------
    fmt
        Format of operands and result.

    Members
    -------
    a, b : In(fmt.layout)
    result : Out(fmt.layout)
    """

    LATENCY = 5

    def __init__(self, *, fmt: FloatFormat = FP32) -> None:
        _check_format(fmt)
        super().__init__(fmt=fmt, inputs={"a": fmt.layout, "b": fmt.layout}, result=fmt.layout)

    def elaborate(self, platform) -> Module:
        m = Module()
        fmt, bits = self._fmt, self._fmt.significand_bits
        valid = self.valid_pipeline(m)
        flags = data.StructLayout({"sign": 1, "subtract": 1, "nan": 1, "inf": 1})

        # 1: order by magnitude, so that the difference is never negative and only the smaller one is shifted.
        a, b = self.a, self.b
        swap = Signal()
        m.d.comb += swap.eq(Cat(b.man, b.exp) > Cat(a.man, a.exp))
        large, small = Signal(fmt.layout), Signal(fmt.layout)
        m.d.comb += [large.eq(Mux(swap, b, a)), small.eq(Mux(swap, a, b))]
        # Guard, round and sticky bits below the significand. A larger distance leaves only the sticky bit.
        wide = bits + 3
        distance_bits = wide.bit_length()
        far = 2**distance_bits - 1
        distance = Signal(fmt.exp_bits)
        m.d.comb += distance.eq(large.exp - small.exp)
        sig_large_1 = Signal(bits, reset_less=True)
        sig_small_1 = Signal(bits, reset_less=True)
        distance_1 = Signal(min(distance_bits, fmt.exp_bits), reset_less=True)
        exp_1 = Signal(fmt.exp_bits, reset_less=True)
        flags_1 = Signal(flags, reset_less=True)
        with m.If(valid[0]):
            m.d.sync += [
                sig_large_1.eq(self.significand(large)),
                sig_small_1.eq(self.significand(small)),
                distance_1.eq(Mux(distance > far, far, distance)),
                exp_1.eq(large.exp),
                flags_1.sign.eq(large.sign),
                flags_1.subtract.eq(a.sign ^ b.sign),
                # The larger magnitude is an infinity or a NaN if either operand is.
                flags_1.inf.eq(self.is_inf(large)),
                flags_1.nan.eq(self.is_nan(large) | (self.is_inf(a) & self.is_inf(b) & (a.sign ^ b.sign))),
            ]

        # 2: align.
        aligned = shift_right_sticky(m, Cat(Const(0, 3), sig_small_1), distance_1, name="align")
        sig_large_2 = Signal(bits, reset_less=True)
        aligned_2 = Signal(wide, reset_less=True)
        exp_2 = Signal(fmt.exp_bits, reset_less=True)
        flags_2 = Signal(flags, reset_less=True)
        with m.If(valid[1]):
            m.d.sync += [
                sig_large_2.eq(sig_large_1),
                aligned_2.eq(aligned),
                exp_2.eq(exp_1),
                flags_2.eq(flags_1),
            ]

        # 3: add or subtract.
        total = Signal(wide + 1, reset_less=True)
        exp_3 = Signal(fmt.exp_bits, reset_less=True)
        flags_3 = Signal(flags, reset_less=True)
        minuend = Cat(Const(0, 3), sig_large_2)
        with m.If(valid[2]):
            m.d.sync += [
                total.eq(Mux(flags_2.subtract, minuend - aligned_2, minuend + aligned_2)),
                exp_3.eq(exp_2),
                flags_3.eq(flags_2),
            ]

        # 4: normalise. The top bit of total is a carry, hence the exponent's + 1. After a cancellation of more than
        # one place the operands were at most one place apart, so the bits shifted in are exact.
        shifted, count = normalise_left(m, total, name="normalise")
        normal = Signal(wide + 1, reset_less=True)
        exp_4 = Signal(signed(max(fmt.exp_bits, len(count)) + 2), reset_less=True)
        flags_4 = Signal(flags, reset_less=True)
        with m.If(valid[3]):
            m.d.sync += [normal.eq(shifted), exp_4.eq(exp_3 + 1 - count), flags_4.eq(flags_3)]

        # 5: round.
        zero = ~normal[-1]
        out = self.round_pack(
            m, exp=exp_4, sig=normal[4:], guard=normal[3], sticky=normal[:3].any(),
            sign=flags_4.sign & ~(zero & flags_4.subtract), nan=flags_4.nan, inf=flags_4.inf, zero=zero,
        )  # fmt: skip
        result = Signal(fmt.layout, reset_less=True)
        with m.If(valid[4]):
            m.d.sync += result.eq(out)
        m.d.comb += self.result.eq(result)
        return m


class Fp32ToInt(_FloatLane):
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
        _check_format(fmt)
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


def _check_format(fmt: FloatFormat) -> None:
    if not isinstance(fmt, FloatFormat):
        raise TypeError(f"fmt must be a FloatFormat, not {fmt!r}")
