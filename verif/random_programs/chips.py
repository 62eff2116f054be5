"""The chips that random programs run on, by name: what a failure prints as `--config`."""

from __future__ import annotations

from sluice_hw.config import ChipConfig, preset
from sluice_hw.emit.chip import chip_verilog
from verif.harness import open_chip
from verif.models.slow_memory import SlowMemory
from verif.system.configs import FLOAT_CONFIGS, MEMORY_CONFIGS, RANDOM_CONFIGS

from .compare import Bench

__all__ = ["CHIPS", "DRAM", "SLOW", "open_bench"]

#: In front of a memory of random latency and gaps (:class:`~verif.models.slow_memory.SlowMemory`).
SLOW = RANDOM_CONFIGS["odd"].replace(name="odd-slow")
DRAM = preset("tiny-hbm2")

CHIPS: dict[str, ChipConfig] = {
    **RANDOM_CONFIGS, **FLOAT_CONFIGS, **MEMORY_CONFIGS, **{config.name: config for config in (SLOW, DRAM)},
}  # fmt: skip


def open_bench(config: ChipConfig, backend: str = "rtl") -> Bench:
    """A chip to run cases on."""
    source = None
    if config is SLOW and backend == "rtl":
        source = chip_verilog(config, emission="loop", memory=SlowMemory(config, seed=1))
    return Bench(open_chip(config, backend, source=source))
