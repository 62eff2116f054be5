"""The bf16 multiplier: a product with 16 bits of significand, which fp32 holds exactly, so nothing is rounded."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from .float_lane import FloatLane, FloatOps, check_format
from .format import BF16, FP32, FloatFormat

__all__ = ["Bf16Mul", "exact_product"]


def exact_product(
    m: Module, *, fmt: FloatFormat, a: data.View, b: data.View, significand: Value, prefix: str = ""
) -> Signal:  # fmt: skip
    """Pack the product of two numbers, combinationally.

    Parameters
    ----------
    fmt
        Format of the operands.
    a, b
        Operands; what is subnormal reads as zero.
    significand
        Product of their significands, the hidden bits set.
    prefix
        Goes before the names of signals.

    Returns
    -------
    Signal
        The product: sign, exponent and a fraction of as many bits as it can need, ``2 * man_bits + 1``. From
        2^(bias + 1) on it is an infinity; below the smallest normal number, zero with its sign.
    """
    places = 2 * fmt.man_bits + 1
    top = significand[places]
    # Stored exponent plus bias.
    exp = Signal(fmt.exp_bits + 1, name=f"{prefix}exp")
    m.d.comb += exp.eq(a.exp + b.exp + top)
    ops = FloatOps(fmt)
    special = (a.exp == fmt.exp_special) | (b.exp == fmt.exp_special)
    zero = ops.is_zero(a) | ops.is_zero(b)
    nan = ops.is_nan(a) | ops.is_nan(b) | (special & zero)
    small = zero | (exp <= fmt.bias)
    huge = Signal(name=f"{prefix}huge")
    m.d.comb += huge.eq(special | (exp >= fmt.bias + fmt.exp_special))
    # 1.xxx or 01.xxx: what stands behind the leading one, aligned to the top of the fraction. As in the adder, choices
    # are made by masks.
    fraction = Mux(top, significand[:places], Cat(Const(0, 1), significand[: places - 1]))
    biased = Signal(fmt.exp_bits, name=f"{prefix}biased")
    m.d.comb += biased.eq(exp[: fmt.exp_bits] + (2**fmt.exp_bits - fmt.bias))
    infinity = fmt.exp_special << places
    forced = Mux(nan, infinity | 1 << (places - 1), Mux(huge, infinity, 0))
    kept = Mux(small | huge, 0, 2 ** (fmt.exp_bits + places) - 1)
    packed = Signal(1 + fmt.exp_bits + places, name=f"{prefix}packed")
    m.d.comb += packed.eq(Cat((Cat(fraction, biased) & kept) | forced, (a.sign ^ b.sign) & ~nan))
    return packed


def check_exact(fmt: FloatFormat, result: FloatFormat) -> None:
    """Refuse a format that does not hold every product.

    Raises
    ------
    TypeError, ValueError
        Naming what is wrong.
    """
    check_format(fmt)
    check_format(result)
    if result.exp_bits != fmt.exp_bits:
        raise ValueError(f"product's exponent must have {fmt.exp_bits} bits, as the operands', not {result.exp_bits}")
    places = 2 * fmt.man_bits + 1
    if result.man_bits < places:
        raise ValueError(f"product's fraction must have at least {places} bits, not {result.man_bits}")


class Bf16Mul(FloatLane):
    """``a * b`` of two bf16 numbers, as fp32.

    Parameters
    ----------
    fmt, result
        Formats of operands and product; the latter has as many bits of exponent, and fraction enough to be exact.

    Members
    -------
    a, b : In(fmt.layout)
    result : Out(result.layout)
    """

    LATENCY = 1

    def __init__(self, *, fmt: FloatFormat = BF16, result: FloatFormat = FP32) -> None:
        check_exact(fmt, result)
        self._result = result
        super().__init__(fmt=fmt, inputs={"a": fmt.layout, "b": fmt.layout}, result=result.layout)

    def elaborate(self, platform) -> Module:
        m = Module()
        valid = self.valid_pipeline(m)
        significand = Signal(2 * self.fmt.significand_bits)
        m.d.comb += significand.eq(Cat(self.a.man, Const(1, 1)) * Cat(self.b.man, Const(1, 1)))
        product = exact_product(m, fmt=self.fmt, a=self.a, b=self.b, significand=significand)
        result = Signal.like(product, reset_less=True)
        with m.If(valid[0]):
            m.d.sync += result.eq(product)
        below = self._result.width - len(result)
        m.d.comb += Value.cast(self.result).eq(Cat(Const(0, below), result))
        return m
