"""One lane's arithmetic: an operation on three 32-bit operands a cycle, in constant time.

A product goes on into the adder, so that a b + c is one pass; each of the two rounds, and the other operations wait
beside them. (A multiply-add that rounds once would need an aligner of three significands for each lane, and would give
other bits than product and sum by themselves.)
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out, Signature

from ..arith.format import BF16, FP32
from ..arith.fp32 import Fp32Add, Fp32Mul, Fp32ToInt, IntToFp32
from ..arith.stages import Stages
from ..vector_ops import AluOp

__all__ = ["AluLane", "clean", "is_nan", "rank", "to_bf16"]

_PRODUCTS = (AluOp.MUL, AluOp.MUL_ADD, AluOp.MUL_SUB)
_SUMS = (AluOp.ADD, AluOp.SUB, AluOp.MUL_ADD, AluOp.MUL_SUB)
_NEGATED = (AluOp.SUB, AluOp.MUL_SUB)


def is_nan(x: Value) -> Value:
    """Whether 32 bits are an fp32 NaN."""
    return x[23:31].all() & x[:23].any()


def clean(x: Value) -> Value:
    """fp32 as it is read: a subnormal as zero with its sign, every NaN as the one."""
    return Mux(is_nan(x), 0x7FC00000, Mux(x[23:31] == 0, Cat(Const(0, 31), x[31]), x))


def to_bf16(x: Value) -> Value:
    """Clean fp32 rounded to bf16, in the upper half of a word."""
    # Added is half a place, one less where the last bit that stays is 0.
    lost = FP32.man_bits - BF16.man_bits
    rounded = x + ((1 << (lost - 1)) - 1) + x[lost]
    return Mux(is_nan(x), x, Cat(Const(0, lost), rounded[lost:32]))


def rank(x: Value) -> Value:
    """A signed number that orders clean fp32 values, -0 below +0."""
    return Cat(x[:31] ^ x[31].replicate(31), x[31]).as_signed()


def _any_of(op: Value, ops: tuple[AluOp, ...]) -> Value:
    return Cat(op == each for each in ops).any()


class AluLane(Component):
    """An operation on a, b and c, ``LATENCY`` cycles later.

    Members (sides as the grid emitter names them)
    -------
    all : ``valid``; ``op`` (an :class:`~sluice_hw.vector_ops.AluOp`), which stands still while values are inside
    col : ``a``, ``b``, ``c``, 32 bits
    down : ``result``, 32 bits
    """

    LATENCY = Fp32Mul.LATENCY + Fp32Add.LATENCY + 1

    def __init__(self) -> None:
        super().__init__({
            "all": In(Signature({"valid": Out(1), "op": Out(5)})),
            "col": In(Signature({"a": Out(32), "b": Out(32), "c": Out(32)})),
            "down": Out(Signature({"result": Out(32)})),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        op, valid = self.all.op, self.all.valid
        a, b, c = (Value.cast(x) for x in (self.col.a, self.col.b, self.col.c))
        product, total, to_float, to_int = Fp32Mul(), Fp32Add(), IntToFp32(), Fp32ToInt()
        m.submodules += [product, total, to_float, to_int]

        use = {}
        for name, ops in (
            ("product", _PRODUCTS), ("sum", _SUMS), ("float", (AluOp.I_TO_FP32,)), ("int", (AluOp.TO_INT32,)),
            ("times", (AluOp.IMUL,)),
        ):  # fmt: skip
            use[name] = Signal(name=f"use_{name}")
            m.d.comb += use[name].eq(_any_of(op, ops))
        plain = Signal()
        m.d.comb += plain.eq(~Cat(use.values()).any())

        stages = Stages(m, valid, self.LATENCY)
        ok, later = stages.ok, stages.later
        fp32 = FP32.layout
        at = Fp32Mul.LATENCY
        m.d.comb += [
            product.in_valid.eq(valid & use["product"]), product.a.eq(data.View(fp32, a)),
            product.b.eq(data.View(fp32, b)),
            to_float.in_valid.eq(valid & use["float"]), to_float.value.eq(a.as_signed()),
            to_int.in_valid.eq(valid & use["int"]), to_int.value.eq(data.View(fp32, a)),
        ]  # fmt: skip
        # Into the adder: the product and c, or a and b.
        second = Signal(32)
        m.d.comb += second.eq(Mux(use["product"], c, b) ^ (_any_of(op, _NEGATED) << 31))
        first = later(a, 0, at, "first", use["sum"] & ~use["product"])
        second = later(second, 0, at, "second", use["sum"])
        m.d.comb += [
            total.in_valid.eq(ok[at] & use["sum"]),
            total.a.eq(data.View(fp32, Mux(use["product"], Value.cast(product.result), first))),
            total.b.eq(data.View(fp32, second)),
        ]

        times = Signal(32, name="times", reset_less=True)
        with m.If(valid & use["times"]):
            m.d.sync += times.eq((a * b)[:32])

        # What is ready early waits: the sources of one word, each from where it is known.
        word = Signal(32, reset_less=True, name="word_1")
        with m.If(valid & plain):
            m.d.sync += word.eq(self._plain(m, op, a, b, c))
        sources = {2: (later(times, 1, 2, "times", use["times"]), use["times"])}
        converted = IntToFp32.LATENCY
        assert Fp32ToInt.LATENCY == converted < Fp32Mul.LATENCY < self.LATENCY
        conversion = Mux(use["float"], Value.cast(to_float.result), to_int.result)
        sources[converted] = (conversion, use["float"] | use["int"])
        sources[at] = (Value.cast(product.result), use["product"] & ~use["sum"])
        value = word
        last = self.LATENCY - 1
        for k in range(1, last):
            if k in sources:
                other, chosen = sources[k]
                value = Mux(chosen, other, value)
            value = later(value, k, k + 1, "wait", ~use["sum"])
        result = Signal(32, reset_less=True)
        with m.If(ok[last]):
            m.d.sync += result.eq(Mux(use["sum"], Value.cast(total.result), value))
        m.d.comb += self.down.result.eq(result)
        return m

    def _plain(self, m: Module, op: Value, a: Value, b: Value, c: Value) -> Value:
        """What one cycle is enough for."""
        x, y = Signal(32, name="clean_a"), Signal(32, name="clean_b")
        m.d.comb += [x.eq(clean(a)), y.eq(clean(b))]
        nan, zeros = Signal(), Signal()
        m.d.comb += [nan.eq(is_nan(x) | is_nan(y)), zeros.eq(~(x[:31] | y[:31]).any())]
        less, same = Signal(), Signal()
        m.d.comb += [less.eq(rank(x) < rank(y)), same.eq(x == y)]
        i, j = a.as_signed(), b.as_signed()
        iless = Signal()
        m.d.comb += iless.eq(i < j)
        byte = Signal(signed(8))
        m.d.comb += byte.eq(Mux(i > 127, 127, Mux(i < -128, -128, i[:8].as_signed())))
        results = {
            AluOp.PASS: a,
            AluOp.SELECT: Mux(c != 0, a, b),
            AluOp.AND: a & b,
            AluOp.OR: a | b,
            AluOp.XOR: a ^ b,
            AluOp.MIN: Mux(nan, 0x7FC00000, Mux(less, x, y)),
            AluOp.MAX: Mux(nan, 0x7FC00000, Mux(less, y, x)),
            AluOp.ABS: Mux(is_nan(x), x, x[:31]),
            AluOp.NEG: Mux(is_nan(x), x, x ^ (1 << 31)),
            AluOp.LT: less & ~nan & ~zeros,
            AluOp.LE: (less | same | zeros) & ~nan,
            AluOp.EQ: (same | zeros) & ~nan,
            AluOp.CLEAN: x,
            AluOp.TO_BF16: to_bf16(x),
            AluOp.IADD: i + j,
            AluOp.ISUB: i - j,
            AluOp.IMIN: Mux(iless, i, j),
            AluOp.IMAX: Mux(iless, j, i),
            AluOp.IABS: Mux(i < 0, -i, i),
            AluOp.ILT: iless,
            AluOp.ILE: iless | (i == j),
            AluOp.IEQ: a == b,
            AluOp.I_TO_INT8: byte,
            AluOp.INT8_TO_I: a[:8].as_signed(),
        }
        out = Signal(32, name="plain_result")
        with m.Switch(op):
            for each, value in results.items():
                with m.Case(each):
                    m.d.comb += out.eq(value)
        return out
