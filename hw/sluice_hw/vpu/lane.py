"""One lane of the vector unit's integer epilogue: window reduction, bias, requantise, residual, clamp.

The lane is a fixed-latency pipeline without stalls, described once and placed ``cols`` times by the grid emitter. What
is the same for all lanes (mode, scalar multipliers) comes in broadcast and must hold still while rows are inside.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib.wiring import Component, In, Out, Signature

from ..arith.clamp import ZeroPointClamp
from ..arith.fixed import RequantFixed, Rounding
from ..arith.fp32 import Fp32Add, Fp32Mul, Fp32ToInt, IntToFp32
from ..isa import Reduce, Requant, Residual, Source

__all__ = ["LANE_BROADCAST", "LANE_COLUMN", "LANE_RESULTS", "EpilogueLane"]

#: Broadcast inputs of a lane: name and shape. All but the first four stand still while a VECTOR runs.
LANE_BROADCAST = {
    "valid": 1, "first": 1, "last": 1,
    "source": 1, "reduce": 2, "bias_en": 1, "requant": 2, "per_channel": 1, "multiplier": 32, "shift": 6,
    "source_zero_point": signed(8), "zero_point": signed(8), "lo": signed(8), "hi": signed(8), "relu": 1,
    "residual": 2, "m1": 32, "m2": 32, "mo": 32, "shift1": 6, "shift2": 6, "shifto": 6,
    "zero_point2": signed(8), "zero_point_out": signed(8),
}

#: Inputs of each lane by itself.
LANE_COLUMN = {
    "acc": signed(32), "byte": 8, "bias": signed(32), "channel_multiplier": 32, "channel_shift": 8, "residual_byte": 8,
}
#: Outputs of each lane.
LANE_RESULTS = {"wide": signed(32), "narrow": 8, "residual_out": 8}

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1

_REDUCED = 1
_BIASED = _REDUCED + 1
_MAIN = max(RequantFixed.LATENCY, IntToFp32.LATENCY + Fp32Mul.LATENCY + Fp32ToInt.LATENCY)
_NARROW = _BIASED + _MAIN + ZeroPointClamp.LATENCY
_ADD = 1 + max(
    2 * RequantFixed.LATENCY + 1,
    IntToFp32.LATENCY + Fp32Mul.LATENCY + Fp32Add.LATENCY + Fp32ToInt.LATENCY,
)


class EpilogueLane(Component):
    """One column of VECTOR (see the rules in ``docs/architecture.md``).

    A source row enters with ``valid`` and its place in the window (``first``, ``last``); the row that ends a window
    leaves as ``wide`` WIDE_LATENCY, as ``narrow`` NARROW_LATENCY (without residual) or RESIDUAL_LATENCY (with one)
    cycles later. The residual operand is taken RESIDUAL_AT cycles after the row that ends the window entered.

    Members (sides as the grid emitter names them)
    -------
    all : ``valid``, ``first``, ``last`` and the mode, see ``LANE_BROADCAST``
    col : ``acc`` (signed 32) or ``byte`` (8), the source row, whichever ``source`` selects; ``bias``,
        ``channel_multiplier``, ``channel_shift``; ``residual_byte``
    down : the results ``wide`` (signed 32), ``narrow`` and ``residual_out`` (8)
    """

    WIDE_LATENCY = _BIASED
    NARROW_LATENCY = _NARROW
    RESIDUAL_AT = _NARROW
    RESIDUAL_LATENCY = _NARROW + _ADD + ZeroPointClamp.LATENCY

    def __init__(self) -> None:
        super().__init__({
            "all": In(Signature({name: Out(shape) for name, shape in LANE_BROADCAST.items()})),
            "col": In(Signature({name: Out(shape) for name, shape in LANE_COLUMN.items()})),
            "down": Out(Signature({name: Out(shape) for name, shape in LANE_RESULTS.items()})),
        })

    def elaborate(self, platform) -> Module:
        m = Module()

        def later(value, cycles: int, enable, name: str):
            """``value`` after ``cycles`` registers; ``enable`` lists the valid bit of each stage's input."""
            for i in range(cycles):
                reg = Signal.like(value, name=f"{name}_d{i + 1}", reset_less=True)
                with m.If(enable[i]):
                    m.d.sync += reg.eq(value)
                value = reg
            return value

        # Valid bits of a finished window, by cycles since its last row entered.
        depth = self.RESIDUAL_LATENCY + 1
        ok = [Signal(name=f"ok{i}") for i in range(depth)]
        m.d.comb += ok[0].eq(self.all.valid & self.all.last)
        for i in range(1, depth):
            m.d.sync += ok[i].eq(ok[i - 1])

        # 1. source and window reduction
        x = Signal(signed(32))
        byte = self.col.byte.as_signed() - self.all.source_zero_point
        m.d.comb += x.eq(Mux(self.all.source == Source.VMEM, byte, self.col.acc))
        total = Signal(signed(32), reset_less=True)
        with m.If(self.all.valid):
            with m.If(self.all.first):
                m.d.sync += total.eq(x)
            with m.Elif(self.all.reduce == Reduce.MAX):
                m.d.sync += total.eq(Mux(x > total, x, total))
            with m.Else():
                m.d.sync += total.eq(total + x)

        # 2. bias
        biased = Signal(signed(32), reset_less=True)
        summed = Signal(signed(32))
        m.d.comb += summed.eq(total + Mux(self.all.bias_en, self.col.bias, 0))
        with m.If(ok[_REDUCED]):
            m.d.sync += biased.eq(Mux(self.all.relu & (summed < 0), 0, summed))
        m.d.comb += self.down.wide.eq(biased)

        # 3. requantise, both dialects side by side; the one not selected stays silent
        multiplier, shift = Signal(32), Signal(6)
        m.d.comb += [
            multiplier.eq(Mux(self.all.per_channel, self.col.channel_multiplier, self.all.multiplier)),
            shift.eq(Mux(self.all.per_channel, self.col.channel_shift, self.all.shift)),
        ]
        is_float = Signal()
        m.d.comb += is_float.eq(self.all.requant == Requant.FLOAT)
        m.submodules.fixed = fixed = RequantFixed()
        m.d.comb += [
            fixed.in_valid.eq(ok[_BIASED] & ~is_float), fixed.acc.eq(biased), fixed.mul.eq(multiplier),
            fixed.shift.eq(shift),
            fixed.rounding.eq(Mux(self.all.requant == Requant.FIXED_AWAY, Rounding.AWAY, Rounding.HALF_UP)),
        ]
        m.submodules.to_float = to_float = IntToFp32()
        m.submodules.scale = scale = Fp32Mul()
        m.submodules.to_int = to_int = Fp32ToInt()
        m.d.comb += [
            to_float.in_valid.eq(ok[_BIASED] & is_float), to_float.value.eq(biased),
            scale.in_valid.eq(to_float.out_valid), scale.a.eq(to_float.result), scale.b.eq(multiplier),
            to_int.in_valid.eq(scale.out_valid), to_int.value.eq(scale.result),
        ]
        bypass = later(biased, _MAIN, ok[_BIASED:], "bypass")
        fixed_out = later(fixed.result, _MAIN - fixed.LATENCY, ok[_BIASED + fixed.LATENCY:], "fixed")
        float_latency = to_float.LATENCY + scale.LATENCY + to_int.LATENCY
        float_out = later(to_int.result, _MAIN - float_latency, ok[_BIASED + float_latency:], "float")
        main = Signal(signed(32))
        with m.Switch(self.all.requant):
            with m.Case(Requant.BYPASS):
                m.d.comb += main.eq(bypass)
            with m.Case(Requant.FLOAT):
                m.d.comb += main.eq(float_out)
            with m.Default():
                m.d.comb += main.eq(fixed_out)

        # 4. zero point, saturate: for the residual to int8, as the result to its bounds
        at = _BIASED + _MAIN
        saturated = []
        for name, lo, hi in (("to_int8", -128, 127), ("to_bounds", self.all.lo, self.all.hi)):
            m.submodules[name] = clamp = ZeroPointClamp()
            m.d.comb += [
                clamp.in_valid.eq(ok[at]), clamp.value.eq(main), clamp.zero_point.eq(self.all.zero_point),
                clamp.lo.eq(lo), clamp.hi.eq(hi),
            ]
            saturated.append(clamp.result)
        m.d.comb += self.down.narrow.eq(saturated[1])

        # 5. residual
        m.d.comb += self.down.residual_out.eq(self._residual(m, later, ok, saturated[0]))
        return m

    def _residual(self, m: Module, later, ok, narrow):
        fixed_on, float_on = Signal(), Signal()
        m.d.comb += [fixed_on.eq(self.all.residual == Residual.FIXED), float_on.eq(self.all.residual == Residual.FLOAT)]
        start = _NARROW + 1
        a, b = Signal(signed(9), reset_less=True), Signal(signed(9), reset_less=True)
        with m.If(ok[_NARROW] & (fixed_on | float_on)):
            m.d.sync += [
                a.eq(narrow - self.all.zero_point),
                b.eq(self.col.residual_byte.as_signed() - self.all.zero_point2),
            ]
        operands = (("a", a, self.all.m1, self.all.shift1), ("b", b, self.all.m2, self.all.shift2))

        scaled = []
        for name, value, multiplier, shift in operands:
            rq = RequantFixed()
            m.submodules[f"fixed_{name}"] = rq
            m.d.comb += [
                rq.in_valid.eq(ok[start] & fixed_on), rq.acc.eq(value << 20), rq.mul.eq(multiplier),
                rq.shift.eq(shift),
            ]
            scaled.append(rq)
        total = Signal(signed(32), reset_less=True)
        exact = Signal(signed(33))
        m.d.comb += exact.eq(scaled[0].result + scaled[1].result)
        with m.If(scaled[0].out_valid):
            m.d.sync += total.eq(Mux(exact > INT32_MAX, INT32_MAX, Mux(exact < INT32_MIN, INT32_MIN, exact)))
        total_valid = Signal()
        m.d.sync += total_valid.eq(scaled[0].out_valid)
        m.submodules.fixed_sum = rq = RequantFixed()
        m.d.comb += [
            rq.in_valid.eq(total_valid), rq.acc.eq(total), rq.mul.eq(self.all.mo), rq.shift.eq(self.all.shifto),
        ]

        products = []
        for name, value, multiplier, _ in operands:
            to_float, product = IntToFp32(), Fp32Mul()
            m.submodules[f"to_float_{name}"] = to_float
            m.submodules[f"product_{name}"] = product
            m.d.comb += [
                to_float.in_valid.eq(ok[start] & float_on), to_float.value.eq(value),
                product.in_valid.eq(to_float.out_valid), product.a.eq(to_float.result), product.b.eq(multiplier),
            ]
            products.append(product)
        m.submodules.float_sum = add = Fp32Add()
        m.submodules.float_round = to_int = Fp32ToInt()
        m.d.comb += [
            add.in_valid.eq(products[0].out_valid), add.a.eq(products[0].result), add.b.eq(products[1].result),
            to_int.in_valid.eq(add.out_valid), to_int.value.eq(add.result),
        ]

        end = _NARROW + _ADD
        fixed_latency = 2 * RequantFixed.LATENCY + 1
        float_latency = IntToFp32.LATENCY + Fp32Mul.LATENCY + Fp32Add.LATENCY + Fp32ToInt.LATENCY
        fixed_out = later(rq.result, _ADD - 1 - fixed_latency, ok[start + fixed_latency:], "fixed_sum")
        float_out = later(to_int.result, _ADD - 1 - float_latency, ok[start + float_latency:], "float_sum")
        m.submodules.sum_to_bounds = clamp = ZeroPointClamp()
        m.d.comb += [
            clamp.in_valid.eq(ok[end]), clamp.value.eq(Mux(fixed_on, fixed_out, float_out)),
            clamp.zero_point.eq(self.all.zero_point_out), clamp.lo.eq(self.all.lo), clamp.hi.eq(self.all.hi),
        ]
        return clamp.result
