"""Every quantised operation on the golden machine, and random graphs of all of them, on every configuration."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from sluice.compiler import DoesNotFit, Graph, Tensor, compile, quantise, quantise_array
from sluice.compiler import driver as compiler_driver
from sluice.compiler.partition import partition
from sluice.compiler.segment import SegmentPlan
from sluice.compiler.steps import Lowered
from sluice_hw.config import ChipConfig

from .races import find_races
from .random_graphs import random_image_graph
from .run_golden import CONFIGS, TINY, WIDE, check

Build = Callable[[Graph, Tensor, np.random.Generator], Tensor]


def run(
    build: Build,
    shape: tuple[int, ...],
    config: ChipConfig,
    seed: int,
    dialect: str = "fixed",
    schedules: tuple[int | None, ...] | None = None,
    **options: object,
) -> str:
    """Quantise, compile and check a graph of one input; its description."""
    rng = np.random.default_rng(seed)
    g = Graph("net")
    g.output(build(g, g.input("x", shape), rng), "y")
    q = quantise(g, rng.normal(0.1, 1, shape).astype(np.float32), dialect=dialect, **options)
    x = quantise_array(rng.normal(0.1, 1, shape).astype(np.float32), q.inputs["x"].type.quant)
    compiled = compile(q, config)
    check(compiled, {"x": x}, (None, seed) if schedules is None else schedules)
    assert not find_races(compiled.program, config)
    return compiled.describe()


def weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(0, 1 / np.sqrt(np.prod(shape[:-1])), shape).astype(np.float32)


def conv(kernel: tuple[int, int], channels: int, **options: object) -> Build:
    def build(g: Graph, x: Tensor, rng: np.random.Generator) -> Tensor:
        w = weights(rng, *kernel, x.shape[3], channels)
        return g.relu(g.conv2d(x, w, rng.normal(0, 0.2, channels).astype(np.float32), **options))

    return build


def _partition(chunk: int, slots: int, config: ChipConfig, lowered: Lowered, _: int) -> list[SegmentPlan]:
    """In place of `choose_partition`."""
    return partition(config, lowered, chunk, slots)


CONVOLUTIONS = {
    "one channel": ((3, 3), 8, {}, (3, 8, 8, 1)),
    "three channels": ((3, 3), 5, {}, (3, 7, 6, 3)),
    "eight channels": ((3, 3), 17, {}, (2, 5, 5, 8)),
    "many channels": ((3, 3), 4, {}, (1, 4, 4, 64)),
    "kernel one, padding one": ((1, 1), 3, {"padding": ((1, 1), (1, 1))}, (2, 4, 5, 2)),
    "kernel one, stride two": ((1, 1), 3, {"stride": 2}, (2, 5, 7, 9)),
    "pointwise": ((1, 1), 11, {}, (2, 5, 3, 10)),
    "stride": ((3, 2), 4, {"stride": (2, 3)}, (2, 9, 8, 3)),
    "uneven padding": ((2, 4), 4, {"padding": ((0, 2), (3, 1))}, (2, 5, 4, 3)),
    "dilation": ((3, 3), 4, {"dilation": (2, 3)}, (2, 9, 11, 2)),
    "dilation of lines": ((3, 3), 4, {"dilation": (2, 1), "padding": "valid"}, (2, 9, 5, 5)),
    "valid": ((3, 3), 4, {"padding": "valid"}, (2, 5, 6, 4)),
    "kernel as large as the image": ((4, 5), 9, {"padding": "valid"}, (4, 4, 5, 3)),
    "padding beyond the kernel": ((2, 2), 3, {"padding": ((3, 4), (2, 5))}, (2, 3, 3, 2)),
    "image larger than a region": ((3, 3), 3, {}, (2, 40, 20, 2)),
    "image larger than a region, valid": ((3, 3), 3, {"padding": "valid"}, (2, 41, 20, 2)),
    "image larger than a region, stride": ((5, 3), 9, {"stride": 2}, (1, 60, 41, 1)),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, config: ChipConfig, seed: int) -> None:
    kernel, channels, options, shape = CONVOLUTIONS[name]
    run(conv(kernel, channels, **options), shape, config, seed)


POOLS = {
    "two by two": (2, {}, (3, 8, 8, 8)),
    "odd": (3, {"stride": 2}, (3, 7, 9, 5)),
    "window one, stride two": (1, {"stride": 2}, (2, 5, 6, 9)),
    "overlapping, same": (3, {"stride": 1, "padding": "same"}, (2, 5, 4, 3)),
    "uneven padding": ((3, 2), {"stride": (2, 1), "padding": ((2, 1), (0, 1))}, (2, 6, 5, 17)),
    "whole image": ((4, 5), {}, (5, 4, 5, 3)),
    "lines left over": (2, {}, (3, 5, 5, 4)),
}


@pytest.mark.parametrize("dialect", ["fixed", "float"])
@pytest.mark.parametrize("kind", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize("name", POOLS)
def test_pools(name: str, kind: str, dialect: str, seed: int) -> None:
    """On their own, and fused into a convolution."""
    window, options, shape = POOLS[name]

    def alone(g: Graph, x: Tensor, rng: np.random.Generator) -> Tensor:
        return getattr(g, kind)(x, window, **options)

    def behind(g: Graph, x: Tensor, rng: np.random.Generator) -> Tensor:
        return getattr(g, kind)(conv((3, 3), 9)(g, x, rng), window, **options)

    for config in (TINY, WIDE):
        run(alone, shape, config, seed, dialect)
        run(behind, shape, config, seed, dialect)


def test_pool_on_accumulators_where_it_can(seed: int) -> None:
    """A pool whose windows tile the image is part of the convolution's VECTOR; others get their own step."""

    def build(padding: str) -> Build:
        return lambda g, x, rng: g.max_pool2d(conv((3, 3), 9)(g, x, rng), 2, stride=2, padding=padding)

    assert ".pool" not in run(build("valid"), (3, 8, 8, 2), TINY, seed)
    assert ".pool" in run(build("same"), (3, 7, 7, 2), TINY, seed)
    assert ".pool" in run(build("valid"), (3, 20, 20, 2), TINY, seed), "an image that no region holds"


@pytest.mark.parametrize("dialect", ["fixed", "float"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_mean(config: ChipConfig, dialect: str, seed: int) -> None:
    run(lambda g, x, rng: g.mean(x), (5, 6, 7, 19), config, seed, dialect)
    run(lambda g, x, rng: g.mean(conv((3, 3), 9)(g, x, rng)), (2, 5, 5, 3), config, seed, dialect)


def residual(clamp_before: bool, clamp_behind: bool, pool: bool) -> Build:
    def build(g: Graph, x: Tensor, rng: np.random.Generator) -> Tensor:
        y = conv((3, 3), x.shape[3])(g, x, rng)
        z = g.conv2d(y, weights(rng, 3, 3, x.shape[3], x.shape[3]))
        z = g.relu6(z) if clamp_before else z
        z = g.add(z, x)
        z = g.relu(z) if clamp_behind else z
        return g.max_pool2d(z, 2) if pool else z

    return build


@pytest.mark.parametrize("dialect", ["fixed", "float"])
@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("clamps", [(False, False), (False, True), (True, True)])
def test_residual(clamps: tuple[bool, bool], pool: bool, dialect: str, seed: int) -> None:
    """In the VECTOR of the convolution, or as steps of its own where bounds come before the addition."""
    for config in (TINY, WIDE):
        # With zero point 0 a clamp at 0 cuts codes off; otherwise 0 is the lowest code anyway.
        text = run(residual(*clamps, pool), (4, 6, 6, 10), config, seed, dialect, symmetric=clamps[0])
        assert (".add" in text) == clamps[0] and (".pool" in text) == pool


@pytest.mark.parametrize("dialect", ["fixed", "float"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_elements(config: ChipConfig, dialect: str, seed: int) -> None:
    """Additions and clamps of whatever has no convolution before it, sizes that are no multiple of C included."""

    def build(g: Graph, x: Tensor, rng: np.random.Generator) -> Tensor:
        y = g.clamp(x, -0.5, 0.9)
        z = g.add(g.add(x, y), g.max_pool2d(x, 1))
        return g.add(z, z)

    run(build, (3, 5, 3, 7), config, seed, dialect)
    run(lambda g, x, rng: g.relu(x), (1, 1), config, seed, dialect)
    run(lambda g, x, rng: g.relu6(x), (700, 101), config, seed, dialect, schedules=(None,))


def test_constant_operand(seed: int) -> None:
    """A constant that is no weight lies in HBM and is loaded like an input."""

    def build(g: Graph, x: Tensor, rng: np.random.Generator) -> Tensor:
        c = g.constant(rng.normal(0, 1, x.shape).astype(np.float32))
        return g.add(g.max_pool2d(g.add(x, c), 1), c)

    run(build, (6, 4, 4, 3), TINY, seed)


def test_reshapes(seed: int) -> None:
    """Reshapes cost nothing, also where they change what a row is."""

    def build(g: Graph, x: Tensor, rng: np.random.Generator) -> Tensor:
        y = g.reshape(x, (-1, 6))  # 4 rows of a matmul per image
        y = g.matmul(y, weights(rng, 6, 10))
        y = g.reshape(y, (x.shape[0], 2, 2, 10))
        y = g.conv2d(y, weights(rng, 2, 2, 10, 3))
        return g.flatten(y)

    text = run(build, (6, 2, 4, 3), TINY, seed)
    assert "6 units" in text
    # Rows that cross images leave one unit.
    run(lambda g, x, rng: g.matmul(g.reshape(x, (2, -1)), weights(rng, 12, 5)), (3, 2, 2, 2), TINY, seed)


def test_several_inputs_and_outputs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    g = Graph("net")
    a, b = g.input("a", (9, 6, 6, 3)), g.input("b", (9, 6, 6, 3))
    c = conv((3, 3), 3)(g, a, rng)
    d = g.add(c, b)
    g.output(d, "sum")
    g.output(c, "left")
    g.output(g.matmul(g.mean(d), weights(rng, 3, 4)), "y")
    g.output(d, "again")
    shape = (9, 6, 6, 3)
    calibration = {n: rng.normal(0, 1, shape).astype(np.float32) for n in "ab"}
    q = quantise(g, calibration)
    inputs = {n: quantise_array(rng.normal(0, 1, shape), q.inputs[n].type.quant) for n in "ab"}
    for config in CONFIGS.values():
        compiled = compile(q, config)
        check(compiled, inputs, (None, seed))
        assert not find_races(compiled.program, config)
        assert compiled.outputs["sum"].slice_address == compiled.outputs["again"].slice_address


def test_output_that_is_an_input(seed: int) -> None:
    rng = np.random.default_rng(seed)
    g = Graph("net")
    x = g.input("x", (3, 10))
    g.output(x, "same")
    g.output(g.relu(x), "y")
    q = quantise(g, rng.normal(0, 1, (3, 10)).astype(np.float32), io="float32")
    check(compile(q, TINY), {"x": rng.normal(0, 1, (3, 10)).astype(np.float32)})


@pytest.mark.parametrize("case", range(24))
def test_random_graphs(case: int, seed: int) -> None:
    """Random graphs in every configuration, as one chunk or many, in one segment or several."""
    rng = np.random.default_rng([seed, case])
    batch = int(rng.integers(1, 7))
    g = random_image_graph(rng, int(rng.integers(1, 7)), batch)
    size = g.inputs["x"].type.shape[1:]
    dialect, symmetric = ("fixed", "float")[case % 2], case % 5 == 0
    q = quantise(g, rng.normal(0, 1, (8, *size)).astype(np.float32), dialect=dialect, symmetric=symmetric)
    x = quantise_array(rng.normal(0, 1, (batch, *size)), q.inputs["x"].type.quant)
    config = list(CONFIGS.values())[case // 2 % 4]
    compiled = compile(q, config)
    check(compiled, {"x": x}, (None, seed, seed + 1, seed + 2))
    assert not find_races(compiled.program, config)


@pytest.mark.parametrize("image", [False, True])
def test_weights_larger_than_vmem(image: bool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of single layers pass through a ring of strips: for chunks of any size, with one slot and two."""
    config = TINY.replace(name="little", vmem_bytes=32 * 8 * (40 if image else 20), acc_bytes=1 << 11)

    def build(g: Graph, x: Tensor, rng: np.random.Generator) -> Tensor:
        if image:
            y = conv((3, 3), 60)(g, x, rng)
            return g.max_pool2d(g.add(g.conv2d(y, weights(rng, 2, 2, 60, 60)), y), 2)
        y = g.relu(g.matmul(x, weights(rng, 70, 90), rng.normal(0, 1, 90).astype(np.float32)))
        y = g.matmul(g.relu(g.matmul(y, weights(rng, 90, 9))), weights(rng, 9, 90))
        return g.matmul(g.add(y, y), weights(rng, 90, 72))

    shape = (7, 4, 4, 3) if image else (7, 70)
    assert "weights streamed" in run(build, shape, config, seed)
    for chunk in (1, 2, 3, 7):
        for slots in (1, 2):
            fixed = functools.partial(_partition, chunk, slots)
            monkeypatch.setattr(compiler_driver, "choose_partition", fixed)
            try:
                assert "weights streamed" in run(build, shape, config, seed)
            except DoesNotFit:
                assert image and (chunk, slots) > (2, 1)


def test_images_cut_by_lines_with_streamed_weights(seed: int) -> None:
    config = TINY.replace(name="little", vmem_bytes=32 * 8 * 40, acc_bytes=1 << 10)
    text = run(conv((3, 3), 50), (3, 8, 6, 30), config, seed)
    assert "lines" in text and "weights streamed" in text


def test_channel_tiles_are_one_loop(seed: int) -> None:
    """Many channels make longer loops, not longer programs."""

    def words(channels: int, **options: object) -> int:
        text = run(conv((3, 3), 4, **options), (1, 4, 4, channels), TINY, seed, schedules=(None,))
        return int(text.split("program\n")[1].split()[0])

    assert words(64) == words(16)
    assert words(64, padding="valid") == words(16, padding="valid") < words(16)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("case", range(6))
def test_random_graphs_in_chunks(case: int, slots: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One unit at a time, so that every chunk border is passed."""
    rng = np.random.default_rng([seed, case, slots])
    batch = int(rng.integers(2, 6))
    g = random_image_graph(rng, 3, batch)
    size = g.inputs["x"].type.shape[1:]
    q = quantise(g, rng.normal(0, 1, (8, *size)).astype(np.float32))
    x = quantise_array(rng.normal(0, 1, (batch, *size)), q.inputs["x"].type.quant)
    config = TINY.replace(name="long-store", microcode_words=1 << 14)
    monkeypatch.setattr(compiler_driver, "choose_partition", functools.partial(_partition, 1, slots))
    compiled = compile(q, config)
    check(compiled, {"x": x}, (None, seed))
    assert not find_races(compiled.program, config)
