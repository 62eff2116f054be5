"""Time and size of the generated Verilog."""

from __future__ import annotations

import time
from typing import Any

from sluice_hw.config import PRESETS
from sluice_hw.emit.chip import chip_verilog
from sluice_hw.emit.grid import EMISSIONS

__all__ = ["run"]


def run() -> list[dict[str, Any]]:
    """Generate every preset in both forms; rows as in ``sim_build/bench/generate.json``."""
    rows = []
    for name, config in PRESETS.items():
        for emission in EMISSIONS:
            start = time.perf_counter()
            text = chip_verilog(config, emission=emission)
            rows.append({
                "config": name, "emission": emission, "rows": config.rows, "cols": config.cols,
                "verilog_s": round(time.perf_counter() - start, 2), "verilog_bytes": len(text),
            })
    return rows
