"""Wrong bits in HBM while a program runs: single ones change no result, double ones end it and are named."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from sluice.compiler import compile as compile_graph
from sluice.compiler import matmul_graph
from sluice.errors import ChipError, DeviceTimeout, UsageError
from sluice.runtime import CompiledModel, Device
from sluice_hw.isa import Error
from verif.harness import open_chip
from verif.system.configs import RANDOM_CONFIGS

#: The chip of random programs, too.
CONFIG = RANDOM_CONFIGS["odd"]
M, K, N = 40, 24, 20


@pytest.fixture(scope="module")
def chip() -> Iterator[Device]:
    with open_chip(CONFIG) as device:
        yield device


@pytest.fixture
def model(chip: Device, seed: int) -> Iterator[CompiledModel]:
    rng = np.random.default_rng(seed)
    graph = matmul_graph(M, K, N, weights=rng.integers(-128, 128, (K, N)).astype(np.int8))
    with CompiledModel(compile_graph(graph, CONFIG), chip) as model:
        chip.scrub(0)
        chip.ecc_status(clear=True)
        yield model


def operand(seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 1]).integers(-128, 128, (M, K)).astype(np.int8)


def run(model: CompiledModel, seed: int):
    done = model.run(operand(seed), verify=True)
    assert done.verification.mismatches == 0, done.verification.first
    return done


def test_no_errors(model: CompiledModel, chip: Device, seed: int) -> None:
    run(model, seed)
    status = chip.ecc_status()
    assert (status.corrected, status.detected, status.scrubbed, status.repaired) == (0, 0, 0, 0)


def test_single_errors_change_no_result(model: CompiledModel, chip: Device, seed: int) -> None:
    weights = max(model.compiled.constants, key=lambda c: c.slices)
    at = weights.slice_address * CONFIG.slice_bytes
    for address, bit in ((at, 7), (at + 8, 63), (at + 16, 70)):
        chip.inject_error(address, [bit])
    run(model, seed)
    status = chip.ecc_status()
    assert status.corrected >= 3 and status.detected == 0 and status.corrected_slice == weights.slice_address
    # The scrubber rewrites them; the next run meets none.
    chip.scrub(20)
    run(model, seed)
    chip.transport.advance(100 * CONFIG.hbm_slices)
    chip.scrub(0)
    status = chip.ecc_status(clear=True)
    assert status.repaired == 1 and status.scrubbed >= CONFIG.hbm_slices and status.detected == 0
    run(model, seed)
    assert chip.ecc_status().corrected == 0


def test_double_error_ends_the_program(model: CompiledModel, chip: Device, seed: int) -> None:
    """The fault names what lies there; nothing is written after it, and without the error the chip works again."""
    weights = max(model.compiled.constants, key=lambda c: c.slices)
    last = weights.slice_address + weights.slices - 1
    word = 1
    address = last * CONFIG.slice_bytes + 8 * word
    chip.inject_error(address, [3, 50])
    with pytest.raises(ChipError) as caught:
        model.run(operand(seed))
    fault = caught.value.fault
    assert fault.code is Error.HBM_ERROR and fault.unit == "LD"
    where = f"HBM slice {last}, word {word}, in constant {weights.name} of '{model.compiled.graph.name}',"
    assert where in str(caught.value)
    status = chip.ecc_status()
    assert status.detected >= 1 and (status.detected_slice, status.detected_word) == (last, word)
    assert not chip.status["error"] and chip.last_error is None
    chip.inject_error(address, [3, 50])  # inverted twice
    run(model, seed)


def test_what_cannot_be_injected(chip: Device) -> None:
    with pytest.raises(UsageError, match="must be a multiple of 8 below 192000, not 12"):
        chip.inject_error(12, [0])
    with pytest.raises(UsageError, match="0 to 63, or to 71 for check bits, not 72"):
        chip.inject_error(0, [72])
    for word in range(4):
        chip.inject_error(40 * CONFIG.slice_bytes + 8 * word, [1])
    with pytest.raises(DeviceTimeout, match="no room for another wrong word"):
        chip.inject_error(40 * CONFIG.slice_bytes + 8 * 4, [1])
    with Device(CONFIG.replace(ecc="off"), "golden") as device:
        with pytest.raises(UsageError, match="chip 'odd' has no ECC; its config field ecc is 'off'"):
            device.inject_error(0, [0])
