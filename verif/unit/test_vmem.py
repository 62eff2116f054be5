"""The banked vector memory."""

import pytest

from sluice_hw.emit.verilog import to_verilog
from sluice_hw.vmem import Vmem
from verif.harness import run_bench
from verif.unit.memory import CONFIGS


@pytest.mark.parametrize("config", ["wide_beat", "narrow_beat", "equal_beat", "odd"])
def test_vmem(config):
    run_bench(Vmem(CONFIGS[config]), "verif.unit.bench_vmem", name=f"vmem_{config}", opt="-O0", env={"CONFIG": config})


def test_contents_are_not_in_verilog():
    """Depth costs a few address bits, not a line for each row, nor even a quarter of a character."""
    shallow = CONFIGS["wide_beat"].replace(vmem_bytes=1 << 22)
    deep = shallow.replace(vmem_bytes=1 << 24)
    texts = [to_verilog(Vmem(config), name="vmem") for config in (shallow, deep)]
    assert abs(len(texts[1]) - len(texts[0])) < (deep.vmem_bank_rows - shallow.vmem_bank_rows) // 4


def test_parameters():
    config = CONFIGS["odd"]
    assert Vmem(config).config is config
    with pytest.raises(TypeError, match="config must be a ChipConfig, not 'tiny'"):
        Vmem("tiny")
