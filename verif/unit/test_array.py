"""The systolic array in its two forms."""

import pytest

from sluice.build import lint
from sluice_hw.array import SystolicArray
from sluice_hw.emit import WAIVERS
from sluice_hw.emit.verilog import to_verilog
from verif.harness import run_bench
from verif.unit.emit.both import Both


def run(rows: int, cols: int, latency: int, dtype: str) -> None:
    dut = Both(lambda emission: SystolicArray(rows=rows, cols=cols, latency=latency, dtype=dtype, emission=emission))
    array = dut.forms["loop"]
    kind = "" if dtype == "int8" else f"_{dtype.replace('+', '_')}"
    run_bench(dut, "verif.unit.bench_array", name=f"array_{rows}x{cols}_l{latency}{kind}", opt="-O0", env={
        "ROWS": str(rows), "COLS": str(cols), "LATENCY": str(array.latency), "LEAD": str(array.weight_lead),
        "WIDTH": str(array.psum_width), "DTYPE": dtype})


@pytest.mark.parametrize("rows, cols, latency, dtype", [
    (3, 5, 1, "int8"), (8, 8, 1, "int8"), (7, 4, 1, "int8"), (1, 1, 1, "int8"), (3, 4, 3, "int8"),
    (5, 3, 2, "int8+bf16"), pytest.param(3, 5, 4, "bf16", marks=pytest.mark.soak),
    pytest.param(16, 16, 1, "int8", marks=pytest.mark.soak),
])  # fmt: skip
def test_array(rows, cols, latency, dtype):
    run(rows, cols, latency, dtype)


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["bf16", "int8+bf16"])
@pytest.mark.parametrize("latency", range(1, 7))
def test_every_latency(latency, dtype):
    run(4, 3, latency, dtype)


@pytest.mark.soak
def test_bf16_of_16_by_16():
    run(16, 16, 4, "bf16")


def test_latency():
    array = SystolicArray(rows=7, cols=4)
    assert (array.latency, array.weight_lead, array.psum_width) == (7 + 4 - 1, 7, 19)
    assert SystolicArray(rows=7, cols=4, latency=3).latency == 7 * 3 + 3
    # One cycle more for the product of the first row; the rows below multiply ahead.
    array = SystolicArray(rows=7, cols=4, latency=3, dtype="bf16")
    assert (array.latency, array.weight_lead, array.psum_width) == (7 * 3 + 1 + 3, 7, 32)


def test_structural_text_holds_one_module_per_kind_of_cell():
    """The array's size is a number in the text, not a number of modules."""
    texts = [to_verilog(SystolicArray(rows=n, cols=n), name="top") for n in (16, 64)]
    assert [text.count("\nmodule ") for text in texts] == [len(texts[0].split("\nmodule ")) - 1] * 2
    assert texts[0].count("module sluice_array_16x16_pes_cell(") == 1


@pytest.mark.parametrize("emission", ["structural", "loop"])
def test_same_bytes_every_time(emission):
    one, two = (to_verilog(SystolicArray(rows=3, cols=2, emission=emission), name="top") for _ in range(2))
    assert one == two


@pytest.mark.soak
@pytest.mark.parametrize("size", [512, 1024])
def test_far_larger_than_any_chip(size):
    """The loop form's text hardly grows with the array, and Verilator's whole lint takes it."""
    text = to_verilog(SystolicArray(rows=size, cols=size, emission="loop"), name="top")
    assert len(text) < 200_000
    lint(text, "top", WAIVERS)


def test_bad_parameters():
    with pytest.raises(ValueError, match="Number of rows must be at least 1, not 0"):
        SystolicArray(rows=0, cols=4)
    with pytest.raises(ValueError, match="Grid cols must be at least 1, not -3"):
        SystolicArray(rows=4, cols=-3)
    with pytest.raises(TypeError, match="Number of rows must be an integer, not 4.0"):
        SystolicArray(rows=4.0, cols=4)
    with pytest.raises(ValueError, match="PE latency must be at least 1, not 0"):
        SystolicArray(rows=4, cols=4, latency=0)
    with pytest.raises(ValueError, match="dtype must be one of int8, bf16, int8.bf16, not 'fp8'"):
        SystolicArray(rows=4, cols=4, dtype="fp8")
    with pytest.raises(ValueError, match="PE latency must be at most 6 for bf16, not 7"):
        SystolicArray(rows=4, cols=4, dtype="bf16", latency=7)
    with pytest.raises(ValueError, match="emission must be one of structural, loop, not 'flat'"):
        SystolicArray(rows=4, cols=4, emission="flat")
