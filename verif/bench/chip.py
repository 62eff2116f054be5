"""Matmuls of random int8 operands on the ``rtl`` backend, HBM to HBM, doorbell to interrupt, compared with golden.

``ideal_cycles`` is what the binding resource needs alone: the array (a cycle for each row of activations and tile), the
weight port (``rows`` cycles for each tile), or HBM (operands read once, the result written once). ``mxu_utilisation``
counts useful MACs. ``target`` is a number of cycles that must not be exceeded (``limit``) or a share of the ideal
(``share``). ``lost`` says where the cycles went in which the array took no row: ``first op`` (doorbell to the start of
the first array op; part of the others) and what the matrix unit waited for.

``next_op`` is the gap between two programs: the chip takes one program at a time, so it is from the interrupt of one to
the first array op of the next, which the driver starts at once; it includes the driver's register writes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sluice.compiler.tiles import ceil_div
from sluice.errors import UsageError
from sluice.runtime import Device
from sluice.runtime.matmul import run_matmul
from sluice_hw.config import ChipConfig, preset

__all__ = ["CASES", "Case", "bounds", "run", "summary"]


@dataclass(frozen=True)
class Case:
    """A matmul, and its target: cycles (``limit``) or a share of the bound (``share``), None for none."""

    config: str
    m: int
    k: int
    n: int
    out: str = "int8"
    relu: bool = False
    limit: int | None = None
    share: float | None = None

    @property
    def name(self) -> str:
        return f"{self.m}x{self.k}x{self.n}" + (" relu" if self.relu else "")


CASES = (
    Case("tiny", 8, 8, 8, limit=428),
    Case("tiny", 64, 64, 64),
    Case("tiny", 128, 128, 128, out="int32"),
    Case("tiny", 37, 70, 19),
    Case("small", 63, 64, 64, relu=True, limit=1180),
    Case("small", 512, 512, 512, share=0.99),
    Case("mid128", 512, 512, 512, limit=9300),
    Case("mid128", 1024, 768, 768, limit=39_500),
    Case("mid128", 1024, 1024, 1024, share=0.95),
    *(Case("mid128", m, 1024, 1024, share=0.9) for m in (1, 8, 32, 128)),
    Case("v1", 2048, 1024, 1024, share=0.9),
    Case("v1-ddr3", 2048, 1024, 1024, share=0.9),
)
#: Chips that take minutes to build and to simulate: with ``BENCH_FULL=1`` only.
SLOW = ("v1", "v1-ddr3")


def bounds(config: ChipConfig, m: int, k: int, n: int, out: str) -> dict[str, int]:
    """Cycles that each resource needs by itself, by name."""
    tiles = ceil_div(k, config.rows) * ceil_div(n, config.cols)
    moved = m * k + k * n + m * n * (4 if out == "int32" else 1)
    return {
        "array": tiles * m,
        "weights": tiles * config.rows,
        "HBM": ceil_div(moved, config.hbm_bytes_per_cycle),
    }


def run() -> list[dict[str, Any]]:
    """Run all cases; rows as in ``sim_build/bench/chip.json``."""
    chosen = [case for case in CASES if case.config not in SLOW or os.environ.get("BENCH_FULL", "0") != "0"]
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(case.config for case in chosen):
        config = preset(name)
        with Device(config, "rtl", progress=lambda line: print(f"  {line}", flush=True)) as device:
            for case in chosen:
                if case.config == name:
                    rows.append(_row(config, device, case))
                    print(f"  {name} {case.name}: {rows[-1]['cycles']} cycles", flush=True)
    return rows


def _row(config: ChipConfig, device: Device, case: Case) -> dict[str, Any]:
    m, k, n, out = case.m, case.k, case.n, case.out
    result = run_matmul(config, m, k, n, seed=1, out=out, relu=case.relu, device=device)
    report = result.report
    need = bounds(config, m, k, n, out)
    bound = max(need, key=lambda key: need[key])
    first_op, next_op = _again(device)
    limit = case.limit if case.share is None else int(need[bound] / case.share)
    waits = {cause: cycles for cause, cycles in report.stalls["mxu"].items() if cause != "busy" and cycles}
    return {
        "name": case.name, "config": config.name, "m": m, "k": k, "n": n, "out": out,
        "cycles": report.cycles, "ideal_cycles": need[bound], "mxu_utilisation": round(report.mxu_utilisation, 4),
        "bound": bound, "of_bound": round(need[bound] / report.cycles, 4), "first_op": first_op, "next_op": next_op,
        "target": "" if limit is None else f"<= {limit}",
        "met": "" if limit is None else "yes" if report.cycles <= limit else "NO",
        "mismatches": result.verification.mismatches,
        "lost": ", ".join(f"{cause} {cycles}" for cause, cycles in {"first op": first_op, **waits}.items()),
    }  # fmt: skip


def _again(device: Device) -> tuple[int, int]:
    """Run the loaded program twice: cycles to its first array op from the doorbell, and from the interrupt before."""
    device.start()
    device.transport.wait_interrupt(1 << 30)
    ended = device.transport.sim_time().cycles
    device.start()
    started = device.transport.sim_time().cycles
    while not device.read_csr("ARRAY_ROWS_LO"):
        device.transport.advance(8)
    # A halted program adds no more to the event ring than the queues hold; a short one may have ended by now.
    with suppress(UsageError):
        device.halt()
    halted = device.status["halted"]
    first = _first_array_op(device)
    if halted:
        device.resume()
        device.wait()
    return first, started - ended + first


def _first_array_op(device: Device) -> int:
    """Its cycle, by the event ring, which must still hold the program's beginning."""
    for event in device.events():
        if event.kind == 0 and "PULSE_ARRAY" in event.op.upper():
            return event.time
    raise LookupError("no start of an array op is left in the event ring")


def summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The targets missed, and where the cycles went."""
    missed = [row for row in rows if row["met"] == "NO"]
    return [f"{row['config']} {row['name']}: {row['cycles']} cycles, target {row['target']}: MISS; {row['lost']}"
            for row in missed] or ["all targets met"]  # fmt: skip
