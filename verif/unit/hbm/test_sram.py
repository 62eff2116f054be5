"""The SRAM back end of HBM."""

import pytest

from sluice_hw.config import preset
from sluice_hw.emit.verilog import to_verilog
from sluice_hw.hbm.sram import SliceMemory
from verif.harness import run_bench
from verif.unit.memory import CONFIGS


@pytest.mark.parametrize("config", ["wide_beat", "odd", "three_quarters", "five_eighths"])
def test_slice_memory(config):
    run_bench(SliceMemory(CONFIGS[config]), "verif.unit.hbm.bench_sram", name=f"sram_{config}", env={"CONFIG": config})


def test_longer_latency():
    """A latency other than the least, and slices of one beat."""
    run_bench(SliceMemory(CONFIGS["slow"]), "verif.unit.hbm.bench_sram", name="sram_slow", env={"CONFIG": "slow"},
              testcases=["read_latency", "states"])  # fmt: skip


def test_no_contents_in_verilog():
    text = to_verilog(SliceMemory(preset("v1")), name="hbm")
    assert "initial" not in text.split("module sluice_ram_1rw")[1]
    assert len(text) < 500_000


def test_parameters():
    with pytest.raises(TypeError, match="config must be a ChipConfig, not None"):
        SliceMemory(None)
