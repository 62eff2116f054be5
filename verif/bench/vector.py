"""The vector unit: worst errors of its functions, and its lanes' speed.

``ulp``: by function, over all bf16 inputs (results in bf16) and over 1,000,000 fp32 inputs (results in fp32), golden
against float64, counted as ``docs/functions.md`` says; the hardware gives the same bits, which the tests check.

``lanes``: rows of 128 lanes in loop form, by themselves, in simulation: rows per cycle behind the latency, and rows per
second of CPU time of the one thread that simulates.

``rows_per_cycle``, ``programs``, ``transformer_layer``, ``simulation``: in the whole chip of preset `v2`, see
:mod:`.vector_chip`; its model takes minutes to build.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from sluice.function_page import errors
from sluice.golden.functions import Function
from sluice_hw.vector_ops import AluOp
from sluice_hw.vpu.alu import AluLane
from sluice_hw.vpu.function import FunctionLane
from verif.bench import table, vector_chip
from verif.models.lanes import LaneRow

__all__ = ["TARGETS", "run", "summary"]

#: Worst errors that are wanted in bf16; in fp32 it is 4 for all.
TARGETS = {"exp": 1.0, "tanh": 0.5, "sigmoid": 0.5, "rsqrt": 0.5, "gelu": 1.0}
FP32_TARGET = 4.0

LANES, ROWS = 128, 8_000
#: Cell to its control and the values of it that are timed.
CELLS = {
    FunctionLane: ("function", (Function.EXP, Function.GELU, Function.LOG, Function.RSQRT)),
    AluLane: ("op", (AluOp.ADD, AluOp.MUL, AluOp.MUL_ADD, AluOp.MAX)),
}


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
    ulp = {row["function"]: {"bf16": row["bf16"], "fp32": row["fp32"]} for row in rows}
    lanes = [row for cell in CELLS for row in _speed(cell)]
    chip = vector_chip.run()
    for name in ("rows_per_cycle", "programs", "transformer_layer"):
        print(f"{name}:\n{table(chip[name])}", flush=True)
    print(f"simulation: {chip['simulation']}", flush=True)
    return {"ulp": ulp, "lanes": lanes, **chip, "rows": rows}


def _speed(cell: type) -> list[dict[str, Any]]:
    """Rows of one kind of lane, for each of its timed operations."""
    control, choices = CELLS[cell]
    unit = cell.__name__.removesuffix("Lane").lower()
    out = []
    with LaneRow(cell(), name=f"bench_{unit}_lanes", cols=LANES, opt="-O3 -march=native") as lanes:
        rng = np.random.default_rng(1)
        names = [port.removeprefix("col__") for port in lanes.operands]
        values = {name: rng.uniform(-8, 8, ROWS * LANES).astype(np.float32).view(np.uint32) for name in names}
        for choice in choices:
            began, cycle = time.process_time(), lanes.cycles
            lanes.run(values, {control: choice, "bf16": 0})
            seconds, cycles = time.process_time() - began, lanes.cycles - cycle
            out.append({
                "unit": unit, "operation": choice.name.lower(), "lanes": LANES,
                "rows_per_cycle": round(ROWS / (cycles - lanes.latency + 1), 4), "rows_per_s": round(ROWS / seconds),
            })  # fmt: skip
            print("  {unit} {operation}, {lanes} lanes: {rows_per_cycle} rows a cycle, {rows_per_s} rows/s simulated"
                  .format(**out[-1]), flush=True)  # fmt: skip
    return out


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
