"""Preset `tiny-hbm2`: random programs with golden's results, broken ones, resets, and what the latency of real memory
costs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from verif.harness import report_dir
from verif.random_programs.chips import DRAM, open_bench
from verif.random_programs.compare import Bench
from verif.random_programs.legal import make_case
from verif.random_programs.replay import run_seeds
from verif.random_programs.sweep import sweep_programs, sweep_resets, sweep_words
from verif.system.workload import assert_accounted

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def dram() -> Iterator[Bench]:
    bench = open_bench(DRAM)
    with bench.device:
        yield bench


def test_random_programs(dram: Bench, seed: int) -> None:
    failed = run_seeds(dram, range(6_000_000 + seed * 1000, 6_000_000 + seed * 1000 + 60), report_dir("dram"))
    assert not failed, "\n\n".join(failed)


def test_broken_programs_and_resets(dram: Bench, seed: int) -> None:
    """Programs stop as on golden, and what a reset has cut off is in memory before the host goes on."""
    sweep_words(dram, 0.1, seed)
    sweep_programs(dram, 25, 9_000_000 + seed * 1000)
    sweep_resets(dram, 15, 9_100_000 + seed * 1000)


def test_what_the_latency_of_real_memory_costs(dram: Bench, seed: int) -> None:
    """Beside the same chip with the memory of 40 cycles: the same work; printed, what programs take longer."""
    usual = open_bench(DRAM.replace(name="tiny-4k", memory="sram", ecc="off"))
    cycles = {"usual": 0, "dram": 0}
    with usual.device:
        for one in range(12):
            case = make_case(DRAM, 7_000_000 + seed * 1000 + one)
            reports = {"usual": usual.run(case), "dram": dram.run(case)}
            assert reports["usual"].work == reports["dram"].work
            for name, report in reports.items():
                assert_accounted(report)
                cycles[name] += report.cycles
    print(cycles)
    assert cycles["dram"] > cycles["usual"]
