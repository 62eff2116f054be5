"""Parts of a link by themselves: life of an end, the cable in RTL."""

import pytest

from sluice_hw.ici.channel import Channel
from sluice_hw.ici.elastic import ElasticBuffer
from sluice_hw.ici.handshake import Handshake
from sluice_hw.ici.link_config import LinkConfig
from verif.harness import run_bench
from verif.models.link import TORUS

#: Timers short enough to run out in a bench.
CONFIG = {"latency": 1, "dead_after": 60, "hello_after": 100, "stall_after": 80}


def test_handshake():
    run_bench(Handshake(LinkConfig.for_torus(TORUS, **CONFIG)), "verif.unit.ici.bench_link_handshake",
              name="link_handshake", opt="-O0")  # fmt: skip


@pytest.mark.parametrize("latency", [*(pytest.param(n, marks=pytest.mark.soak) for n in (1, 2)), 9])
def test_channel(latency):
    run_bench(Channel(bits=40, latency=latency, seed=latency), "verif.unit.ici.bench_link_channel",
              name=f"link_channel_{latency}", env={"LATENCY": str(latency)}, opt="-O0")  # fmt: skip


def test_refusals():
    with pytest.raises(ValueError, match="channel latency must be at least 1, not 0"):
        Channel(bits=8, latency=0)
    with pytest.raises(ValueError, match="channel seed must be a 64-bit number other than 0, not 0"):
        Channel(bits=8, latency=1, seed=0)
    with pytest.raises(ValueError, match="elastic buffer depth must be a power of two from 4, not 6"):
        ElasticBuffer(bits=8, depth=6)
