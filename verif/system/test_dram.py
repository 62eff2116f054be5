"""A chip with the slice controller and DRAM in the place of its memory: the same results, in other cycles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sluice_hw.config import ChipConfig
from sluice_hw.emit.chip import chip_verilog
from sluice_hw.hbm.dram_config import DramConfig
from verif.harness import open_chip, report_dir
from verif.models.dram_behind import DramBehind
from verif.random_programs.compare import Bench, open_bench
from verif.random_programs.legal import make_case
from verif.random_programs.replay import run_seeds
from verif.system.workload import assert_accounted

pytestmark = pytest.mark.soak

#: As `tiny`, with slices of a unit.
CONFIG = ChipConfig(name="dram", slice_bytes=4096, hbm_bytes=4 << 20)
#: The controller's buffers are memories, too.
_STORE = r"\w+__DOT__memory__DOT__store__DOT__ram__DOT__mem"


@pytest.fixture(scope="module")
def dram() -> Iterator[Bench]:
    verilog = chip_verilog(CONFIG, emission="loop", memory=DramBehind(DramConfig(chip=CONFIG)))
    with open_chip(CONFIG, source=verilog, memory=_STORE) as device:
        yield Bench(device)


def test_random_programs(dram: Bench, seed: int) -> None:
    failed = run_seeds(dram, range(6_000_000 + seed * 1000, 6_000_000 + seed * 1000 + 60), report_dir("dram"))
    assert not failed, "\n\n".join(failed)


def test_what_the_latency_of_real_memory_costs(dram: Bench, seed: int) -> None:
    """Beside the same chip with the memory of 40 cycles: the same work; printed, what programs take longer."""
    usual = open_bench(CONFIG, "rtl")
    cycles = {"usual": 0, "dram": 0}
    with usual.device:
        for one in range(12):
            case = make_case(CONFIG, 7_000_000 + seed * 1000 + one)
            reports = {"usual": usual.run(case), "dram": dram.run(case)}
            assert reports["usual"].work == reports["dram"].work
            for name, report in reports.items():
                assert_accounted(report)
                cycles[name] += report.cycles
    print(cycles)
    assert cycles["dram"] > cycles["usual"]
