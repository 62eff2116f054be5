"""Both DMA engines with VMEM and HBM."""

import pytest

from verif.harness import run_bench
from verif.unit.dma.path import MemoryPath
from verif.unit.memory import CONFIGS


@pytest.mark.parametrize("config", ["wide_beat", "narrow_beat", "odd"])
def test_memory_path(config):
    run_bench(MemoryPath(CONFIGS[config]), "verif.unit.dma.bench_path", name=f"path_{config}", env={"CONFIG": config})
