"""The slice arbiter."""

import pytest

from sluice_hw.hbm.arbiter import SliceArbiter
from verif.harness import run_bench
from verif.unit.memory import CONFIGS


@pytest.mark.parametrize("config, ports", [("wide_beat", 2), ("odd", 3), ("slow", 1)])
def test_slice_arbiter(config, ports):
    run_bench(SliceArbiter(CONFIGS[config], ports), "verif.unit.hbm.bench_arbiter", name=f"arbiter_{config}_{ports}",
              env={"CONFIG": config, "PORTS": str(ports)})  # fmt: skip


def test_parameters():
    config = CONFIGS["odd"]
    with pytest.raises(TypeError, match="config must be a ChipConfig, not 1"):
        SliceArbiter(1)
    with pytest.raises(ValueError, match="Number of ports must be 1 to 16, not 0"):
        SliceArbiter(config, 0)
    with pytest.raises(TypeError, match="Number of ports must be an integer, not True"):
        SliceArbiter(config, True)
