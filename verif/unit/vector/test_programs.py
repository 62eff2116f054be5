"""Vector programs as microcode: the golden machine gives the bits of golden's tensors, in every order of units."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.golden import GoldenMachine
from sluice.runtime import Device
from sluice.vector import VectorProgram
from sluice.vector.run import pack, unpack
from verif.models.vector_cases import TINY, WIDE, Case, cases, golden_results


def run_machine(program: VectorProgram, case: Case, schedule: int | None) -> dict[str, np.ndarray]:
    """A new machine, all of whose memories are unwritten."""
    machine, size, base = GoldenMachine(program.config), program.config.slice_bytes, 3
    for name, image in program.inputs.items():
        raw = pack(image, case.inputs[name]).ljust(image.slices * size, b"\0")
        machine.write_hbm((base + image.first) * size, raw)
    result = machine.run(program.program, params=[base], schedule_seed=schedule)
    assert result.halted, result.error
    assert not result.tokens_left
    out = {}
    for name, image in program.outputs.items():
        raw = machine.read_hbm((base + image.first) * size, image.rows * image.pitch)
        out[name] = unpack(image, raw.tobytes())
    return out


def same(case: Case, got: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    for name, bits in wanted.items():
        assert got[name].dtype == np.float32 and got[name].shape == bits.shape
        assert np.array_equal(got[name].view(np.uint32), bits), f"{case.name}: {name}"


@pytest.mark.parametrize("config", (TINY, WIDE), ids=lambda c: c.name)
def test_operations(config, seed):
    for case in cases(seed):
        program, wanted = case.compile(config), golden_results(case, config)
        for schedule in (None, seed):
            same(case, run_machine(program, case, schedule), wanted)


def test_on_a_device(seed):
    case = next(c for c in cases(seed) if c.name.startswith("attention 5x9"))
    with Device(TINY, "golden") as device:
        got, report = case.compile(TINY).run(device, case.inputs)
    same(case, got, golden_results(case, TINY))
    assert report.macs == 5 * 9 * 8 * 2
