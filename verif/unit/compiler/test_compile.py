"""Whole networks: the digits on the golden machine, partition, errors, and what `describe` prints."""

from __future__ import annotations

import numpy as np
import pytest

from examples.digits import networks
from sluice.compiler import DoesNotFit, Graph, ProgramTooLong, Unsupported, compile, quantise, run_quantised
from sluice.compiler import driver as compiler_driver
from sluice.compiler.partition import partition
from sluice_hw.config import ChipConfig

from .races import find_races
from .run_golden import CONFIGS, SMALL, TINY, check

DATA = networks.load_data()
TRAIN, TEST = networks.preprocess(DATA.train_images), networks.preprocess(DATA.test_images)


def quantised(name: str, batch: int, **options: str) -> Graph:
    return quantise(networks.NETWORKS[name](batch=batch), TRAIN[:200], io="float32", **options)


@pytest.mark.parametrize("config", [TINY, SMALL], ids=["tiny", "small"])
@pytest.mark.parametrize("name", networks.NETWORKS)
def test_digits(name: str, config: ChipConfig, seed: int) -> None:
    """All held-out images, the whole batch in chunks, no value different; labels as the executor's."""
    for logits in ("int8", "int32"):
        graph = quantised(name, len(TEST), logits=logits)
        compiled = compile(graph, config)
        result = check(compiled, {"image": TEST}, (None, seed))
        assert result.counters.macs == compiled.macs
        accuracy = (run_quantised(graph, TEST)["logits"].argmax(axis=1) == DATA.test_labels).mean()
        assert accuracy >= 0.97


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("name", networks.NETWORKS)
def test_small_batches(name: str, config: ChipConfig, seed: int) -> None:
    for batch in (1, 2, 7, 33):
        compiled = compile(quantised(name, batch), config)
        check(compiled, {"image": TEST[:batch]}, (None, seed))
        assert not find_races(compiled.program, config)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("peel", [True, False])
@pytest.mark.parametrize("name", networks.NETWORKS)
def test_chunks(name: str, slots: int, peel: bool, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way to pass through a batch, with one to five chunks, the last one not full."""
    emit = compiler_driver._Segments._emit
    for chunk in (11, 10, 7, 5, 3):
        monkeypatch.setattr(compiler_driver, "choose_partition", lambda c, low, _, n=chunk: partition(c, low, n, slots))
        monkeypatch.setattr(compiler_driver._Segments, "_emit", lambda s, plans, _: emit(s, plans, peel))
        compiled = compile(quantised(name, 11), TINY)
        monkeypatch.undo()
        assert f"chunks of {chunk} units, {slots} slots" in compiled.describe()
        check(compiled, {"image": TEST[:11]}, (None, seed))
        assert not find_races(compiled.program, TINY)


def test_segments(seed: int) -> None:
    """A VMEM too small for all weights: tensors between segments go through HBM."""
    config = TINY.replace(name="little", vmem_bytes=32 * 8 * 20)
    for name in networks.NETWORKS:
        for batch in (1, 9):
            compiled = compile(quantised(name, batch), config)
            segments = compiled.describe().count("\nsegment ") + compiled.describe().startswith("segment ")
            assert segments > 1 if name == "mlp" else segments >= 1
            check(compiled, {"image": TEST[:batch]}, (None, seed, seed + 1))
            assert not find_races(compiled.program, config)


def test_batch_option_and_base() -> None:
    graph = quantised("mlp", 1)
    compiled = compile(graph, TINY, batch=5, hbm_base=1000)
    check(compiled, {"image": TEST[:5]})
    specs = [*compiled.inputs.values(), *compiled.outputs.values()]
    assert min(s.slice_address for s in [*specs, *compiled.constants]) == 1000
    assert compiled.hbm_image()[: len(compiled.constants[0].data)] == compiled.constants[0].data
    taken = sorted((s.slice_address, s.slices) for s in [*specs, *compiled.constants])
    assert all(a + n <= b for (a, n), (b, _) in zip(taken, taken[1:], strict=False)), "slices overlap"
    assert taken[-1][0] + taken[-1][1] == compiled.hbm_slices


def test_describe_names_every_pass() -> None:
    text = compile(quantised("cnn", 8), TINY).describe()
    for part in ("steps", "segment 0", "region", "HBM", "program", "estimated", "conv1", "K tiles", "slices", "words"):
        assert part in text


def test_does_not_fit() -> None:
    g = Graph("big")
    rng = np.random.default_rng(0)
    x = g.input("x", (1, 40, 40, 3))
    g.output(g.max_pool2d(g.conv2d(x, rng.normal(0, 0.1, (3, 3, 3, 200)).astype(np.float32)), 3, stride=1), "y")
    q = quantise(g, rng.normal(0, 1, (2, 40, 40, 3)).astype(np.float32))
    text = r"step '.*' with 1 of 1 units .* needs [\d.]+ \w+, [\d.]+ \w+ free, largest hole"
    with pytest.raises(DoesNotFit, match=text) as info:
        compile(q, TINY)
    assert info.value.needed > info.value.largest


def test_too_long() -> None:
    with pytest.raises(ProgramTooLong, match=r"graph 'cnn' needs \d+ microcode words; the store has 64") as info:
        compile(quantised("cnn", 4), TINY.replace(name="short", microcode_words=64))
    assert info.value.needed > info.value.free == 64


def test_unsupported() -> None:
    with pytest.raises(Unsupported, match="token_max is 7; allowed: at least 24"):
        compile(quantised("mlp", 1), TINY.replace(name="few-tokens", token_max=7))
    with pytest.raises(Unsupported, match="matmul 'fc1' belongs to a float graph"):
        compile(networks.mlp(1), TINY)
