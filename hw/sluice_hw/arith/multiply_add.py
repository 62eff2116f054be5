"""What a processing element computes, by the type of its operands: shapes, and the stages of one multiply-add.

``int8``
    ``psum + a * w`` in two's complement, exact, in the PE itself.
``bf16``
    The product is registered before the partial sum comes: the row above is `latency` cycles ahead, so that only the
    adder stands between two partial sums. Both are fp32.
``int8+bf16``
    Both in one PE, a row of activations being of one type or the other (``bf16`` travels with it). They share the
    operands' registers, the multiplier and the product's register. int8 runs at the rate of bf16, one product a cycle
    and PE: twice as many would need a second weight and a second 16-bit operand path through every PE, and two int8
    sums (2 x 24 bits of the 256-row array) do not fit the 32-bit partial sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import data
from amaranth.utils import ceil_log2

from .add import MAX_ADD_LATENCY, add_stages
from .bf16 import exact_product
from .format import BF16, FP32

__all__ = ["ARRAY_TYPES", "ArrayType", "array_type", "float_stages", "psum_width"]


def psum_width(rows: int) -> int:
    """Bits of an exact sum of `rows` int8 products: 16 + ceil(log2(rows)).

    Raises
    ------
    TypeError, ValueError
        If `rows` is not a positive integer.
    """
    if isinstance(rows, bool) or not isinstance(rows, int):
        raise TypeError(f"Number of rows must be an integer, not {rows!r}")
    if rows < 1:
        raise ValueError(f"Number of rows must be at least 1, not {rows}")
    return 16 + ceil_log2(rows)


@dataclass(frozen=True)
class ArrayType:
    """Shapes of what travels through an array.

    Attributes
    ----------
    name
        ``"int8"``, ``"bf16"`` or ``"int8+bf16"``.
    weight
        Shape of a weight.
    activation
        Shape of an activation; with both types, the bit on top says that it is bf16.
    product_latency
        Cycles from an activation to its product.
    """

    name: str
    weight: Shape
    activation: Shape
    product_latency: int

    @property
    def is_float(self) -> bool:
        """Whether bf16 is among the types."""
        return self.name != "int8"

    @property
    def both(self) -> bool:
        """Whether a row of activations says which type it has."""
        return self.name == "int8+bf16"

    @property
    def max_latency(self) -> int | None:
        """Largest add latency; None for any."""
        return MAX_ADD_LATENCY if self.is_float else None

    def psum(self, rows: int) -> Shape:
        """Shape of a partial sum in an array of so many rows; int8 sums are sign-extended where there is room."""
        width = psum_width(rows)
        return unsigned(FP32.width) if self.is_float else signed(width)


ARRAY_TYPES = {
    kind.name: kind
    for kind in (
        ArrayType("int8", signed(8), signed(8), 0),
        ArrayType("bf16", unsigned(BF16.width), unsigned(BF16.width), 1),
        ArrayType("int8+bf16", unsigned(BF16.width), unsigned(BF16.width + 1), 1),
    )
}


def array_type(name: str) -> ArrayType:
    """The type by its name.

    Raises
    ------
    ValueError
        If there is no such type.
    """
    try:
        return ARRAY_TYPES[name]
    except (KeyError, TypeError):
        raise ValueError(f"array dtype must be one of {', '.join(ARRAY_TYPES)}, not {name!r}") from None


def _held(m: Module, name: str, shape, valid: Value, value: Value) -> Signal:
    """A data register that loads only what is valid."""
    register = Signal(shape, reset_less=True, name=name)
    with m.If(valid):
        m.d.sync += register.eq(value)
    return register


def valid_stages(m: Module, name: str, valid: Value, count: int) -> list[Value]:
    """A valid bit, and `count` registers that it goes through."""
    stages = [valid]
    for stage in range(count):
        register = Signal(name=f"{name}{stage}")
        m.d.sync += register.eq(stages[-1])
        stages.append(register)
    return stages


def float_stages(
    m: Module, kind: ArrayType, *, rows: int, latency: int, valid: Value, activation: Value, weight: Value, psum: Value
) -> tuple[Value, Value]:  # fmt: skip
    """Add the multiply-add of a type with bf16 to a PE.

    Parameters
    ----------
    rows
        Of the array; they set the width of int8 sums.
    latency
        Stages of the addition.
    valid, activation, weight
        Operands, in the cycle in which they are multiplied.
    psum
        Partial sum from above, one cycle later.

    Returns
    -------
    valid, psum
        `latency` cycles after ``psum``.
    """
    a, w = (data.View(BF16.layout, value) for value in (activation[: BF16.width], weight))
    bits = BF16.significand_bits
    a_sig, w_sig = Cat(a.man, Const(1, 1)), Cat(w.man, Const(1, 1))
    if kind.both:
        # One multiplier: unsigned significands or signed integers, both within nine bits.
        is_float = activation[BF16.width]
        factors = []
        for name, sig, value in (("factor_a", a_sig, activation), ("factor_w", w_sig, weight)):
            factor = Signal(signed(bits + 1), name=name)
            m.d.comb += factor.eq(Mux(is_float, Cat(sig, Const(0, 1)).as_signed(), value[:8].as_signed()))
            factors.append(factor)
        product = Signal(signed(2 * bits + 2))
        m.d.comb += product.eq(factors[0] * factors[1])
        significand = product[: 2 * bits]
    else:
        significand = Signal(2 * bits)
        m.d.comb += significand.eq(a_sig * w_sig)
    packed = exact_product(m, fmt=BF16, a=a, b=w, significand=significand, prefix="product_")
    below = Const(0, FP32.width - len(packed))

    (_, product_valid) = valid_stages(m, "product_valid", valid, 1)
    if not kind.both:
        term = Cat(below, _held(m, "term", len(packed), valid, packed))
        stages = valid_stages(m, "psum_valid", product_valid, latency)
        total = add_stages(m, fmt=FP32, a=data.View(FP32.layout, psum), b=data.View(FP32.layout, term), valid=stages,
                           prefix="add_")  # fmt: skip
        return stages[-1], Value.cast(total)

    held = _held(m, "term", len(packed), valid, Mux(is_float, packed, product[: 2 * bits].as_signed()))
    term = Cat(below, held)
    term_float = _held(m, "term_float", 1, valid, is_float)
    # Two pipelines, of which a sum moves one, and one register behind both.
    stages = valid_stages(m, "psum_valid", product_valid, latency)
    width = psum_width(rows)
    is_float, sum_int = term_float, (psum[:width].as_signed() + held.as_signed())[:width]
    enables = []
    for stage in range(latency - 1):
        adds_float, adds_int = Signal(name=f"adds_float{stage}"), Signal(name=f"adds_int{stage}")
        m.d.comb += [adds_float.eq(stages[stage] & is_float), adds_int.eq(stages[stage] & ~is_float)]
        enables.append(adds_float)
        is_float = _held(m, f"is_float{stage}", 1, stages[stage], is_float)
        sum_int = _held(m, f"int_sum{stage}", width, adds_int, sum_int)
    total = add_stages(m, fmt=FP32, a=data.View(FP32.layout, psum), b=data.View(FP32.layout, term),
                       valid=[*enables, *stages[latency - 1 :]], prefix="add_",
                       instead=(~is_float, sum_int.as_signed()))  # fmt: skip
    return stages[-1], Value.cast(total)
