"""The bf16 multiplier: every pair of exponents with a covering set of fractions."""

import numpy as np
import pytest
from amaranth.hdl import Const, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from sluice.golden import numerics_bf16 as bf
from sluice_hw.arith import FP32, Bf16Mul, FloatFormat
from verif.models.lanes import LaneRow
from verif.unit.arith import exact_bf16 as exact

# Least, greatest, a single bit at each place, and pairs whose products lie on both sides of 2.
FRACTIONS = np.array([0, 1, 2, 4, 8, 16, 32, 64, 53, 54, 127], np.uint16)


class MulCell(wiring.Component):
    """The multiplier as a cell of a grid."""

    LATENCY = Bf16Mul.LATENCY

    def __init__(self) -> None:
        self.mul = Bf16Mul()
        super().__init__({
            "all": In(wiring.Signature({"valid": Out(1)})),
            "col": In(wiring.Signature({"a": Out(32), "b": Out(32)})),
            "down": Out(wiring.Signature({"result": Out(32)})),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.mul = mul = self.mul
        m.d.comb += [
            mul.in_valid.eq(self.all.valid),
            Value.cast(mul.a).eq(self.col.a[:16]),
            Value.cast(mul.b).eq(self.col.b[:16]),
            self.down.result.eq(Value.cast(mul.result) | Const(0, 32)),
        ]
        return m


def test_every_pair_of_exponents():
    exps = np.arange(256, dtype=np.uint16)
    fraction_a, fraction_b, exp_a, exp_b = (x.ravel() for x in np.meshgrid(FRACTIONS, FRACTIONS, exps, exps))
    sign = np.arange(len(exp_a), dtype=np.uint32) * 2654435761 >> 20
    a = exp_a << 7 | fraction_a | (sign & 1).astype(np.uint16) << 15
    b = exp_b << 7 | fraction_b | (sign >> 1 & 1).astype(np.uint16) << 15
    with LaneRow(MulCell(), name="bf16_mul", cols=16) as model:
        got = model.run({"a": a, "b": b}, {}, bubbles=True)["result"]
    wrong = np.flatnonzero(got != bf.bf16_mul(a, b).view(np.uint32))
    assert not len(wrong), (hex(a[wrong[0]]), hex(b[wrong[0]]), hex(got[wrong[0]]))
    # Golden is compared with integers over all exponents elsewhere; here both, over a part.
    for x, y, z in zip(a[::37].tolist(), b[::37].tolist(), got[::37].tolist(), strict=True):
        assert z == exact.mul(x, y), (hex(x), hex(y), hex(z))


def test_parameters():
    with pytest.raises(ValueError, match="exponent must have 4 bits, as the operands', not 8"):
        Bf16Mul(fmt=FloatFormat(exp_bits=4, man_bits=3), result=FP32)
    with pytest.raises(ValueError, match="at least 7 bits, not 6"):
        Bf16Mul(fmt=FloatFormat(exp_bits=4, man_bits=3), result=FloatFormat(exp_bits=4, man_bits=6))
