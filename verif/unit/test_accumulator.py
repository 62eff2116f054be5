"""Accumulators alone."""

import pytest

from sluice_hw.accumulator import Accumulator
from sluice_hw.config import preset
from verif.harness import run_bench

ANY = ("everything_at_once", "the_same_row_in_consecutive_cycles")


@pytest.mark.parametrize(("rows", "cols", "acc_rows"), [(8, 8, 64), (64, 3, 26), (2, 1, 10)])
def test_accumulator(rows: int, cols: int, acc_rows: int) -> None:
    acc_bytes = 4 * cols * acc_rows
    config = preset("tiny").replace(name="test", rows=rows, cols=cols, acc_bytes=acc_bytes)
    # The more rows, the larger a sum may be, and the sooner it wraps.
    tests = (*ANY, "sums_wrap") if rows == 64 else ANY
    run_bench(Accumulator(config), "verif.unit.bench_accumulator", name=f"accumulator_{rows}x{cols}", testcases=tests,
              env={"ROWS": str(rows), "COLS": str(cols), "ACC_BYTES": str(acc_bytes)})


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_config_is_checked() -> None:
    with pytest.raises(TypeError, match="config must be a ChipConfig, not 3"):
        Accumulator(3)
