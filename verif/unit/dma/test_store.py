"""The store engine."""

import pytest

from sluice_hw.dma import DmaStore
from verif.harness import run_bench
from verif.unit.memory import CONFIGS


@pytest.mark.parametrize("config", ["wide_beat", "narrow_beat", "odd", "slow"])
def test_dma_store(config):
    run_bench(DmaStore(CONFIGS[config]), "verif.unit.dma.bench_store", name=f"store_{config}", env={"CONFIG": config})


def test_parameters():
    with pytest.raises(TypeError, match="config must be a ChipConfig, not 8"):
        DmaStore(8)
