"""Error of the cost model over the recorded programs (``verif/system/baselines``), by configuration and part.

Cycles are those that the chip took when they were recorded; ``make baseline`` runs it again. ``seconds`` and
``ops_per_s`` are those of the estimates.
"""

from __future__ import annotations

import time
from typing import Any

from sluice.estimate import estimate
from verif.system import baseline
from verif.system.cycle_programs import CASES, CHIPS, chip, estimated

__all__ = ["run"]


def run() -> list[dict[str, Any]]:
    """A row per configuration and part, and the sums."""
    recorded, programs = baseline.load(), baseline.load_programs()
    results: dict[tuple[str, str], list[tuple[int, int, str, float, int]]] = {}
    for case in CASES:
        entry = recorded.get((case.config, case.name))
        if entry is None or not estimated(case.config):
            continue
        program = programs[case.config, case.name]
        began = time.process_time()
        result = estimate(program, chip(case.config))
        took = time.process_time() - began
        ops = sum(unit.ops for unit in result.units.values())
        part = "unseen" if case.unseen else "calibration"
        measured = result.cycles, entry["cycles"], case.name, took, ops
        for config in (case.config, "all"):
            results.setdefault((config, part), []).append(measured)
    return [
        _row(config, part, results[config, part])
        for config in (*CHIPS, "all") for part in ("calibration", "unseen") if (config, part) in results
    ]  # fmt: skip


def _row(config: str, part: str, results: list[tuple[int, int, str, float, int]]) -> dict[str, Any]:
    errors = [abs(mine / chip_ - 1) for mine, chip_, *_ in results]
    worst = max(range(len(errors)), key=lambda i: errors[i])
    return {
        "config": config, "part": part, "programs": len(results),
        "exact": sum(mine == chip_ for mine, chip_, *_ in results),
        "max_error_%": round(100 * max(errors), 3), "mean_error_%": round(100 * sum(errors) / len(errors), 3),
        "max_cycles_off": max(abs(mine - chip_) for mine, chip_, *_ in results),
        "worst": results[worst][2] if errors[worst] else "-",
        "beyond_bound": sum(abs(mine - chip_) > max(0.02 * chip_, 50) for mine, chip_, *_ in results),
        "seconds": round(sum(r[3] for r in results), 2),
        "ops_per_s": round(sum(r[4] for r in results) / max(sum(r[3] for r in results), 1e-9)),
    }  # fmt: skip
