"""The fixed-point requantiser equals its formula, for every input, reset and bubble, of a bounded width.

The unit is parametric, and a solver cannot compare wide multipliers, so the bound has two faces:

- 5 x 5 bits (6 x 6 in the soak run), every shift: all of the unit, its split multiplication included;
- a 22-bit accumulator by a 2-bit factor, every shift, and a 62-bit one, the real 64-bit datapath behind the multiplier,
  at single shifts (every one of 62 in the soak run).

Wider products are covered with vectors, by ``verif/unit/arith/bench_fixed.py``.
"""

from __future__ import annotations

import pytest
from amaranth.hdl import Assert, Assume, Const, Elaboratable, Module, Mux, Signal, signed

from sluice_hw.arith import RequantFixed, Rounding
from verif.formal.sby import ProofFailed, prove


class FormulaCheck(Elaboratable):
    """The unit beside its formula, written with one full-width multiplication and no pipeline."""

    def __init__(self, *, acc_width: int, mul_width: int, shift: int | None = None, flaw: int = 0) -> None:
        self.dut = RequantFixed(acc_width=acc_width, mul_width=mul_width)
        self.shift = shift
        self.flaw = flaw

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = dut = self.dut
        width, full = dut.acc_width, dut.acc_width + dut.mul_width + 2
        if self.shift is None:
            m.d.comb += Assume((dut.shift >= 1) & (dut.shift <= dut.shift_max))
        else:
            m.d.comb += dut.shift.eq(self.shift)

        # Inputs of LATENCY cycles ago. A reset drops what is in flight.
        acc, mul, shift, rounding = dut.acc, dut.mul, dut.shift, Signal(1)
        m.d.comb += rounding.eq(dut.rounding)
        valid = dut.in_valid
        for k in range(dut.LATENCY):
            now = (acc, mul, shift, rounding, valid)
            acc, mul, shift, rounding, valid = (Signal.like(s, name=f"past_{k}_{i}") for i, s in enumerate(now))
            past = (acc, mul, shift, rounding, valid)
            m.d.sync += [later.eq(earlier) for later, earlier in zip(past, now, strict=True)]
        if self.shift is not None:
            shift = Const(self.shift, dut.shift_width)

        negative = Signal()
        m.d.comb += negative.eq((rounding == Rounding.AWAY.value) & (acc < 0))
        magnitude, product = Signal(signed(width + 1)), Signal(signed(full))
        m.d.comb += magnitude.eq(Mux(negative, -acc, acc))
        m.d.comb += product.eq(magnitude * mul)
        half = Signal(signed(full))
        m.d.comb += half.eq((Const(1, full) << shift) >> 1)
        y, signed_y = Signal(signed(full)), Signal(signed(full))
        m.d.comb += y.eq((product + half - self.flaw) >> shift)
        m.d.comb += signed_y.eq(Mux(negative, -y, y))
        low, high = -(2 ** (width - 1)), 2 ** (width - 1) - 1
        expected = Signal(signed(width))
        m.d.comb += expected.eq(Mux(signed_y < low, low, Mux(signed_y > high, high, signed_y)))

        m.d.comb += Assert(dut.out_valid == valid)
        with m.If(dut.out_valid):
            m.d.comb += Assert(dut.result == expected)
        return m

    @property
    def ports(self) -> list:
        dut = self.dut
        shift = [dut.shift] if self.shift is None else []
        return [dut.in_valid, dut.acc, dut.mul, *shift, dut.rounding.as_value()]


def prove_formula(acc_width: int, mul_width: int, shift: int | None = None) -> None:
    check = FormulaCheck(acc_width=acc_width, mul_width=mul_width, shift=shift)
    # Everything in the pipeline came in within LATENCY cycles, so one cycle more makes the induction complete.
    prove(
        check, name=f"requant_{acc_width}_{mul_width}" + (f"_by_{shift}" if shift else ""),
        depth=check.dut.LATENCY + 1, ports=check.ports,
    )  # fmt: skip


@pytest.mark.formal
@pytest.mark.parametrize(("acc_width", "mul_width"), [(5, 5), (22, 2)])
def test_every_shift(acc_width, mul_width):
    prove_formula(acc_width, mul_width)


@pytest.mark.formal
@pytest.mark.parametrize("shift", [31, 62])
def test_full_datapath(shift):
    prove_formula(62, 2, shift)


@pytest.mark.formal
@pytest.mark.soak
def test_wider_multiplication():
    prove_formula(6, 6)


@pytest.mark.formal
@pytest.mark.soak
@pytest.mark.parametrize("shift", range(1, 63))
def test_full_datapath_at_every_shift(shift):
    prove_formula(62, 2, shift)


@pytest.mark.formal
def test_a_wrong_formula_is_refuted():
    check = FormulaCheck(acc_width=5, mul_width=5, flaw=1)  # rounds ties down instead of up
    with pytest.raises(ProofFailed, match="failed assertion"):
        prove(check, name="requant_flawed", mode="bmc", depth=check.dut.LATENCY + 2, ports=check.ports)
