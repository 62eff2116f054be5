"""Two ends of a link and a cable between them: every flit once and in order, whatever the cable does.

The ends, their routers and the cable run in C++ (``verif/models/link_driver.cpp``), which checks every flit against
what was sent. One model serves most tests.
"""

from __future__ import annotations

import pytest

from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.frame import Parameter, Reason, State
from sluice_hw.ici.link import Link
from sluice_hw.ici.link_config import LinkConfig
from verif.models.link import TORUS, Channel, Pair, Router

#: Built for a cable of 10 cycles; tests use it with others, too. At 90 % loss it dies once in 10^18 cycles.
FIELDS = {"latency": 10, "dead_after": 400, "stall_after": 20000}

FAULTS = {
    "none": {},
    "drop 1 %": {"drop": 0.01},
    "drop 50 %": {"drop": 0.5},
    "drop 90 %": {"drop": 0.9},
    "corrupt 30 %": {"corrupt": 0.3},
    "corrupt 90 %": {"corrupt": 0.9},
    "bit errors": {"bit_errors": 1e-3},
    "twice": {"twice": 0.3},
    "twice 90 %": {"twice": 0.9},
    "late": {"late": 0.3, "reach": 7},
    "late 90 %": {"late": 0.9, "reach": 7},
    "jitter": {"jitter": 30},
    "all": {"drop": 0.2, "corrupt": 0.2, "twice": 0.1, "late": 0.1, "reach": 6, "jitter": 9},
}


def finish(pair: Pair, cycles: int = 400_000) -> None:
    """Stop sending and check that everything that was sent arrives, each flit once and in order."""
    pair.routers(Router(flits=0))
    pair.run(cycles, until_done=True)
    for here, there in ((0, 1), (1, 0)):
        end, other = pair.end(here), pair.end(there)
        assert (end.wrong, end.missing, end.over_credit) == (0, 0, 0)
        assert end.received_vc == other.sent_vc
        assert end.state == State.UP
        assert end.counters["delivered"] == end.received and end.counters["sent"] == end.sent
        assert end.counters["lost"] == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(fault, seed):
    with Pair(seed=seed, **FIELDS) as pair:
        there, back = Channel(latency=10, **FAULTS[fault]), Channel(latency=3, **FAULTS[fault])
        pair.channels(there, back)
        pair.routers(Router(), Router(rate=0.7, take=0.5))
        pair.run(5000)
        finish(pair)
        a, b = pair.end(0), pair.end(1)
        assert b.received > 20 and a.received > 20
        if fault not in ("none", "jitter"):
            assert a.counters["retries"] > 10
        assert bool(b.counters["bad_frames"]) == (fault in ("corrupt 30 %", "corrupt 90 %", "bit errors", "all"))


@pytest.mark.parametrize("latency", [1, 10])
def test_full_rate(latency, seed):
    """Without errors a flit leaves in every cycle, on one channel as on four."""
    for channels in (0b1111, 0b0100):
        with Pair(seed=seed, **FIELDS) as pair:
            pair.channels(Channel(latency=latency))
            pair.routers(Router(channels=channels))
            pair.run(1000)
            before = pair.end(1).received
            pair.run(2000)
            assert pair.end(1).received - before == 2000
            finish(pair)


def test_pipeline_latency(seed):
    """One flit on an idle link takes the cable's latency and the two ends' registers."""
    for latency in (1, 7, 100):
        with Pair(seed=seed, **FIELDS) as pair:
            pair.channels(Channel(latency=latency))
            pair.routers(Router(rate=0.0), Router(rate=0.0))
            pair.run(1000)
            pair.routers(Router(flits=1), Router(flits=0))
            pair.run(500, until_done=True)
            assert pair.end(1).first_latency == latency + 10


def test_blocked_channels_do_not_block_others(seed):
    """Channels that nobody reads fill their share of the pool, and the last one still has its reserve."""
    with Pair(seed=seed, **FIELDS) as pair:
        pair.channels(Channel(latency=10, drop=0.05))
        pair.routers(Router(), Router(flits=0, blocked=0b1110))
        pair.run(3000)
        before = pair.end(1).received_vc[0]
        stuck = pair.end(1).received_vc[1:4]
        assert max(stuck) == TORUS.vc_depth
        assert pair.end(0).counters["credit_stalls"] > 0
        assert pair.end(1).counters["router_stalls"] > 0
        pair.run(3000)
        # vc_depth flits for each round trip at least.
        assert pair.end(1).received_vc[0] - before >= 3000 // pair.config.round_trip * TORUS.vc_depth / 2
        finish(pair)


def test_cut(seed):
    """A cut cable: both ends die within the bound, pass on what they have, and upstream never hangs."""
    with Pair(seed=seed, **FIELDS) as pair:
        pair.channels(Channel(latency=10, drop=0.02, cut_at=2000))
        pair.routers(Router(), Router(take=0.4))
        pair.run(6000)
        for end, other in ((pair.end(0), pair.end(1)), (pair.end(1), pair.end(0))):
            assert end.reason == Reason.SILENT and end.dead and end.ended
            assert end.wrong == 0
            # The last frame passed at 2000; the cable, the registers, dead_after.
            assert 2000 < end.died_at <= 2000 + 10 + 8 + FIELDS["dead_after"]
            assert end.ended_at >= end.died_at
            assert other.sent - end.received <= other.counters["lost"]
            assert end.counters["delivered"] == end.received


def test_one_way_cut(seed):
    """The end that hears nothing dies and says so; the other follows."""
    with Pair(seed=seed, **FIELDS) as pair:
        pair.channels(Channel(latency=10, cut_at=2000), Channel(latency=10, drop=0.5))
        pair.routers(Router())
        pair.run(4000)
        a, b = pair.end(0), pair.end(1)
        assert (a.reason, b.reason) == (Reason.PEER_DEAD, Reason.SILENT)
        assert a.died_at <= b.died_at + 60 and a.ended and b.ended and a.wrong == b.wrong == 0


def test_never_connected(seed):
    with Pair(seed=seed, **FIELDS) as pair:
        pair.channels(Channel(latency=10, cut_at=0))
        pair.routers(Router())
        limit = pair.config.hello_after + pair.config.window + 20
        pair.run(limit)
        for end in (pair.end(0), pair.end(1)):
            assert end.reason == Reason.SILENT and end.dead and end.ended and end.sent == 0
            assert end.died_at > pair.config.hello_after


def test_restart(seed):
    """An end that starts anew ends the other's life; when both have, the link is up again and nothing old arrives."""
    with Pair(seed=seed, **FIELDS) as pair:
        pair.channels(Channel(latency=50, drop=0.1))
        pair.routers(Router())
        pair.run(3000)
        pair.reset(1)
        pair.run(1000)
        a, b = pair.end(0), pair.end(1)
        assert a.reason == Reason.PEER_RESTART and a.dead and a.ended and b.state == State.HELLO
        pair.reset(0)
        pair.run(3000)
        a, b = pair.end(0), pair.end(1)
        assert a.state == b.state == State.UP and min(a.received, b.received) > 500
        finish(pair)


@pytest.mark.parametrize("periods", [(1000, 1001), (9973, 6997), (1000, 3300), (3300, 1000)])
def test_unrelated_clocks(periods, seed):
    """Through the elastic buffer at any ratio, with faults on top; the slower clock sets the pace."""
    with Pair(seed=seed, periods=periods, elastic=16, **FIELDS) as pair:
        pair.channels(Channel(latency=10))
        pair.routers(Router())
        pair.run(2000)
        before = [pair.end(i).received for i in (0, 1)]
        pair.run(6000)
        slower = min(1.0, periods[0] / periods[1])
        for i in (0, 1):
            rate = (pair.end(i).received - before[i]) / 6000
            assert rate > 0.9 * slower, (i, rate, slower)
        pair.channels(Channel(latency=10, drop=0.1, corrupt=0.1))
        pair.run(3000)
        finish(pair)


@pytest.mark.soak
@pytest.mark.parametrize(("change", "parameter", "theirs"), [
    ({"pool": 50}, Parameter.POOL, 50), ({"window": 128}, Parameter.SEQ_BITS, 8),
    ({"map_bits": 8}, Parameter.MAP_BITS, 8),
    (None, Parameter.FLIT_BITS, 32 + 2 + 3),
])  # fmt: skip
def test_mismatch_on_the_wire(change, parameter, theirs, seed):
    """Ends that differ, even in the width of the wire, say in what; no flit is sent."""
    narrow = TorusConfig(data_bits=32, orders=1) if change is None else None
    with Pair(seed=seed, torus_b=narrow, b={**FIELDS, **(change or {})}, **FIELDS) as pair:
        pair.channels(Channel(latency=10, drop=0.3))
        pair.routers(Router())
        pair.run(2000)
        a, b = pair.end(0), pair.end(1)
        assert (a.reason, a.mismatch, a.theirs) == (Reason.MISMATCH, parameter, theirs)
        assert (b.reason, b.mismatch) == (Reason.MISMATCH, parameter)
        assert a.sent == b.sent == 0 and a.ended and b.ended


@pytest.mark.soak
@pytest.mark.parametrize("latency", [1, 10, 100, 500])
def test_soak(latency, seed):
    """Millions of flits through faults that change all the time."""
    fields = {"latency": latency, "dead_after": 1 << 20, "stall_after": 1 << 22}
    flits = 0
    with Pair(seed=seed, **fields) as pair:
        for step in range(100):
            faults = list(FAULTS.values())[step * 7 % len(FAULTS)]
            pair.channels(Channel(latency=latency, **faults), Channel(latency=1 + latency // 2, **faults))
            pair.routers(Router(rate=0.3 + 0.1 * (step % 8), take=1 - 0.1 * (step % 5), blocked=step & 5),
                         Router(channels=1 + step % 15))  # fmt: skip
            pair.run(20_000)
        finish(pair, 4_000_000)
        flits = pair.end(0).received + pair.end(1).received
    assert flits > 500_000
    print(f"{flits} flits, each once and in order")


def test_parameters():
    config = LinkConfig.for_torus(TORUS, latency=500)
    assert config.window >= config.round_trip and config.pool >= config.round_trip
    assert config.shared + config.vcs * config.reserve == config.pool
    with pytest.raises(ValueError, match="link window must be a power of two, not 100"):
        LinkConfig.for_torus(TORUS, window=100)
    with pytest.raises(ValueError, match="link pool must be 16 to 16384, not 15"):
        LinkConfig.for_torus(TORUS, pool=15)
    with pytest.raises(ValueError, match="link reserve must be 4 to 4096, not 3"):
        LinkConfig.for_torus(TORUS, reserve=3)
    with pytest.raises(ValueError, match="link latency must be 1 to 4096, not 0"):
        LinkConfig.for_torus(TORUS, latency=0)
    with pytest.raises(TypeError, match="link latency must be an integer, not 1.5"):
        LinkConfig.for_torus(TORUS, latency=1.5)
    with pytest.raises(ValueError, match="link elastic must be 0 or a power of two, not 12"):
        LinkConfig.for_torus(TORUS, elastic=12)
    with pytest.raises(ValueError, match="link dead_after must be 44 to 16777216, not 10"):
        LinkConfig.for_torus(TORUS, latency=10, dead_after=10)
    with pytest.raises(TypeError, match="link flit must be a StructLayout with a field 'vc'"):
        LinkConfig(flit=8, vcs=2)
    with pytest.raises(ValueError, match="link vcs must be that of the torus, 8, not 4"):
        Link(
            torus=TorusConfig(data_bits=64),
            config=LinkConfig(flit=LinkConfig.for_torus(TorusConfig(data_bits=64)).flit, vcs=4),
        )
