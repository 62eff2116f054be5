"""The vector unit: worst errors of its functions.

``ulp``: by function, over all bf16 inputs (results in bf16) and over 1,000,000 fp32 inputs (results in fp32), golden
against float64, counted as ``docs/functions.md`` says; the hardware gives the same bits, which the tests check.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sluice.function_page import errors
from sluice.golden.functions import Function

__all__ = ["TARGETS", "run", "summary"]

#: Worst errors that are wanted in bf16; in fp32 it is 4 for all.
TARGETS = {"exp": 1.0, "tanh": 0.5, "sigmoid": 0.5, "rsqrt": 0.5, "gelu": 1.0}
FP32_TARGET = 4.0


def run() -> dict[str, Any]:
    """Measure; the document of ``sim_build/bench/vector.json``."""
    rows = []
    for function in Function:
        half, single = errors(function)
        rows.append({
            "function": function.name.lower(), "bf16": round(half.ulp, 4), "fp32": round(single.ulp, 4),
            "bf16_differing": half.differing, "fp32_differing": single.differing,
            "bf16_at": f"0x{half.at >> 16:04X}", "fp32_at": f"0x{single.at:08X}",
        })  # fmt: skip
    return {"ulp": {row["function"]: {"bf16": row["bf16"], "fp32": row["fp32"]} for row in rows}, "rows": rows}


def summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The targets, and whether they are met."""
    lines = []
    for row in rows:
        name = row["function"]
        wanted = {"bf16": TARGETS.get(name), "fp32": FP32_TARGET}
        parts = [f"{key} {row[key]:.2f}" + (f" <= {most}: {'pass' if row[key] <= most else 'MISS'}" if most else "")
                 for key, most in wanted.items()]  # fmt: skip
        lines.append(f"{name}: " + ", ".join(parts))
    return lines
