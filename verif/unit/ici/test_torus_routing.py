"""Routes: shortest, evenly spread, around what is dead."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.interface import Port
from sluice_hw.ici.routing import Choice, RoutePlan, neighbour

SIZES = [(1, 1), (1, 2), (2, 1), (1, 6), (5, 1), (2, 2), (3, 4), (4, 3), (2, 5), (4, 8)]


def ring(a: int, b: int, size: int) -> int:
    return min((a - b) % size, (b - a) % size)


def distance(config: TorusConfig, a: int, b: int) -> int:
    return ring(a % config.cols, b % config.cols, config.cols) + ring(a // config.cols, b // config.cols, config.rows)


def end(config: TorusConfig, src: int, hops) -> int:
    for hop in hops:
        assert hop.node == src
        src = neighbour(config, src, hop.port)
    return src


@pytest.mark.parametrize(("rows", "cols"), SIZES)
def test_every_pair_by_a_shortest_way(rows, cols):
    config = TorusConfig(rows=rows, cols=cols)
    plan = RoutePlan(config)
    for src in range(config.nodes):
        for dst in range(config.nodes):
            for order in (0, 1):
                choice = plan.choice(src, dst, order)
                hops = plan.path(src, dst, choice)
                assert choice.order == order
                assert end(config, src, hops) == dst
                assert len(hops) == distance(config, src, dst)
                dims = [hop.port in (Port.XP, Port.XM) for hop in hops]
                assert dims == sorted(dims, reverse=order == 0)


@pytest.mark.parametrize(("rows", "cols"), [(8, 8), (4, 4), (1, 8), (2, 2), (4, 8), (5, 5)])
@pytest.mark.parametrize("order", [0, 1])
def test_all_pairs_load_every_link_of_a_dimension_equally(rows, cols, order):
    config = TorusConfig(rows=rows, cols=cols)
    plan = RoutePlan(config)
    load: Counter = Counter()
    for src in range(config.nodes):
        for dst in range(config.nodes):
            load.update((hop.node, hop.port) for hop in plan.path(src, dst, plan.choice(src, dst, order)))
    for ports in ((Port.XP, Port.XM), (Port.YP, Port.YM)):
        counts = {load[node, port] for node in range(config.nodes) for port in ports}
        assert len(counts) == 1, counts


def soak(rows: int, cols: int) -> object:
    return pytest.param(rows, cols, marks=pytest.mark.soak)


@pytest.mark.parametrize(("rows", "cols"), [
    (2, 2), (1, 4), (3, 1), (3, 4), (4, 2), soak(1, 16), soak(7, 3), soak(3, 8), soak(8, 8), soak(5, 16), soak(16, 16),
])  # fmt: skip
def test_a_dead_link_leaves_everyone_a_route_that_avoids_it(rows, cols, seed):
    """Any single one; of large tori those of some nodes, for some sources."""
    config = TorusConfig(rows=rows, cols=cols)
    nodes, sources, rng = range(config.nodes), range(config.nodes), random.Random(seed)
    if config.nodes > 24:
        nodes = rng.sample(nodes, 2)
        sources = [*nodes, *rng.sample(sources, 4)]
    for node in nodes:
        for port in Port:
            plan = RoutePlan(config, [(node, port)])
            dead = {(node, port), (neighbour(config, node, port), port.opposite)}
            if neighbour(config, node, port) == node:
                continue  # a ring of one: nobody uses it
            for src in sources:
                for dst in range(config.nodes):
                    for order in (0, 1):
                        hops = plan.path(src, dst, plan.choice(src, dst, order))
                        assert end(config, src, hops) == dst
                        assert not dead & {(hop.node, hop.port) for hop in hops}


@pytest.mark.parametrize(("rows", "cols"), [(3, 4), (4, 4), (1, 5)])
def test_a_dead_node_is_avoided_and_refused(rows, cols):
    config = TorusConfig(rows=rows, cols=cols)
    for gone in range(config.nodes):
        plan = RoutePlan(config, dead_nodes=[gone])
        for src in range(config.nodes):
            for dst in range(config.nodes):
                choice = plan.choice(src, dst)
                if gone in (src, dst):
                    assert choice is None
                else:
                    assert gone not in {hop.node for hop in plan.path(src, dst, choice)}
                    assert end(config, src, plan.path(src, dst, choice)) == dst


def test_an_unreachable_node_has_no_route():
    config = TorusConfig(rows=3, cols=3)
    plan = RoutePlan(config, [(4, port) for port in Port])
    assert plan.choice(0, 4) is None and plan.table(0)[4] is None
    assert plan.choice(0, 8) is not None


def test_routes_elsewhere_stay_as_they_were():
    config = TorusConfig(rows=4, cols=4)
    before, after = RoutePlan(config), RoutePlan(config, [(5, Port.XP)])
    dead = {(5, Port.XP), (6, Port.XM)}
    for src in range(16):
        for dst in range(16):
            choice = before.choice(src, dst)
            if not dead & {(hop.node, hop.port) for hop in before.path(src, dst, choice)}:
                assert after.choice(src, dst) == choice


def test_codes():
    choices = [Choice(*((number >> bit) & 1 for bit in range(5))) for number in range(32)]
    assert [choice.code() for choice in choices] == list(range(32))


def test_one_order_only():
    config = TorusConfig(rows=3, cols=3, orders=1)
    plan = RoutePlan(config)
    assert {plan.choice(s, d, 1).order for s in range(9) for d in range(9)} == {0}


def test_bad_nodes():
    with pytest.raises(ValueError, match="node must be 0 to 8 in this torus, not 9"):
        RoutePlan(TorusConfig(rows=3, cols=3), [(9, Port.XP)])
