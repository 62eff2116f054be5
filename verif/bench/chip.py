"""Matmuls of random int8 operands, HBM to HBM, doorbell to interrupt, every value compared with golden.

``ideal_cycles`` is what the binding resource needs alone: the array (rows x tiles, a tile taking at least R cycles), or
HBM (operands read once, result written once, whole slices). ``mxu_utilisation`` counts useful MACs.
"""

from __future__ import annotations

from typing import Any

from sluice.runtime import Device
from sluice.runtime.matmul import run_matmul
from sluice_hw.config import ChipConfig, preset

__all__ = ["CASES", "run"]

#: Config, m, k, n, result type, ReLU.
CASES: tuple[tuple[str, int, int, int, str, bool], ...] = (
    ("tiny", 8, 8, 8, "int8", False),
    ("tiny", 64, 64, 64, "int8", False),
    ("tiny", 128, 128, 128, "int32", False),
    ("tiny", 37, 70, 19, "int8", False),
    ("small", 63, 64, 64, "int8", True),
    ("small", 256, 256, 256, "int8", False),
    ("small", 512, 512, 512, "int8", False),
)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def bounds(config: ChipConfig, m: int, k: int, n: int, out: str) -> dict[str, int]:
    """Cycles that each resource needs by itself, by name."""
    tiles = _ceil(k, config.rows) * _ceil(n, config.cols)
    moved = m * k + k * n + m * n * (4 if out == "int32" else 1)
    return {
        "array": tiles * m,
        "weights": tiles * config.rows,
        "HBM": _ceil(moved, config.hbm_bytes_per_cycle),
    }


def run() -> list[dict[str, Any]]:
    """Run all cases; rows as in ``sim_build/bench/chip.json``."""
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(case[0] for case in CASES):
        config = preset(name)
        with Device(config, "cocotb", progress=lambda line: print(f"  {line}", flush=True)) as device:
            for case, m, k, n, out, relu in CASES:
                if case == name:
                    rows.append(_row(config, device, m, k, n, out, relu))
    return rows


def _row(config: ChipConfig, device: Device, m: int, k: int, n: int, out: str, relu: bool) -> dict[str, Any]:
    result = run_matmul(config, m, k, n, seed=1, out=out, relu=relu, device=device)
    report = result.report
    need = bounds(config, m, k, n, out)
    bound = max(need, key=lambda key: need[key])
    return {
        "name": f"{m}x{k}x{n}" + (" relu" if relu else ""), "config": config.name, "m": m, "k": k, "n": n, "out": out,
        "cycles": report.cycles, "ideal_cycles": need[bound], "mxu_utilisation": report.mxu_utilisation,
        "bound": bound, "mismatches": result.verification.mismatches,
        "sim_cycles_per_second": report.sim_cycles_per_second,
    }  # fmt: skip
