"""Run compiled graphs on the golden machine, as a driver would on the chip."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sluice.compiler import Compiled, run_quantised
from sluice.golden import GoldenMachine, RunResult
from sluice_hw.config import preset

TINY, SMALL = preset("tiny"), preset("small")
#: Rows and columns that differ, and no powers of two.
WIDE = TINY.replace(name="wide", rows=5, cols=12, acc_bytes=96 * 60, vmem_bytes=32 * 16 * 96, feed_ports=3)
TALL = TINY.replace(name="tall", rows=12, cols=5, acc_bytes=40 * 64, feed_ports=2, token_max=31)
CONFIGS = {c.name: c for c in (TINY, SMALL, WIDE, TALL)}


def execute(
    compiled: Compiled, inputs: Mapping[str, np.ndarray], schedule: int | None = None
) -> tuple[dict[str, np.ndarray], RunResult]:
    """Outputs by name. HBM and VMEM begin unwritten, so that a read of what nobody made is an error."""
    machine = GoldenMachine(compiled.config)
    size = compiled.config.slice_bytes
    for constant in compiled.constants:
        machine.write_hbm(constant.slice_address * size, constant.data.ljust(constant.slices * size, b"\0"))
    for name, spec in compiled.inputs.items():
        data = spec.pack(inputs[name])
        assert len(data) == spec.slices * size
        machine.write_hbm(spec.slice_address * size, data)
    machine.hbm_lo, machine.hbm_hi = compiled.hbm_base, compiled.hbm_slices
    result = machine.run(compiled.program, schedule_seed=schedule)
    assert result.halted, result.error
    outputs = {}
    for name, spec in compiled.outputs.items():
        # Slices between panels, and their padding, may stay unwritten.
        data = machine.read_hbm(spec.slice_address * size, spec.slices * size, allow_unwritten=True)
        outputs[name] = spec.unpack(data.tobytes())
    return outputs, result


def check(
    compiled: Compiled, inputs: Mapping[str, np.ndarray], schedules: tuple[int | None, ...] = (None,)
) -> RunResult:
    """Results equal the integer executor's under every schedule."""
    want = run_quantised(compiled.graph, inputs)
    for schedule in schedules:
        got, result = execute(compiled, inputs, schedule)
        assert set(got) == set(want)
        for name, value in want.items():
            assert got[name].dtype == value.dtype and got[name].shape == value.shape, name
            wrong = np.argwhere(got[name] != value)
            assert not len(wrong), (
                f"{name}: {len(wrong)} of {value.size} differ, first at {wrong[0]}\n{compiled.describe()}"
            )
    return result
