"""Event ring."""

import pytest

from sluice_hw.config import preset
from sluice_hw.debug import EventRing
from verif.harness import run_bench


def test_ring():
    run_bench(EventRing(entries=16), "verif.unit.bench_debug", name="event_ring")


def test_parameters():
    assert EventRing.for_config(preset("tiny")).entries == preset("tiny").event_ring
    with pytest.raises(ValueError, match="event ring entries must be a power of two from 4 to 4096, not 12"):
        EventRing(entries=12)
    with pytest.raises(TypeError, match="event ring entries must be an integer, not 16.0"):
        EventRing(entries=16.0)
