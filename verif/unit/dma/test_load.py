"""The load engine."""

import pytest

from sluice_hw.dma import DmaLoad
from verif.harness import run_bench
from verif.unit.memory import CONFIGS


@pytest.mark.parametrize("config", ["wide_beat", "narrow_beat", "odd", "slow"])
def test_dma_load(config):
    run_bench(DmaLoad(CONFIGS[config]), "verif.unit.dma.bench_load", name=f"load_{config}", env={"CONFIG": config})


def test_parameters():
    with pytest.raises(TypeError, match="config must be a ChipConfig, not 8"):
        DmaLoad(8)
