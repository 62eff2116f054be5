"""Vector programs on chips: softmax, norms, GELU, rotary embedding, attention, encoder layers; golden's bits."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

import numpy as np
import pytest

from sluice.runtime import Device
from sluice.vector.layer import random_weights, rows_of
from sluice_hw.config import ChipConfig, preset
from verif.harness import open_chip
from verif.models.encoder import layer64
from verif.models.minilm import PACKAGE, MiniLm
from verif.models.vector_cases import TINY, WIDE, Case, cases, encoder_case, golden_results

SEQUENCES = (1, 17, 32, 128)


def check(device: Device, case: Case) -> dict[str, np.ndarray]:
    program, wanted = case.compile(device.config), golden_results(case, device.config)
    got, report = program.run(device, case.inputs)
    for name, bits in wanted.items():
        assert np.array_equal(got[name].view(np.uint32), bits), f"{case.name}: {name}"
    print(f"{case.name}: {report.cycles} cycles")
    return got


def on_chip(config: ChipConfig, chosen: Iterable[Case]) -> None:
    with open_chip(config) as device:
        for case in chosen:
            check(device, case)


@pytest.mark.soak
@pytest.mark.parametrize("config", (TINY, WIDE), ids=lambda c: c.name)
def test_operations(config, seed):
    on_chip(config, (case for number in range(3) for case in cases(seed + number)))


def check_layers(device: Device, seed: int, weights: str, sequences: Iterable[int] = SEQUENCES) -> None:
    """Bits of golden, and ||y - y32|| / ||y32|| (float64 stands for float32) within 1e-2."""
    rng = np.random.default_rng(seed)
    model = None if weights == "random" else MiniLm()
    for sequence in sequences:
        if model is None:
            x, w, heads = rows_of(rng, sequence, 384, 1.0), random_weights(rng, 384), 12
        else:
            x, w, heads = model.random_rows(rng, sequence), model.layer(0), model.HEADS
        y = check(device, encoder_case(x, w, heads, lanes=device.config.cols))["y"].astype(np.float64)
        wanted = layer64(x, w, heads)
        error = float(np.linalg.norm(y - wanted) / np.linalg.norm(wanted))
        print(f"sequence {sequence}, {weights} weights: ||y - y32|| / ||y32|| {error:.5f}")
        assert error <= 1e-2, f"sequence {sequence}: {error}"


WEIGHTS = [
    "random",
    pytest.param("MiniLM", marks=pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None,
                                                    reason=f"without the package {PACKAGE}")),
]  # fmt: skip


@pytest.mark.parametrize("weights", WEIGHTS)
def test_layer_on_golden(weights, seed):
    with Device(preset("v2"), "golden") as device:
        check_layers(device, seed, weights, (17,) if weights == "random" else SEQUENCES)


@pytest.mark.soak
@pytest.mark.parametrize("weights", WEIGHTS)
def test_layer_of_bert_shape(weights, seed):
    """hidden 384, 12 heads, on preset v2 in process."""
    with open_chip(preset("v2")) as device:
        check_layers(device, seed, weights)
