"""A program that keeps every unit busy at once (examples/asm/matmul_loop.s), its data, and what it must give."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sluice.asm import Program, assemble
from sluice.runtime import Device, RunReport
from sluice_hw.isa import UNIT_CAUSES
from verif.system.configs import CONFIGS

_SOURCE = Path(__file__).parents[2] / "examples" / "asm" / "matmul_loop.s"
#: First slice of the results, and how many slices tests look at.
_OUT, _REACH = 18, 24


@dataclass(frozen=True)
class Workload:
    """The program, HBM before it, and the result[128, 8] that NumPy computes."""

    program: Program
    hbm: np.ndarray
    want: np.ndarray

    def load(self, device: Device) -> None:
        """HBM as before the first run."""
        device.write_memory(0, self.hbm.tobytes())

    def check(self, device: Device) -> None:
        """The results are right, and the slices around them are as they were."""
        got = np.frombuffer(device.read_memory(0, self.hbm.size), np.uint8)
        size = device.config.slice_bytes
        expected = self.hbm.copy()
        expected[_OUT * size : _OUT * size + self.want.size] = self.want.view(np.uint8).reshape(-1)
        bad = np.flatnonzero(got != expected)
        assert not bad.size, f"{bad.size} bytes of HBM differ, the first at {bad[0]}"

    def run(self, device: Device) -> RunReport:
        """Load, run, check, with every cycle of every unit accounted for."""
        self.load(device)
        report = device.run(self.program)
        self.check(device)
        assert_accounted(report)
        return report


def make(seed: int) -> Workload:
    """The workload with random operands."""
    config, rng = CONFIGS["tiny"], np.random.default_rng(seed)
    a = rng.integers(-128, 128, (4, 4, 32, 8)).astype(np.int8)  # [row block][k block][row][k]
    w = rng.integers(-128, 128, (32, 8)).astype(np.int8)
    bias = rng.integers(-9999, 9999, 8).astype(np.int32)
    scale = rng.uniform(0.0005, 0.004, 8).astype(np.float32)
    hbm = rng.integers(0, 256, _REACH * config.slice_bytes).astype(np.uint8)
    for first, data in ((0, a.tobytes()), (16, w.tobytes()), (17, bias.tobytes() + scale.tobytes() + bytes(8))):
        at = first * config.slice_bytes
        hbm[at : at + len(data)] = np.frombuffer(data, np.uint8)
    rows = a.transpose(0, 2, 1, 3).reshape(128, 32).astype(np.int64)
    sums = (rows @ w.astype(np.int64) + bias).astype(np.float32)
    want = np.clip(np.rint(sums * scale), -128, 127).astype(np.int8)
    assert len(np.unique(want)) > 100, "results that say something"
    return Workload(assemble(_SOURCE.read_text(), file=_SOURCE.name), hbm, want)


def assert_accounted(report: RunReport) -> None:
    """For every unit, busy + idle + causes == cycles."""
    assert report.cycles and set(report.stalls) == set(UNIT_CAUSES)
    for unit, causes in report.stalls.items():
        assert set(causes) == {c.name.lower() for c in UNIT_CAUSES[unit]}
        assert sum(causes.values()) == report.cycles, f"{unit}: {causes} of {report.cycles} cycles"
