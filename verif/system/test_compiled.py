"""Compiled programs on chips, against NumPy and the graph's executor: matmuls of ragged shapes, and a small network.

On ``wide``, whose rows, columns, banks and memories are no powers of two, and on ``tiny``.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from sluice.compiler import Graph, quantise, run_quantised
from sluice.compiler import compile as compile_graph
from sluice.golden.numerics import quantize_multiplier
from sluice.runtime import CompiledModel, Device
from sluice.runtime.matmul import MatmulResult, run_matmul
from verif.system.configs import CONFIGS
from verif.system.workload import assert_accounted


@pytest.fixture(params=CONFIGS)
def chip(request: pytest.FixtureRequest) -> Device:
    return request.getfixturevalue(request.param)


def numpy_matmul(done: MatmulResult, relu: bool) -> np.ndarray:
    """What the result must be, from the contract's formula in 64 bits."""
    sums = done.a.astype(np.int64) @ done.w.astype(np.int64)
    if done.result.dtype == np.int32:
        return np.maximum(sums, 0) if relu else sums
    m, n = quantize_multiplier(40 / (74.0**2 * done.a.shape[1] ** 0.5))
    narrow = (sums * m + (1 << (n - 1))) >> n
    return np.clip(narrow, 0 if relu else -128, 127)


def check_matmul(device: Device, m: int, k: int, n: int, *, seed: int, out: str, relu: bool) -> MatmulResult:
    done = run_matmul(device.config, m, k, n, seed=seed, out=out, relu=relu, device=device)
    where = f"{m} x {k} x {n}, seed {seed}, {out}, relu {relu}"
    assert done.verification.mismatches == 0, f"{where}: {done.verification.first}"
    assert done.result.dtype.name == out
    bad = np.argwhere(done.result != numpy_matmul(done, relu))
    assert not len(bad), f"{where}: {len(bad)} values differ from NumPy, the first at {bad[0]}"
    assert done.report.macs == m * k * n, where
    assert_accounted(done.report)
    return done


def edges(unit: int) -> list[int]:
    """Sizes at which a tile of ``unit`` begins or ends."""
    return sorted({1, 2, unit - 1, unit, unit + 1, 2 * unit - 1, 2 * unit, 2 * unit + 1})


def test_one_value(chip: Device) -> None:
    for seed, out in itertools.product(range(2), ("int8", "int32")):
        check_matmul(chip, 1, 1, 1, seed=seed, out=out, relu=False)


def test_shapes_around_the_edges(chip: Device, seed: int) -> None:
    rng = random.Random(f"{seed}/{chip.config.name}")
    rows, cols = chip.config.rows, chip.config.cols
    shapes = list(itertools.product(edges(rows), edges(rows), edges(cols)))
    for m, k, n in rng.sample(shapes, 12 if chip.config.name == "wide" else 5):
        out, relu = rng.choice(["int8", "int32"]), rng.random() < 0.5
        check_matmul(chip, m, k, n, seed=rng.randrange(1000), out=out, relu=relu)


def test_random_shapes(chip: Device, seed: int) -> None:
    rng = random.Random(f"{seed}/{chip.config.name}")
    for out in ("int8", "int32"):
        m, k, n = (rng.randint(1, 60) for _ in range(3))
        check_matmul(chip, m, k, n, seed=rng.randrange(1000), out=out, relu=rng.random() < 0.5)


@pytest.mark.parametrize("out", ["int8", "int32"])
def test_larger_than_vmem(wide: Device, out: str, seed: int) -> None:
    """Either operand alone is."""
    m, k, n = 59, 83, 53
    assert min(m * k, k * n) > wide.config.vmem_bytes
    report = check_matmul(wide, m, k, n, seed=seed, out=out, relu=False).report
    assert report.work["ld_slices"] * wide.config.slice_bytes > m * k + k * n


def network(batch: int, rng: np.random.Generator) -> Graph:
    """Convolutions of 3 and 4 channels, an addition of what stands before, poolings, a fully connected layer."""
    def weights(*shape: int) -> np.ndarray:
        return rng.normal(0, np.prod(shape[:-1]) ** -0.5, shape).astype(np.float32)

    g = Graph("residual")
    x = g.input("x", (batch, 6, 5, 3))
    first = g.relu(g.conv2d(x, weights(3, 3, 3, 4), rng.normal(0, 0.1, 4).astype(np.float32), padding="same"))
    second = g.conv2d(first, weights(3, 3, 4, 4), rng.normal(0, 0.1, 4).astype(np.float32), padding="same")
    y = g.relu(g.add(second, first))
    y = g.max_pool2d(y, 2)
    y = g.avg_pool2d(y, (1, 2), stride=1)
    g.output(g.matmul(g.flatten(y), weights(y.shape[1] * y.shape[2] * y.shape[3], 13)), "y")
    return g


@pytest.mark.parametrize("dialect", ["fixed", "float"])
def test_network(chip: Device, dialect: str, seed: int) -> None:
    """Convolution, residual, pooling and a fully connected layer: no value differs."""
    rng = np.random.default_rng(seed)
    graph = quantise(network(2, rng), rng.normal(0, 1, (16, 6, 5, 3)).astype(np.float32), dialect=dialect)
    type_ = graph.inputs["x"].type
    x = rng.integers(-128, 128, type_.shape).astype(type_.dtype)
    with CompiledModel(compile_graph(graph, chip.config), chip) as model:
        outcome = model.run(x, verify=True)
    want = run_quantised(graph, x)["y"]
    assert outcome.verification.mismatches == 0, outcome.verification.first
    assert np.array_equal(outcome.outputs["y"], want) and len(np.unique(want)) > 5
    assert_accounted(outcome.report)
