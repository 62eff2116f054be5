"""What all floating-point units share: how a number is read, rounded and packed by the numerics contract."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, signed
from amaranth.lib import data

from .format import FloatFormat
from .lane import Lane

__all__ = ["FloatLane", "FloatOps", "check_format"]


class FloatOps:
    """Combinational pieces for numbers of one format.

    Parameters
    ----------
    fmt
        The format.
    """

    def __init__(self, fmt: FloatFormat) -> None:
        check_format(fmt)
        self._fmt = fmt

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


class FloatLane(Lane, FloatOps):
    """A lane for numbers of one format."""

    def __init__(self, *, fmt: FloatFormat, inputs: dict[str, ShapeLike], result: ShapeLike) -> None:
        FloatOps.__init__(self, fmt)
        Lane.__init__(self, inputs=inputs, result=result)


def check_format(fmt: FloatFormat) -> None:
    """Refuse what is no format."""
    if not isinstance(fmt, FloatFormat):
        raise TypeError(f"fmt must be a FloatFormat, not {fmt!r}")
