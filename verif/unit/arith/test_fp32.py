"""fp32 conversions, product and sum."""

import pytest

from sluice_hw.arith import FP32, FloatFormat, Fp32Add, Fp32Mul, Fp32ToInt, IntToFp32
from verif.harness import run_bench
from verif.unit.arith.lanes import Lanes

UNITS = {"add": Fp32Add, "mul": Fp32Mul, "from_int": IntToFp32, "to_int": Fp32ToInt}


@pytest.mark.parametrize("unit", UNITS)
def test_fp32(unit):
    cls = UNITS[unit]
    run_bench(
        Lanes(cls), "verif.unit.arith.bench_fp32", name=f"fp32_{unit}",
        env={"UNIT": unit, "LATENCY": str(cls.LATENCY)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("unit", "exp_bits", "man_bits", "width"),
    [
        ("add", 4, 3, None),  # 65,536 pairs each
        ("add", 3, 4, None),
        ("mul", 4, 3, None),
        ("mul", 3, 4, None),
        ("from_int", 4, 3, 12),  # integers beyond the format's range
        ("from_int", 5, 10, 6),  # integers narrower than the significand
        ("to_int", 5, 10, 8),
        ("to_int", 5, 6, 16),
        ("to_int", 3, 10, 5),  # more fraction bits than integer bits
    ],
)
def test_small_format_exhaustively(unit, exp_bits, man_bits, width):
    cls, fmt = UNITS[unit], FloatFormat(exp_bits=exp_bits, man_bits=man_bits)
    kwargs = {} if width is None else {"width": width}
    run_bench(
        Lanes(lambda: cls(fmt=fmt, **kwargs)), "verif.unit.arith.bench_fp32",
        name=f"small_{unit}_{exp_bits}_{man_bits}",
        env={
            "UNIT": unit, "LATENCY": str(cls.LATENCY),
            "SMALL": ",".join(str(v) for v in (exp_bits, man_bits, width) if v is not None),
        },
    )  # fmt: skip


def test_parameters():
    assert (FP32.width, FP32.bias, FP32.exp_special, FP32.nan_man) == (32, 127, 255, 0x400000)
    with pytest.raises(TypeError, match="fmt must be a FloatFormat, not 'fp32'"):
        Fp32Mul(fmt="fp32")
    for cls in (IntToFp32, Fp32ToInt):
        with pytest.raises(ValueError, match="width must be at least 2, not 1"):
            cls(width=1)
        with pytest.raises(TypeError, match="width must be an int, not None"):
            cls(width=None)
    with pytest.raises(ValueError, match="exp_bits must be at least 3, not 2"):
        FloatFormat(exp_bits=2, man_bits=3)
    with pytest.raises(TypeError, match="man_bits must be an int, not True"):
        FloatFormat(exp_bits=4, man_bits=True)
