"""The ECC guard: codec, error masks, scrubber, counters, in every mode."""

import pytest

from sluice_hw.hbm.guard import EccGuard, usable_slices
from verif.harness import run_bench
from verif.unit.hbm.guarded import GuardedMemory
from verif.unit.memory import CONFIGS


@pytest.mark.parametrize(
    "mode, config",
    [
        ("sideband", "equal_beat"),
        ("inband", "narrow_beat"),
        ("device", "narrow_beat"),
        *(pytest.param(mode, "odd", marks=pytest.mark.soak) for mode in ("sideband", "inband")),
        pytest.param("sideband", "slow", marks=pytest.mark.soak),
    ],
)
def test_guard(mode, config):
    run_bench(GuardedMemory(CONFIGS[config], mode), "verif.unit.hbm.bench_guard", name=f"guard_{mode}_{config}",
              env={"CONFIG": config, "MODE": mode})  # fmt: skip


def test_inband_costs_a_ninth():
    for config in CONFIGS.values():
        data = usable_slices(config, "inband")
        assert data + -(-data // 8) <= config.hbm_slices
        assert data + 1 + -(-(data + 1) // 8) > config.hbm_slices, "one more would fit"
        assert usable_slices(config, "sideband") == config.hbm_slices


def test_parameters():
    with pytest.raises(ValueError, match="ECC mode must be one of sideband, inband, device, not 'chipkill'"):
        EccGuard(CONFIGS["odd"], mode="chipkill")
    with pytest.raises(TypeError, match="config must be a ChipConfig, not None"):
        EccGuard(None, mode="sideband")
