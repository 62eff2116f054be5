"""Routers, network interfaces and real links in one simulation, with cables that lose, harm, repeat and delay words.

Every packet is accounted for by the driver: delivered once and whole, cut short and known to be, answered to its source
by an error answer that the hardware made, a response that stranded and was dropped, or among what a link had in its
hands when it died, which that link's counter bounds.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sluice_hw.ici.flit import Order
from sluice_hw.ici.frame import Reason, State
from sluice_hw.ici.interface import Port
from sluice_hw.ici.link_config import LinkConfig
from sluice_hw.ici.routing import RoutePlan, neighbour
from verif.models.link import Channel
from verif.models.network import Model, Network, Totals, build
from verif.unit.ici.test_torus_router import BUILT

LATENCY, DEAD_AFTER = 3, 300
LINK = LinkConfig.for_torus(BUILT, latency=LATENCY, window=64, dead_after=DEAD_AFTER, stall_after=20_000)
#: An end is dead so many cycles after the last word that passed (docs/torus.md).
BOUND = LATENCY + 8 + DEAD_AFTER
#: Up to a third of all words of each direction suffer.
NOISE = Channel(latency=LATENCY, drop=0.1, corrupt=0.1, twice=0.1, jitter=5)


@pytest.fixture(scope="module")
def model() -> Model:
    return build(BUILT, LINK)


def start(model: Model, rows: int, cols: int, seed: int, channel: Channel) -> Network:
    """A network whose links are up and whose nodes have their routes."""
    network = Network(model, rows, cols, seed=seed)
    network.cables(channel)
    network.routes(RoutePlan(network.config))
    network.run(300)  # the tables are cleared, then written
    for _ in range(20):
        network.run(100)
        if network.states() == {State.UP: 4 * rows * cols}:
            break
    assert network.states() == {State.UP: 4 * rows * cols}
    return network


def finish(network: Network) -> Totals:
    """Let everything arrive, then check the account of all packets."""
    totals = network.drain(patience=3000)
    assert not totals.wrong, network.first_wrong
    assert not totals.stuck, "the network stands still"
    assert totals.created == totals.delivered + totals.cut + totals.answered + totals.missing
    # Each stranded response is dropped once: the node's own, then its request is not missed; or an answer.
    vanished = totals.missing + totals.unanswered - totals.responses_dropped
    assert 0 <= vanished <= totals.lost
    assert totals.answers_made >= totals.answered + totals.cut_answered
    return totals


def test_bad_cables_lose_nothing(model, seed):
    with start(model, 3, 3, seed, NOISE) as network:
        network.traffic(0.2, length=(1, 5), backpressure=20)
        network.run(1500)
        totals = finish(network)
        assert totals.delivered == totals.created > 500
        assert not totals.answers_made and not totals.lost
        assert totals.retries > 300 and totals.bad_frames > 1000
        assert network.states() == {State.UP: 36}


@pytest.mark.parametrize("both", [True, False])
def test_a_link_dies_under_traffic(model, seed, both):
    """Both ends know in time, what cannot pass comes back, what does not cross the link is unharmed, new routes lead
    around it."""
    node, port = 4, Port.XP
    with start(model, 3, 3, seed, NOISE) as network:
        network.traffic(0.3, length=(1, 5))
        network.run(500)
        network.cut(node, port, both=both)
        network.run(BOUND + 40)
        far = neighbour(network.config, node, port), port.opposite
        assert network.status(*far) == (State.DEAD, Reason.SILENT)
        assert network.status(node, port) == (State.DEAD, Reason.SILENT if both else Reason.PEER_DEAD)
        assert sorted(network.dead_links()) == sorted([(node, port), far])
        network.run(600)
        before, after = RoutePlan(network.config), RoutePlan(network.config, network.dead_links())
        network.routes(after)
        network.run(300)
        totals = finish(network)
        assert totals.answered > 5
        dead = {(node, port), far}
        for (src, dst, _), flow in network.flows().items():
            paths = (before.path(src, dst, before.choice(src, dst, order)) for order in Order)
            if not dead & {(hop.node, hop.port) for path in paths for hop in path}:
                assert flow.delivered == flow.created > 0, (src, dst)
        # With the new routes everything arrives.
        network.run(1000)
        later = finish(network)
        assert later.created - totals.created == later.delivered - totals.delivered > 100


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (1, 2), (2, 2), (4, 2)])
def test_small_tori(model, seed, rows, cols):
    """Links that lead to the node itself, and two to one neighbour, of which one dies."""
    with start(model, rows, cols, seed, NOISE) as network:
        network.traffic(0.3, length=(1, 3), backpressure=20)
        network.run(500)
        totals = finish(network)
        assert totals.delivered == totals.created > 0
        network.cut(0, Port.XP)
        network.run(BOUND + 100)
        network.routes(RoutePlan(network.config, network.dead_links()))
        network.run(300)
        totals = finish(network)
        network.run(300)
        later = finish(network)
        assert later.created - totals.created == later.delivered - totals.delivered > 0


def test_a_node_without_links_is_answered_for(model, seed):
    """All four links of a node die: requests to it come back from where they meet a dead link; with new routes, which
    have none to it, at once; it itself learns the same of the others."""
    gone = 4
    with start(model, 3, 3, seed, Channel(latency=LATENCY)) as network:
        for port in Port:
            network.cut(gone, port)
        network.drain(patience=BOUND + 100)
        assert network.states()[State.DEAD] == 8
        for plan in (None, RoutePlan(network.config, network.dead_links())):
            if plan is not None:
                network.routes(plan)
                network.drain(patience=500)
            for other in range(9):
                if other != gone:
                    for length in (1, 3):
                        network.send(other, gone, length=length)
                        network.send(gone, other, length=length)
                        network.send(other, gone, message=1, length=length)
        totals = finish(network)
        assert totals.answered == totals.answers_made == 64 and totals.lost == 0
        assert totals.responses_dropped == totals.missing == 32
        # The others still reach each other.
        network.run(1)
        for src in range(9):
            for dst in range(9):
                if gone not in (src, dst):
                    network.send(src, dst, length=2)
        assert finish(network).delivered - totals.delivered == 64


@pytest.mark.soak
def test_soak(model, seed):
    """Random sizes, noise of up to 3/4 of all words, links that die in one direction or both, at random times."""
    rng = random.Random(seed)
    flits, seen = 0, Counter()
    while flits < 300_000:
        rows, cols = rng.randint(1, 4), rng.randint(1, 4)
        noise = Channel(latency=rng.randint(1, 6), drop=rng.uniform(0, 0.5), corrupt=rng.uniform(0, 0.5),
                        twice=rng.uniform(0, 0.3), jitter=rng.randint(0, 8))  # fmt: skip
        with start(model, rows, cols, rng.randrange(1 << 30), noise) as network:
            network.traffic(rng.uniform(0.05, 0.6), length=(1, rng.randint(1, 9)), backpressure=rng.randint(0, 40))
            network.run(1000)
            for _ in range(rng.randint(0, 3)):
                network.cut(rng.randrange(rows * cols), rng.choice(list(Port)), both=rng.random() < 0.7)
                network.run(rng.randint(1, 2 * BOUND))
                network.routes(RoutePlan(network.config, network.dead_links()))
                network.run(500)
            totals = finish(network)
            flits += totals.flits
            seen.update({name: getattr(totals, name) for name, _ in totals._fields_})
            seen["networks"] += 1
    print(f"{flits} flits in {seen['networks']} networks: {dict(seen)}")
    assert min(seen[name] for name in ("answered", "cut_answered", "responses_dropped", "lost")) > 0
