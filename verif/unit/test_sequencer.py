"""Sequencer with its store, decoder, loops and address registers."""

import pytest

from sluice_hw.sequencer import Sequencer, UnitQueue
from verif.harness import run_bench
from verif.unit.microcode import CONFIG


def test_sequencer():
    run_bench(Sequencer(config=CONFIG), "verif.unit.bench_sequencer", name="sequencer")


def test_queue_parameters():
    assert UnitQueue(depth=2).depth == 2
    with pytest.raises(ValueError, match="queue depth must be at least 2, not 1"):
        UnitQueue(depth=1)
    with pytest.raises(TypeError, match="queue depth must be an integer, not '4'"):
        UnitQueue(depth="4")
