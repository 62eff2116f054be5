"""Weight loader alone."""

import pytest

from sluice_hw.config import preset
from sluice_hw.weights import WeightLoader
from verif.harness import run_bench


@pytest.mark.parametrize(("rows", "cols"), [(8, 8), (12, 5), (2, 1), (20, 7)])
def test_loader(rows: int, cols: int) -> None:
    config = preset("tiny").replace(name="test", rows=rows, cols=cols, acc_bytes=64 * cols)
    run_bench(WeightLoader(config), "verif.unit.bench_weights", name=f"weights_{rows}x{cols}",
              env={"ROWS": str(rows), "COLS": str(cols)})


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_config_is_checked() -> None:
    with pytest.raises(TypeError, match="config must be a ChipConfig, not None"):
        WeightLoader(None)
