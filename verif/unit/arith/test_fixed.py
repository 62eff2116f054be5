"""The fixed-point requantiser."""

import pytest

from sluice_hw.arith import RequantFixed
from verif.harness import run_bench
from verif.unit.arith.lanes import Lanes


def test_requant_fixed():
    run_bench(
        Lanes(RequantFixed), "verif.unit.arith.bench_fixed", name="requant_fixed",
        env={"LATENCY": str(RequantFixed.LATENCY)},
    )  # fmt: skip


def test_parameters():
    assert RequantFixed().shift_max == 62
    assert RequantFixed().shift_width == 6
    assert RequantFixed(acc_width=8, mul_width=6).shift_max == 12
    with pytest.raises(ValueError, match="acc_width must be at least 4, not 3"):
        RequantFixed(acc_width=3)
    with pytest.raises(ValueError, match="mul_width must be at least 2, not 1"):
        RequantFixed(mul_width=1)
    with pytest.raises(TypeError, match="mul_width must be an int, not 8.0"):
        RequantFixed(mul_width=8.0)
