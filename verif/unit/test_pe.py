"""The processing element."""

import pytest

from sluice_hw.arith.multiply_add import array_type
from sluice_hw.pe import PE, psum_width
from verif.harness import run_bench

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


@pytest.mark.parametrize("rows, latency, dtype", [
    (8, 1, "int8"), (5, 3, "int8"), (8, 4, "bf16"), (8, 2, "int8+bf16"),
    pytest.param(8, 1, "bf16", marks=pytest.mark.soak), pytest.param(128, 6, "int8+bf16", marks=pytest.mark.soak),
])  # fmt: skip
def test_pe(rows, latency, dtype):
    kind = "" if dtype == "int8" else f"_{dtype.replace('+', '_')}"
    run_bench(PE(rows=rows, latency=latency, dtype=dtype), "verif.unit.bench_pe", name=f"pe_{rows}_l{latency}{kind}",
              env={"LATENCY": str(latency), "WIDTH": str(array_type(dtype).psum(rows).width), "DTYPE": dtype,
                   "INT_WIDTH": str(psum_width(rows))})


def test_psum_width_holds_the_largest_sum():
    for rows in (1, 2, 3, 4, 5, 8, 100, 128, 256, 1000):
        assert rows * 128 * 128 <= 2 ** (psum_width(rows) - 1) - 1
    assert [psum_width(rows) for rows in (1, 2, 3, 8, 9, 128, 256)] == [16, 17, 18, 19, 20, 23, 24]


def test_bad_parameters():
    with pytest.raises(ValueError, match="Number of rows must be at least 1, not 0"):
        PE(rows=0)
    with pytest.raises(TypeError, match="Number of rows must be an integer, not True"):
        PE(rows=True)
    with pytest.raises(ValueError, match="PE latency must be at least 1, not -1"):
        PE(rows=8, latency=-1)
    with pytest.raises(TypeError, match="PE latency must be an integer, not '1'"):
        PE(rows=8, latency="1")
