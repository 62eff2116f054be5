"""Weight loader alone."""

import pytest

from sluice_hw.config import preset
from sluice_hw.weights import WeightLoader
from verif.harness import run_bench

#: Of int8 and bf16.
DIRECT = ("a_tile_every_r_cycles", "random_tiles", "the_end_of_vmem")
TRANSPOSED = ("a_transposed_tile_every_max_r_c_cycles", "by_turns", "random_mixes", "the_end_of_vmem_transposed")


@pytest.mark.parametrize(("rows", "cols"), [(8, 8), (12, 5), (2, 1), (20, 7)])
def test_loader(rows: int, cols: int) -> None:
    config = preset("tiny").replace(name="test", rows=rows, cols=cols, acc_bytes=64 * cols)
    run_bench(WeightLoader(config), "verif.unit.bench_weights", name=f"weights_{rows}x{cols}", testcases=DIRECT,
              env={"ROWS": str(rows), "COLS": str(cols)})


@pytest.mark.parametrize(("rows", "cols", "emission"), [
    (5, 3, "loop"),
    pytest.param(8, 8, "structural", marks=pytest.mark.soak),
    pytest.param(3, 7, "loop", marks=pytest.mark.soak),
    pytest.param(2, 1, "loop", marks=pytest.mark.soak),
    pytest.param(20, 9, "loop", marks=pytest.mark.soak),
])
def test_loader_of_bf16(rows: int, cols: int, emission: str) -> None:
    config = preset("tiny").replace(name="test", rows=rows, cols=cols, dtype="bf16", acc_bytes=64 * cols)
    run_bench(WeightLoader(config, emission), "verif.unit.bench_weights", name=f"weights_bf16_{rows}x{cols}",
              testcases=DIRECT + TRANSPOSED, opt="-O0", env={"ROWS": str(rows), "COLS": str(cols), "DTYPE": "bf16"})


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_config_is_checked() -> None:
    with pytest.raises(TypeError, match="config must be a ChipConfig, not None"):
        WeightLoader(None)
