"""The AXI4 back end."""

import pytest

from sluice_hw.hbm.axi4 import Axi4Memory
from verif.harness import run_bench
from verif.unit.memory import CONFIGS


def test_axi4_memory():
    run_bench(Axi4Memory(CONFIGS["wide_beat"]), "verif.unit.hbm.bench_axi4", name="axi4", env={"CONFIG": "wide_beat"})


def test_parameters():
    config = CONFIGS["wide_beat"]
    with pytest.raises(ValueError, match="hbm_beat_bytes of a chip on AXI4 must be 32, not 64"):
        Axi4Memory(CONFIGS["odd"])
    for wrong, text in (
        ({"base": 100}, "base must be a multiple of 4096, not 100"),
        ({"reads": 3}, "reads must be a power of two from 2, not 3"),
        ({"address_bits": 14}, "address_bits must reach byte 32767; 14 do not"),
        ({"reads": 32}, "id_bits must tell 32 bursts apart; 4 do not"),
    ):
        with pytest.raises(ValueError, match=text):
            Axi4Memory(config, **wrong)
    with pytest.raises(TypeError, match="config must be a ChipConfig, not None"):
        Axi4Memory(None)
