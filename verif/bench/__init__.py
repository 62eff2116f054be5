"""Benchmarks: figures with their conditions, as JSON in ``sim_build/bench`` and as a printed table.

``make bench`` runs them all, ``make bench BENCH=chip`` one. Cycles, bytes and cells are exact; rates depend on the
machine and are meant to be compared within one run.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any

from sluice.build import sim_build_dir
from sluice.errors import UsageError

__all__ = ["BENCHES", "main", "table"]

#: Name to what it measures; each is a module of this package with ``run() -> list of rows``,
#: or a document with the printed ones as ``rows``.
BENCHES = {
    "array": "speed of simulation: the array in both forms, and whole chips",
    "backends": "one program on cocotb and rtl: cycles per second, time to start",
    "chip": "matmuls from HBM to HBM on the simulated chip: cycles, utilisation, what bounds them",
    "estimate": "error of the cost model over the recorded programs of all chips",
    "hbm": "the slice controller on DRAM: bandwidth by pattern, latency, waits",
    "memories": "the same programs on SRAM and on DRAM: cycles, utilisation",
    "generate": "Verilog of the presets: time and bytes, both forms",
    "torus": "8x8 routers and their links: saturation, fairness, latency, goodput",
    "vector": "floating point of the vector unit: worst errors, rows per cycle, programs and layers on the chip",
}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as a text table, columns in the order of the first row's keys."""
    def text(value: Any) -> str:
        return f"{value:.4f}" if isinstance(value, float) else str(value)

    head = list(rows[0])
    cells = [head] + [[text(row[key]) for key in head] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    return "\n".join("  ".join(value.rjust(width) for value, width in zip(line, widths, strict=True)) for line in cells)


def main(names: Sequence[str]) -> int:
    """Run the named benchmarks, or all.

    Raises
    ------
    UsageError
        For an unknown name.
    """
    for name in names:
        if name not in BENCHES:
            known = ", ".join(f"{key} ({what})" for key, what in BENCHES.items())
            raise UsageError(f"unknown benchmark {name!r}; there are: {known}")
    failed = 0
    for name in names or BENCHES:
        print(f"{name}: {BENCHES[name]}", flush=True)
        module = importlib.import_module(f"{__name__}.{name}")
        result = module.run()
        document = result if isinstance(result, dict) else {"rows": result}
        rows = document["rows"]
        path = sim_build_dir() / "bench" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n")
        # A document may have other, narrower rows to print.
        print(table(document.get("printed", rows)), flush=True)
        # A module may have ``summary(rows)``: lines to stand below the table.
        for line in module.summary(rows) if hasattr(module, "summary") else ():
            print(line, flush=True)
        print(f"-> {path}", flush=True)
        listed = [row for value in document.values() if isinstance(value, list) for row in value]
        failed += sum(row.get("mismatches", 0) for row in listed if isinstance(row, dict))
    return 1 if failed else 0
