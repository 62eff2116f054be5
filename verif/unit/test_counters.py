"""Performance counters."""

from sluice_hw.counters import Counters
from verif.harness import run_bench


def test_counters():
    run_bench(Counters(), "verif.unit.bench_counters", name="counters")
