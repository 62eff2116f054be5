"""The banked vector memory."""

import pytest

from sluice_hw.config import preset
from sluice_hw.emit.verilog import to_verilog
from sluice_hw.vmem import Vmem
from verif.harness import run_bench
from verif.unit.memory import CONFIGS


@pytest.mark.parametrize("config", ["wide_beat", "narrow_beat", "equal_beat", "odd"])
def test_vmem(config):
    run_bench(Vmem(CONFIGS[config]), "verif.unit.bench_vmem", name=f"vmem_{config}", env={"CONFIG": config})


def test_size_of_verilog_does_not_depend_on_depth():
    config = preset("v1")
    deep = to_verilog(Vmem(config), name="vmem")
    shallow = to_verilog(Vmem(config.replace(vmem_bytes=1 << 20)), name="vmem")
    assert abs(len(deep) - len(shallow)) < 0.02 * len(deep)


def test_parameters():
    config = CONFIGS["odd"]
    assert Vmem(config).config is config
    with pytest.raises(TypeError, match="config must be a ChipConfig, not 'tiny'"):
        Vmem("tiny")
