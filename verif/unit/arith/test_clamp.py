"""Zero point and clamp."""

import numpy as np
import pytest

from sluice.golden import numerics as nx
from sluice_hw.arith import ZeroPointClamp
from verif.harness import run_bench
from verif.unit.arith.lanes import Lanes


def test_zero_point_clamp():
    run_bench(
        Lanes(ZeroPointClamp), "verif.unit.arith.bench_clamp", name="zero_point_clamp",
        env={"LATENCY": str(ZeroPointClamp.LATENCY)},
    )  # fmt: skip


def test_the_formula_of_the_bench_is_that_of_golden():
    value = np.array([-(2**31), -300, -1, 0, 1, 300, 2**31 - 1])
    for zero_point, lo, hi in ((-128, -128, 127), (127, -5, 6), (3, 0, 0)):
        expected = np.minimum(np.maximum(value + zero_point, lo), hi)
        np.testing.assert_array_equal(nx.clamp_int8(value, zero_point, lo, hi), expected)


def test_parameters():
    with pytest.raises(ValueError, match="out_width must be at least 2, not 1"):
        ZeroPointClamp(out_width=1)
    with pytest.raises(ValueError, match=r"value_width must be more than out_width \+ 1 = 9, not 9"):
        ZeroPointClamp(value_width=9)
    with pytest.raises(TypeError, match="value_width must be an int, not '32'"):
        ZeroPointClamp(value_width="32")
