"""Loop levels; their counting is proven in verif/formal/test_loops.py, here they run whole nests."""

from sluice_hw.loops import LoopLevels
from verif.harness import run_bench


def test_loops():
    run_bench(LoopLevels(), "verif.unit.bench_loops", name="loops")
