"""Vector unit: both emissions of the lanes, sizes that are and are not powers of two."""

import pytest

from sluice_hw.vpu import Vpu
from verif.harness import run_bench
from verif.unit.vpu.configs import CONFIGS


@pytest.mark.parametrize(("config", "emission"), [("square", "structural"), ("odd", "loop")])
def test_vpu(config: str, emission: str) -> None:
    run_bench(
        Vpu(CONFIGS[config], emission=emission), "verif.unit.vpu.bench_vpu", name=f"vpu_{config}_{emission}",
        env={"CONFIG": config},
    )
