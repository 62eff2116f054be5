"""Host side of the chip: registers, data port, slice buffer, with AXI masters that nobody here wrote."""

import pytest

from sluice_hw.host import Host, HostAxi
from verif.harness import run_bench
from verif.unit.hostbench import CONFIGS


@pytest.mark.parametrize("config", CONFIGS)
def test_host(config):
    run_bench(Host(config=CONFIGS[config]), "verif.unit.bench_host", name=f"host_{config}", env={"CONFIG": config})


def test_parameters():
    config = CONFIGS["narrow"]
    assert HostAxi(config=config, id_bits=6).id_bits == 6
    with pytest.raises(ValueError, match="id_bits must be 1 to 32, not 0"):
        HostAxi(config=config, id_bits=0)
    with pytest.raises(TypeError, match="id_bits must be an integer, not '4'"):
        HostAxi(config=config, id_bits="4")
