"""Networks made by hypothesis, compiled and run on the golden machine: no value differs from the graph's executor."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, event, given, settings

from sluice.compiler import DoesNotFit, ProgramTooLong, compile, quantise, quantise_array

from .graph_strategies import Conv, Diamond, Network, Pool, networks
from .races import find_races
from .run_golden import TALL, TINY, WIDE, check

#: Geometry that random drawing seldom meets.
NAMED = {
    "window 1, stride 2": Network((2, 7, 5, 3), (Pool("max", (1, 1), (2, 2)), Pool("avg", (1, 2), (2, 1))), "image"),
    "stride 3, dilation 2, uneven": Network(
        (1, 9, 8, 1), (Conv(5, (3, 2), (3, 2), (2, 2), ((0, 3), (2, 1))),), "image", "float"),
    "kernel larger than the picture": Network((1, 2, 3, 2), (Conv(4, (5, 5), padding=((3, 2), (1, 3))),), "mean"),
    "24 x 33 x 55": Network((2, 1, 1, 24), (Conv(33, (1, 1)),), 55),
    "one pixel of one channel": Network((1, 1, 1, 1), (Diamond((1, 1), None), Diamond((1, 1), (1, 1))), 8),
}  # fmt: skip


def check_network(network: Network, config) -> None:
    graph = quantise(network.graph(), network.data(batch=16), dialect=network.dialect)
    x = quantise_array(network.data(), graph.inputs["x"].type.quant)
    try:
        compiled = compile(graph, config)
    except (DoesNotFit, ProgramTooLong) as error:
        event(type(error).__name__)
        return
    check(compiled, {"x": x}, (None, network.seed))
    assert not find_races(compiled.program, config)


@pytest.mark.parametrize("config", [TINY, WIDE, TALL], ids=lambda c: c.name)
@pytest.mark.parametrize("name", NAMED)
def test_named(name: str, config) -> None:
    check_network(NAMED[name], config)


@given(networks(3))
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_networks(network: Network) -> None:
    check_network(network, WIDE if network.seed % 2 else TALL)


@pytest.mark.soak
@pytest.mark.parametrize("config", [TINY, WIDE, TALL], ids=lambda c: c.name)
def test_many_networks(config) -> None:
    @given(networks(6))
    @settings(max_examples=300, suppress_health_check=list(HealthCheck))
    def run(network: Network) -> None:
        check_network(network, config)

    run()
