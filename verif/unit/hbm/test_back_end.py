"""The memory path of a chip: every kind of memory, down to a device behind its pins."""

import pytest

from sluice_hw.hbm.back_end import BackEnd
from verif.harness import run_bench
from verif.unit.hbm.backed import CONFIGS, BackedPort


@pytest.mark.soak
@pytest.mark.parametrize("name", CONFIGS)
def test_back_end(name):
    steps = 30 if name == "axi4" else 12
    run_bench(BackedPort(CONFIGS[name]), "verif.unit.hbm.bench_back_end", name=f"back_end_{name}",
              env={"CONFIG": name, "STEPS": str(steps)})  # fmt: skip


@pytest.mark.soak
def test_cut():
    run_bench(BackEnd(CONFIGS["axi4"]), "verif.unit.hbm.bench_cut", name="back_end_cut", env={"CONFIG": "axi4"})
