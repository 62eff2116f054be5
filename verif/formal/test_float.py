"""The floating-point adder, in every number of stages, and the multiplier equal exact arithmetic.

Bound: formats of 1-4-3 bits (products 1-4-7), for every pair of operands, every reset and every bubble. The multiplier
for all time; the adder within two cycles more than it has stages, from a reset on, and it has no other state than those
stages. The units are parametric; fp32 itself is compared with integers by ``verif/unit/arith``.

The specification is fixed point: a finite number is an integer multiple of the smallest step, a sum is a sum of
integers, and the result is rounded where its leading one is.
"""

from __future__ import annotations

import pytest
from amaranth.hdl import Cat, Const, Fragment, Module, Mux, Signal, Value, signed

from sluice_hw.arith import Bf16Mul, FloatFormat, Fp32Add
from sluice_hw.arith.add import MAX_ADD_LATENCY
from verif.formal.claims import Check, altered, planted, prove_bites, prove_checks
from verif.formal.sat import check

SMALL = FloatFormat(exp_bits=4, man_bits=3)
PRODUCT = FloatFormat(exp_bits=4, man_bits=7)


class FloatCheck(Check):
    """A lane with two operands beside its specification."""

    def __init__(self, lane, result: FloatFormat) -> None:
        super().__init__()
        self.lane, self.format = lane, result

    def describe(self, m: Module) -> None:
        m.submodules.lane = lane = self.lane
        a, b, valid = (self.free(width, name) for width, name in ((8, "a"), (8, "b"), (1, "valid")))
        m.d.comb += [Value.cast(lane.a).eq(a), Value.cast(lane.b).eq(b), lane.in_valid.eq(valid)]
        latency = lane.LATENCY
        x, y = self.delayed(m, a, latency, "a"), self.delayed(m, b, latency, "b")
        self.claim(m, lane.out_valid == self.delayed(m, valid, latency, "valid"))
        with m.If(lane.out_valid):
            self.claim(m, Value.cast(lane.result) == self.specify(m, x, y))

    def parts(self, m: Module, x: Value, name: str):
        """Sign, whether it is a NaN, infinite, zero; and 2^9 times its magnitude, where finite."""
        exp, man = x[3:7], x[:3]
        magnitude = Signal(18, name=f"{name}_magnitude")
        m.d.comb += magnitude.eq(Mux(exp == 0, 0, Cat(man, Const(1, 1)) << (exp - 1)[:4]))
        return x[7], (exp == 15) & (man != 0), (exp == 15) & (man == 0), exp == 0, magnitude

    def pack(self, m: Module, value: Value, unit: int, sign: Value, nan: Value, inf: Value) -> Value:
        """A magnitude in units of 2^unit, to nearest even, flushed below the normal range."""
        fmt = self.format
        exact, low = Signal(len(value) + fmt.man_bits + 2), fmt.man_bits + 2
        m.d.comb += exact.eq(Cat(Const(0, low), value))
        magnitude = Signal(fmt.exp_bits + fmt.man_bits)
        for place in range(len(value)):  # the last one that is set decides
            with m.If(value[place]):
                top = low + place
                kept = exact[top - fmt.man_bits : top]
                half, rest = exact[top - fmt.man_bits - 1], exact[: top - fmt.man_bits - 1].any()
                stored = place + unit + fmt.bias
                rounded = Signal(fmt.man_bits + 1, name=f"rounded_{place}")
                m.d.comb += rounded.eq(kept + (half & (rest | kept[0])))
                after = Mux(rounded[-1], stored + 1, stored)
                if stored < 1:
                    m.d.comb += magnitude.eq(0)
                else:
                    infinite = Const(fmt.exp_special << fmt.man_bits, len(magnitude))
                    m.d.comb += magnitude.eq(
                        Mux(after >= fmt.exp_special, infinite, Cat(rounded[:-1], after[: fmt.exp_bits]))
                    )
        special = fmt.exp_special << fmt.man_bits
        return Mux(nan, special | fmt.nan_man, Cat(Mux(inf, special, magnitude)[: len(magnitude)], sign))

    def specify(self, m: Module, x: Value, y: Value) -> Value:
        raise NotImplementedError


class SumCheck(FloatCheck):
    """The adder."""

    def __init__(self, cls: type = Fp32Add, *, latency: int = 4) -> None:
        super().__init__(cls(fmt=SMALL, latency=latency), SMALL)

    def specify(self, m: Module, x: Value, y: Value) -> Value:
        (xs, x_nan, x_inf, x_zero, xm), (ys, y_nan, y_inf, y_zero, ym) = self.parts(m, x, "x"), self.parts(m, y, "y")
        total, size = Signal(signed(20)), Signal(19)
        m.d.comb += total.eq(Mux(xs, -xm, xm) + Mux(ys, -ym, ym))
        m.d.comb += size.eq(Mux(total < 0, -total, total))
        nan = x_nan | y_nan | (x_inf & y_inf & (xs ^ ys))
        inf = x_inf | y_inf
        sign = Mux(inf, Mux(x_inf, xs, ys), Mux(total == 0, x_zero & y_zero & xs & ys, total < 0))
        return self.pack(m, size, -9, sign, nan, inf)


class ProductCheck(FloatCheck):
    """The multiplier."""

    def __init__(self, cls: type = Bf16Mul) -> None:
        super().__init__(cls(fmt=SMALL, result=PRODUCT), PRODUCT)

    def specify(self, m: Module, x: Value, y: Value) -> Value:
        (xs, x_nan, x_inf, x_zero, _), (ys, y_nan, y_inf, y_zero, _) = self.parts(m, x, "x"), self.parts(m, y, "y")
        factor, size = Signal(8), Signal(34)
        m.d.comb += factor.eq(Cat(x[:3], Const(1, 1)) * Cat(y[:3], Const(1, 1)))
        m.d.comb += size.eq(Mux(x_zero | y_zero, 0, factor << (x[3:7] + y[3:7] - 2)[:5]))
        nan = x_nan | y_nan | (x_inf & y_zero) | (y_inf & x_zero)
        return self.pack(m, size, -18, xs ^ ys, nan, x_inf | y_inf)


@pytest.mark.formal
def test_multiplier():
    prove_checks("float_product", {"product": ProductCheck()}, depth=2)


@pytest.mark.formal
@pytest.mark.parametrize(
    "latency",
    [4, *(pytest.param(k, marks=pytest.mark.soak) for k in range(1, MAX_ADD_LATENCY + 1) if k != 4)],
)
def test_adder(latency):
    adder = SumCheck(latency=latency)
    fragment = Fragment.get(adder, None)  # its free inputs come to life
    check(fragment, name=f"float_sum_{latency}", depth=latency + 2, ports=adder.ports)


@pytest.mark.formal
@pytest.mark.parametrize("bug", planted({
    "ties go up": ("(normal[:3].any() | normal[4])", "1"),
    "far operands are not shifted out": ("Mux(distance > far, far, 0)", "0"),
    "subnormals are not flushed": ("lost = underflow | ~normal[-1]", "lost = ~normal[-1]"),
    "inf - inf is inf": ("| (subtract & (small.exp == fmt.exp_special))", ""),
    "cancelled sums keep a sign": ("& (normal[-1] | ~flag.subtract)", ""),
    "a valid bit is early": ("self.done += 1", "self.done += 0"),
}))  # fmt: skip
def test_a_wrong_adder_is_refuted(bug):
    prove_bites("float_sum_bug", SumCheck(altered(Fp32Add, bug)), depth=6)


@pytest.mark.formal
@pytest.mark.parametrize("bug", planted({
    "subnormal products stay": ("(exp <= fmt.bias)", "(exp < fmt.bias)"),
    "0 x inf is inf": ("| (special & zero)", ""),
}))  # fmt: skip
def test_a_wrong_multiplier_is_refuted(bug):
    prove_bites("float_product_bug", ProductCheck(altered(Bf16Mul, bug)), depth=3)
