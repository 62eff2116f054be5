"""Random programs on a chip whose memory takes any time: the same results, and the waiting counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from verif.harness import report_dir
from verif.random_programs.chips import SLOW, open_bench
from verif.random_programs.compare import Bench
from verif.random_programs.legal import make_case
from verif.random_programs.replay import run_seeds
from verif.system.configs import RANDOM_CONFIGS
from verif.system.workload import assert_accounted


@pytest.fixture(scope="module")
def slow() -> Iterator[Bench]:
    bench = open_bench(SLOW)
    with bench.device:
        yield bench


def check(slow: Bench, first: int, number: int) -> None:
    failed = run_seeds(slow, range(first, first + number), report_dir("slow_memory"))
    assert not failed, "\n\n".join(failed)


def test_random_programs(slow: Bench, seed: int) -> None:
    check(slow, 3_000_000 + seed * 1000, 15)


@pytest.mark.soak
def test_many_random_programs(slow: Bench, seed: int) -> None:
    check(slow, 4_000_000 + seed * 10_000, 300)


def test_waiting_is_counted(slow: Bench, seed: int) -> None:
    """Beside the chip with its usual memory: what the programs do is the same, units wait longer for memory, and the
    array longer for operands."""
    waited, starved, cycles = Counter(), Counter(), Counter()
    usual = open_bench(RANDOM_CONFIGS["odd"])
    with usual.device:
        for one in range(6):
            case = make_case(SLOW, 5_000_000 + seed * 1000 + one)
            reports = {"usual": usual.run(case), "slow": slow.run(case)}
            assert reports["usual"].work == reports["slow"].work
            for name, report in reports.items():
                assert_accounted(report)
                cycles[name] += report.cycles
                starved[name] += sum(report.starved.values())
                waited[name] += report.stalls["ld"]["hbm"] + report.stalls["st"]["hbm"]
    for counts in (waited, starved, cycles):
        assert counts["slow"] > 1.2 * counts["usual"], (waited, starved, cycles)
