"""The router's RTL, a whole torus of it, under traffic with every packet accounted for by the driver.

One model serves all sizes: a router learns the size of its torus from its pins.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from sluice.build import lint
from sluice_hw.emit import WAIVERS
from sluice_hw.emit.verilog import to_verilog
from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.deadlock import DeadlockError
from sluice_hw.ici.interface import Port
from sluice_hw.ici.router import Router
from sluice_hw.ici.routing import RoutePlan, neighbour
from sluice_hw.ici.torus import torus_verilog
from verif.models.torus import Torus, build

BUILT = TorusConfig(rows=8, cols=8, data_bits=56, vc_depth=4)


@pytest.fixture(scope="module")
def library():
    return build(BUILT, opt="-O1")


def sized(rows: int, cols: int) -> TorusConfig:
    return dataclasses.replace(BUILT, rows=rows, cols=cols)


def finish(torus: Torus) -> dict[str, int]:
    """Let everything arrive; every packet must be somewhere."""
    counts = torus.drain(200_000)
    assert not counts.wrong, torus.first_wrong
    assert not counts.stuck, "the network stands still"
    accounted = counts.packets_delivered + counts.packets_cut + counts.packets_returned + counts.packets_refused
    assert accounted == counts.packets_created
    return counts.as_dict()


@pytest.mark.parametrize(
    ("rows", "cols"), [(1, 1), (1, 2), (2, 1), (2, 2), (1, 5), (5, 1), (3, 4), (4, 3), (2, 7), (8, 2)]
)
def test_random_packets_in_every_shape_of_torus(library, rows, cols, seed):
    with Torus(sized(rows, cols), library, seed=seed) as torus:
        torus.traffic(0.8, length=(1, 5), backpressure=20)
        torus.run(600)
        counts = finish(torus)
    assert counts["packets_delivered"] == counts["packets_created"] > 100


@pytest.mark.parametrize("length", [1, (1, 2), 9])
def test_overload(library, length, seed):
    """Sources that send all they can: single flits, single flits right behind tails, packets longer than a buffer."""
    with Torus(sized(4, 4), library, seed=seed) as torus:
        torus.traffic(3.0, length=length)
        torus.run(1200)
        counts = finish(torus)
    assert counts["packets_delivered"] == counts["packets_created"]


def test_one_cycle_per_hop(library):
    config = sized(8, 8)
    plan = RoutePlan(config)
    latencies = set()
    for dst in (1, 2, 3, 4, 8, 24, 36, 63):
        with Torus(config, library) as torus:
            torus.run(20)  # credits
            torus.send(0, dst)
            counts = finish(torus)
        hops = len(plan.path(0, dst, plan.choice(0, dst)))
        assert counts["hops"] == hops
        latencies.add(counts["latency_sum"] - hops)
    assert len(latencies) == 1 and latencies.pop() <= 3


def test_packets_follow_each_other_without_a_gap(library):
    """One flow on one channel: single flits right behind tails, and the other way round, take a cycle each."""
    lengths = [1, 3, 1, 1, 2, 5, 1] * 20
    with Torus(sized(4, 4), library) as torus:
        torus.run(20)  # credits
        start = finish(torus)["cycles"]
        for length in lengths:
            torus.send(0, 2, length=length)
        counts = finish(torus)
    assert counts["packets_delivered"] == len(lengths)
    assert counts["cycles"] - start <= sum(lengths) + 10


@pytest.mark.parametrize("length", [1, 4])
def test_sources_that_meet_get_equal_shares(library, length, seed):
    """All send to node 0 as fast as they can: of each link into it, no source gets less than 0.9 of its share."""
    config = sized(4, 4)
    plan = RoutePlan(config)
    with Torus(config, library, seed=seed) as torus:
        torus.traffic(2.0, pattern="all-to-one", orders=1, length=length)
        torus.run(2000)
        torus.clear()
        torus.run(6000)
        arrived = torus.arrived()[0].astype(float)
    ends = {src: plan.path(src, 0, plan.choice(src, 0))[-1].port.opposite for src in range(1, config.nodes)}
    for port in Port:
        flows = arrived[port][[src for src, last in ends.items() if last == port]]
        assert flows.sum() > 5900
        assert flows.min() >= 0.9 * flows.mean(), flows


def test_responses_sink_while_requests_stand(library, seed):
    """Requests that nobody takes fill the network; responses pass all the same."""
    config = sized(4, 4)
    with Torus(config, library, seed=seed) as torus:
        torus.hold(requests=True)
        torus.traffic(2.0, length=(1, 4), messages=1)
        torus.run(800)
        delivered = torus.counts().packets_delivered
        for src in range(16):
            for dst in range(16):
                torus.send(src, dst, message=1, order=(src ^ dst) & 1, length=3)
        torus.run(1500, generate=False)
        assert torus.counts().packets_delivered >= delivered + 256
        torus.hold(requests=False)
        finish(torus)


@pytest.mark.parametrize(("node", "port"), [(5, Port.XP), (1, Port.YM), (0, Port.XM)])
def test_a_link_dies_under_traffic(library, node, port, seed):
    """What was on its way over the link comes back as an error or arrives cut short; the rest arrives; a new plan leads
    around it."""
    config = sized(4, 4)
    with Torus(config, library, seed=seed) as torus:
        torus.traffic(0.6, length=(1, 6))
        torus.run(400)
        torus.kill(node, port)
        torus.run(300)
        torus.routes(RoutePlan(config, [(node, port)]))
        counts = finish(torus)
        assert counts["packets_returned"] > 10
        # Before, at most what crossed; afterwards nothing.
        torus.clear()
        torus.run(600)
        counts = finish(torus)
        assert counts["packets_delivered"] == counts["packets_created"] > 1000


def test_what_does_not_cross_the_dead_link_is_unharmed(library, seed):
    config = sized(4, 4)
    plan = RoutePlan(config)
    dead = {(5, Port.XP), (neighbour(config, 5, Port.XP), Port.XM)}
    with Torus(config, library, seed=seed) as torus:
        harmed = 0
        for again in range(8):
            if again == 1:
                torus.kill(5, Port.XP)
            for src in range(16):
                for dst in range(16):
                    path = plan.path(src, dst, plan.choice(src, dst))
                    harmed += again > 0 and bool(dead & {(hop.node, hop.port) for hop in path})
                    torus.send(src, dst, length=2)
            if again == 0:
                finish(torus)
        counts = finish(torus)
    # Each comes back once; what stranded away from its source is also answered.
    assert counts["packets_returned"] == harmed > 0
    assert not counts["packets_cut"]


def test_an_unreachable_node_is_refused_and_a_packet_sent_all_the_same_returns(library, seed):
    config = sized(3, 3)
    with Torus(config, library, seed=seed) as torus:
        torus.run(20)
        for port in Port:
            torus.kill(4, port)
        for src in (0, 1, 3, 8):
            torus.send(src, 4, length=3)
        counts = finish(torus)
        assert counts["packets_returned"] == 4
        torus.routes(RoutePlan(config, [(4, port) for port in Port]))
        torus.clear()
        torus.send(0, 4)
        assert finish(torus)["packets_refused"] == 1


def test_the_verilog_of_a_torus_is_lint_free():
    config = TorusConfig(rows=1, cols=2, data_bits=56, orders=1, vc_depth=2)
    lint(torus_verilog(config, latency=3), "sluice_torus", WAIVERS)


@pytest.mark.soak
@pytest.mark.parametrize("latency", [1, 4])
def test_the_verilog_of_a_torus_does_what_the_wired_routers_do(latency):
    """Cycle for cycle at latency 1; with longer links everything arrives too."""
    config = TorusConfig(rows=2, cols=2, data_bits=56, orders=1, vc_depth=2)
    seen = []
    for top in (True, False):
        with Torus(config, build(config, top=top, latency=latency if top else 1, opt="-O1"), seed=5) as torus:
            torus.traffic(0.9, length=(1, 4))
            torus.run(500)
            seen.append(finish(torus))
    if latency == 1:
        assert seen[0] == seen[1]
    assert seen[0]["packets_delivered"] == seen[1]["packets_delivered"] > 100


@pytest.mark.soak
def test_a_broken_dateline_stops_the_routers(monkeypatch, seed):
    """What the check at elaboration is for: a ring whose packets never become late stands still, and is reported."""
    monkeypatch.setattr("sluice_hw.ici.router.next_late", lambda **bits: bits["start"] & 0)
    config = TorusConfig(rows=1, cols=6, data_bits=56, orders=1, vc_depth=2)
    with pytest.raises(DeadlockError, match="the routing of the 1 x 6 torus can deadlock"):
        to_verilog(Router(config), name="router")
    monkeypatch.setattr("sluice_hw.ici.router.check_deadlock_free", lambda *_, **__: None)
    with Torus(config, build(config, opt="-O1"), seed=seed) as torus:
        torus.traffic(3.0, length=6)
        torus.run(3000, patience=500)
        assert torus.drain(20_000, patience=500).stuck


@pytest.mark.soak
def test_soak(library, seed):
    """Ten million flits with links that die at random, a new network for each fault."""
    soak(library, seed, flits=10_000_000)


def test_a_short_soak(library, seed):
    soak(library, seed, flits=20_000)


def soak(library, seed: int, *, flits: int) -> None:
    rng = np.random.default_rng(seed)
    total, cut, returned, rounds = 0, 0, 0, 0
    while total < flits:
        rows, cols = (int(n) for n in rng.integers(2, 6, 2)) if flits < 100_000 else ((8, 8) if rounds % 2 else (4, 6))
        config = sized(rows, cols)
        cycles = min(6_000, flits // (4 * rows * cols))
        with Torus(config, library, seed=int(rng.integers(1, 1 << 30))) as torus:
            torus.traffic(float(rng.uniform(0.2, 1.2)), length=(1, int(rng.integers(1, 12))),
                          backpressure=int(rng.integers(0, 30)))  # fmt: skip
            torus.run(cycles // 3)
            links: list[tuple[int, int]] = []
            for _ in range(int(rng.integers(1, 4))):
                links.append((int(rng.integers(config.nodes)), int(rng.integers(4))))
                torus.kill(*links[-1])
                torus.run(int(rng.integers(1, 200)))
                torus.routes(RoutePlan(config, links))
                torus.run(cycles // 3)
            counts = finish(torus)
        total += counts["delivered"]
        cut, returned, rounds = cut + counts["packets_cut"], returned + counts["packets_returned"], rounds + 1
    print(f"{total} flits delivered in {rounds} networks, {returned} packets returned, {cut} cut, all accounted for")
    assert returned > 0
