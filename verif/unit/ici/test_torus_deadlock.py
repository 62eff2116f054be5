"""The dependency graph of the routing has no cycle, and one that has is refused with the cycle."""

from __future__ import annotations

import networkx
import pytest

from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.deadlock import DeadlockError, check_deadlock_free, dependency_graph, find_cycle
from sluice_hw.ici.flit import Message, vc_fields, vc_number
from sluice_hw.ici.interface import Port
from sluice_hw.ici.routing import RoutePlan, neighbour, next_late

SMALL = [(rows, cols) for rows in range(1, 5) for cols in range(1, 5)]
LONG = [(1, 16), (16, 1), (2, 9), (7, 3), (5, 8), (8, 8)]


@pytest.mark.parametrize(("rows", "cols"), SMALL + LONG)
@pytest.mark.parametrize("orders", [1, 2])
def test_no_cycle(rows, cols, orders):
    check_deadlock_free(TorusConfig(rows=rows, cols=cols, orders=orders))


@pytest.mark.soak
@pytest.mark.parametrize(("rows", "cols"), [(r, c) for r in range(1, 17) for c in range(1, 17)])
def test_no_cycle_in_any_torus(rows, cols):
    check_deadlock_free(TorusConfig(rows=rows, cols=cols))


@pytest.mark.parametrize(("rows", "cols"), [(2, 2), (3, 4), (4, 3), (1, 5)])
def test_the_graph_holds_every_plan_with_any_dead_link(rows, cols):
    config = TorusConfig(rows=rows, cols=cols)
    graph = dependency_graph(config)
    for node in range(config.nodes):
        for port in Port:
            plan = RoutePlan(config, [(node, port)])
            for src in range(config.nodes):
                for dst in range(config.nodes):
                    for order in (0, 1):
                        choice = plan.choice(src, dst, order)
                        if choice is None:
                            continue
                        way = [("inject", src, 0)]
                        for hop in plan.path(src, dst, choice):
                            vc = vc_number(config, message=0, order=choice.order, late=hop.late)
                            way.append(("link", hop.node, hop.port, vc))
                        way.append(("eject", dst, 0))
                        for edge in zip(way, way[1:], strict=False):
                            assert edge[1] in graph[edge[0]], edge


def _never_late(**bits):
    return bits["late"] * 0


def _free_choice(**bits):
    return bits["start"]


def _late_only_on_the_wrap(**bits):
    return bits["same"] & bits["crossed"] & bits["start"] | next_late(**bits) & (bits["crossed"] ^ 1)


@pytest.mark.parametrize("rule", [_never_late, _free_choice, _late_only_on_the_wrap])
@pytest.mark.parametrize(("rows", "cols"), [(3, 4), (4, 3), (1, 3)])
def test_a_broken_dateline_is_found(rule, rows, cols):
    config = TorusConfig(rows=rows, cols=cols)
    with pytest.raises(DeadlockError) as caught:
        check_deadlock_free(config, late_rule=rule)
    cycle = caught.value.cycle
    graph = dependency_graph(config, late_rule=rule)
    assert all(b in graph[a] for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True))
    text = str(caught.value)
    assert f"the routing of the {rows} x {cols} torus can deadlock" in text
    assert text.count("\n") == len(cycle) + 1 and "channel" in text


def test_rings_of_two_need_no_dateline_rule_but_messages_need_their_own_channels():
    config = TorusConfig(rows=2, cols=2)
    with pytest.raises(DeadlockError, match="lane out of the network"):
        check_deadlock_free(config, shared_messages=True)
    check_deadlock_free(config)


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (2, 2), (3, 4)])
def test_error_answers_are_in_the_graph(rows, cols):
    """Wherever a request may strand, behind any link or where it was sent, and the answer's way into the network."""
    config = TorusConfig(rows=rows, cols=cols)
    graph = dependency_graph(config)
    for resource, after in graph.items():
        if resource[0] == "link":
            _, node, port, vc = resource
            assert ("eject", neighbour(config, node, port), vc_fields(config, vc)[0]) in after
        elif resource[0] == "inject":
            assert ("eject", *resource[1:]) in after
    for node in range(config.nodes):
        assert graph["eject", node, Message.REQUEST] == {("inject", node, Message.RESPONSE)}
        assert not graph["eject", node, Message.RESPONSE]


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (2, 2), (3, 4)])
def test_answers_to_responses_could_deadlock(rows, cols):
    with pytest.raises(DeadlockError, match="lane into the network at .*, response"):
        check_deadlock_free(TorusConfig(rows=rows, cols=cols), answer_responses=True)


@pytest.mark.parametrize("rule", [next_late, _never_late, _free_choice])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (2, 2), (3, 4), (1, 5)])
def test_networkx_agrees(rule, rows, cols):
    graph = dependency_graph(TorusConfig(rows=rows, cols=cols), late_rule=rule)
    assert networkx.is_directed_acyclic_graph(networkx.DiGraph(graph)) == (find_cycle(graph) is None)


def test_cycles_of_small_graphs():
    assert find_cycle({}) is None
    assert find_cycle({(1,): {(1,)}}) == [(1,)]
    assert find_cycle({(1,): {(2,)}, (2,): {(3,)}, (3,): {(2,)}}) in ([(2,), (3,)], [(3,), (2,)])
    assert find_cycle({(1,): {(2,), (3,)}, (2,): {(3,)}, (3,): set()}) is None
