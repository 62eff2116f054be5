"""Networks made by hypothesis, through the compiler on chips: no value differs from golden or the graph's executor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings

from sluice.compiler import DoesNotFit, ProgramTooLong, quantise, quantise_array, run_quantised
from sluice.compiler import compile as compile_graph
from sluice.runtime import CompiledModel, Device
from sluice.runtime.matmul import run_matmul
from verif.harness import open_chip
from verif.system.configs import RANDOM_CONFIGS
from verif.system.workload import assert_accounted
from verif.unit.compiler.graph_strategies import Network, networks
from verif.unit.compiler.test_networks import NAMED


@pytest.fixture(scope="module", params=RANDOM_CONFIGS)
def chip(request: pytest.FixtureRequest) -> Iterator[Device]:
    with open_chip(RANDOM_CONFIGS[request.param]) as device:
        yield device


def check_network(network: Network, chip: Device) -> None:
    graph = quantise(network.graph(), network.data(batch=16), dialect=network.dialect)
    x = quantise_array(network.data(), graph.inputs["x"].type.quant)
    try:
        compiled = compile_graph(graph, chip.config)
    except (DoesNotFit, ProgramTooLong) as error:
        event(type(error).__name__)
        return
    with CompiledModel(compiled, chip) as model:
        outcome = model.run(x, verify=True)
    assert outcome.verification.mismatches == 0, outcome.verification.first
    assert np.array_equal(outcome.outputs["y"], run_quantised(graph, x)["y"])
    assert_accounted(outcome.report)


@pytest.mark.parametrize("name", NAMED)
def test_named(chip: Device, name: str) -> None:
    check_network(NAMED[name], chip)


@pytest.mark.parametrize("m, k, n", [(24, 33, 55), (1, 1, 8), (700, 1, 1)])
def test_odd_matmuls(chip: Device, m: int, k: int, n: int, seed: int) -> None:
    done = run_matmul(chip.config, m, k, n, seed=seed, out="int32", relu=False, device=chip)
    assert not done.verification.mismatches
    assert np.array_equal(done.result, done.a.astype(np.int64) @ done.w.astype(np.int64))


@pytest.mark.soak
def test_many_rows(chip: Device, seed: int) -> None:
    test_odd_matmuls(chip, 8192, 1, 1, seed)


def run_many(chip: Device, examples: int, layers: int) -> None:
    @given(networks(layers))
    @settings(max_examples=examples, phases=set(Phase) - {Phase.explain}, suppress_health_check=list(HealthCheck))
    def run(network: Network) -> None:
        check_network(network, chip)

    run()


def test_networks(chip: Device) -> None:
    run_many(chip, 5, 3)


@pytest.mark.soak
def test_many_networks(chip: Device) -> None:
    run_many(chip, 120, 6)
