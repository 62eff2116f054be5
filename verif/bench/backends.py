"""One program on the backends that simulate the chip: cycles per second, and what starting one takes.

``cpu_s`` is processor time of this process and the simulator's; other work on the machine stretches ``cycles_per_s``,
which goes by the wall clock, and not that.
"""

from __future__ import annotations

import resource
import time
from typing import Any

from sluice.runtime import Device
from sluice.runtime.chip_model import build_chip, build_library
from sluice.runtime.matmul import run_matmul
from sluice_hw.config import preset

__all__ = ["run"]

#: Backend, and how the host reaches HBM ("" where there is no choice).
CASES = (("cocotb", ""), ("rtl", "axi"), ("rtl", "view"))


def _cpu() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def run() -> list[dict[str, Any]]:
    """Run all cases on `tiny`; rows as in ``sim_build/bench/backends.json``."""
    config = preset("tiny")
    built = {"cocotb": {"model": build_chip(config)}, "rtl": {"library": build_library(config)}}
    run_matmul(config, 128, 128, 128, backend="golden")  # imports and compilation, which are none of the simulator's
    rows: list[dict[str, Any]] = []
    for backend, path in CASES:
        options = {**built[backend], **({"host_path": path} if path else {})}
        began, cpu = time.perf_counter(), _cpu()
        device = Device(config, backend, **options)
        opened = time.perf_counter() - began
        with device:
            done = run_matmul(config, 128, 128, 128, device=device)
            ends = device.transport.sim_time()
            device.transport.advance(100_000)
            more = device.transport.sim_time()
        rows.append({
            "name": backend + (f", HBM by {path}" if path else ""), "config": config.name, "cycles": done.report.cycles,
            "open_s": round(opened, 3), "cycles_per_s": round(done.report.sim_cycles_per_second or 0),
            "idle_cycles_per_s": round((more.cycles - ends.cycles) / (more.seconds - ends.seconds)),
            "cpu_s": round(_cpu() - cpu, 2), "mismatches": done.verification.mismatches,
        })  # fmt: skip
    return rows
