"""Legality of single words."""

import pytest

from sluice_hw.config import preset
from sluice_hw.decoder import Decoder
from verif.harness import run_bench
from verif.unit.microcode import CONFIG

CONFIGS = {"odd": CONFIG, "bf16": preset("tiny").replace(name="bf16", dtype="bf16"), "v1": preset("v1")}


@pytest.mark.parametrize("config", CONFIGS)
def test_decoder(config):
    run_bench(Decoder(config=CONFIGS[config]), "verif.unit.bench_decoder", name=f"decoder_{config}",
              env={"CONFIG": config})
