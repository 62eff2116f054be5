"""Speed of simulation: the array alone in its two forms, and whole chips in loop form.

``array``: random operands in every cycle and a new weight tile every ``rows`` cycles, driven from C++; the sums of the
first rows are compared with what they should be, and both forms use the same C++ flags. ``chip``: a large matmul of
random operands on the ``rtl`` backend, HBM to HBM, every value compared with golden, the array in use in 90 % of the
cycles at least.

Rates are per second of CPU time of the one thread that simulates, which is wall time on a machine that does nothing
else; wall time is printed beside them. ``verilog_s`` and ``build_s`` are wall time of builds from nothing; the models
of the array share Verilator's run-time library, those of chips include it. ``peak_build_rss_mb`` is the largest single
process of a build.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sluice.build import build_shared
from sluice.runtime import Device
from sluice.runtime.chip_model import build_library, chip_source
from sluice.runtime.matmul import run_matmul
from sluice_hw.array import SystolicArray
from sluice_hw.config import preset
from sluice_hw.emit.grid import EMISSIONS
from sluice_hw.emit.verilog import to_verilog
from verif.models.part import defines

from .building import Workshop

__all__ = ["run", "summary"]

#: Sizes of the array by type of operands and emission.
SIZES = {
    "int8": {"loop": (8, 16, 32, 64, 128, 256), "structural": (8, 16, 32, 64)},
    "bf16": {"loop": (8, 16, 128), "structural": (8, 16)},
}
#: Cycles from a partial sum to the next, by type of operands.
LATENCY = {"int8": 1, "bf16": 4}
#: Chip to the m, k, n that keep it busy.
CHIPS = {
    "tiny": (128, 128, 128), "small": (512, 512, 512), "edgetpu": (4096, 1024, 512), "mid128": (1024, 1024, 1024),
    "v1": (2048, 1024, 1024),
}  # fmt: skip
#: Built and simulated with ``BENCH_FULL=1`` only.
SLOW_CHIPS = ("v1",)
SLOW_STRUCTURAL = (64,)

ARRAY_FLAGS = "-O3 -march=native"
#: Seconds that an array is measured for, and the share of the cycles in which a chip's array must work.
SECONDS, UTILISATION = 1.5, 0.9


def run() -> list[dict[str, Any]]:
    """Measure all; rows as in ``sim_build/bench/array.json``."""
    full = os.environ.get("BENCH_FULL", "0") != "0"
    chips = [name for name in CHIPS if full or name not in SLOW_CHIPS]
    rows = []
    with Workshop("array") as workshop:
        workshop.build(_array_library, 1, "loop", "int8", "")  # the run-time library
        for dtype, sizes in SIZES.items():
            for emission in EMISSIONS:
                for size in sizes[emission]:
                    if full or emission != "structural" or size not in SLOW_STRUCTURAL:
                        rows.append(_array_row(workshop, size, emission, dtype))
        for name in chips:
            shutil.rmtree(workshop.folder / "runtime", ignore_errors=True)
            rows.append(_chip_row(workshop, name))
    return rows


def _row(
    config: str, emission: str, scope: str, size: Sequence[int], dtype: str, **figures: Any
) -> dict[str, Any]:
    rows, cols = size
    speed = figures.pop("cycles_per_s")
    return {
        "config": config, "emission": emission, "scope": scope, "rows": rows, "cols": cols, "dtype": dtype,
        **figures, "cycles_per_s": round(speed), "pe_updates_per_s": round(speed * rows * cols),
    }  # fmt: skip


def _array(size: int, emission: str, dtype: str) -> SystolicArray:
    return SystolicArray(rows=size, cols=size, latency=LATENCY[dtype], dtype=dtype, emission=emission)


def _array_library(size: int, emission: str, dtype: str, verilog: str) -> Path:
    array = _array(size, emission, dtype)
    facts = {"ROWS": size, "COLS": size, "WIDTH": array.psum_width, "LATENCY": array.latency,
             "BF16": int(dtype == "bf16")}  # fmt: skip
    driver = defines(facts) + Path(__file__).with_name("array_driver.cpp").read_text()
    return build_shared(
        f"array-{size}-{emission}-{dtype}", verilog or to_verilog(array, name="array"), "array", driver,
        opt=ARRAY_FLAGS, verilator_args=("--x-assign", "fast", "--x-initial", "fast"),
    )  # fmt: skip


def _array_row(workshop: Workshop, size: int, emission: str, dtype: str) -> dict[str, Any]:
    start = time.perf_counter()
    verilog = to_verilog(_array(size, emission, dtype), name="array")
    verilog_s = time.perf_counter() - start
    built = workshop.build(_array_library, size, emission, dtype, verilog)
    library = ctypes.CDLL(str(built.result))
    library.bench_new.restype = ctypes.c_void_p
    library.bench_check.restype = ctypes.c_uint64
    library.bench_check.argtypes = library.bench_run.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.bench_delete.argtypes = [ctypes.c_void_p]
    run = library.bench_new()
    wrong = library.bench_check(run, 2 * size)
    if wrong:
        raise AssertionError(f"{dtype} array of {size} x {size}, {emission}: {wrong} sums of {2 * size} rows are wrong")
    cycles, busy, wall = 0, 0.0, 0.0
    piece = 64
    while busy < SECONDS:
        started, began = time.process_time(), time.perf_counter()
        library.bench_run(run, piece)
        busy, wall = busy + time.process_time() - started, wall + time.perf_counter() - began
        cycles += piece
        piece *= 2 if busy < SECONDS / 4 else 1
    library.bench_delete(run)
    print(f"  array {size} x {size} {dtype} {emission}: {cycles} cycles in {busy:.2f} s CPU, {wall:.2f} s wall",
          flush=True)  # fmt: skip
    return _row("", emission, "array", (size, size), dtype, verilog_s=round(verilog_s, 2), verilog_bytes=len(verilog),
                build_s=round(built.seconds, 1), peak_build_rss_mb=round(built.peak_rss_mb),
                cycles_per_s=cycles / busy)  # fmt: skip


def _chip_verilog(name: str) -> int:
    return len(chip_source(preset(name), "loop"))


def _chip_library(name: str) -> Path:
    return build_library(preset(name))


def _chip_row(workshop: Workshop, name: str) -> dict[str, Any]:
    config, (m, k, n) = preset(name), CHIPS[name]
    verilog = workshop.build(_chip_verilog, name)
    built = workshop.build(_chip_library, name)
    with Device(config, "rtl", library=built.result) as device:
        clock = _CpuClock(device)
        result = run_matmul(config, m, k, n, seed=1, device=device)
    if result.verification.mismatches:
        raise AssertionError(f"{name}: {result.verification.mismatches} values of {m} x {k} x {n} differ from golden")
    report = result.report
    if report.mxu_utilisation < UTILISATION:
        raise AssertionError(f"{name}: {m} x {k} x {n} uses the array in {report.mxu_utilisation:.1%} of the cycles "
                             f"only, and the measurement wants {UTILISATION:.0%}")  # fmt: skip
    print(f"  chip {name}, {m} x {k} x {n}: {clock.cycles} cycles in {clock.seconds:.2f} s CPU, "
          f"{report.sim_seconds:.2f} s wall; utilisation {report.mxu_utilisation:.1%}", flush=True)  # fmt: skip
    return _row(name, "loop", "chip", (config.rows, config.cols), config.dtype, verilog_s=round(verilog.seconds, 2),
                verilog_bytes=verilog.result, build_s=round(built.seconds, 1),
                peak_build_rss_mb=round(built.peak_rss_mb), cycles_per_s=clock.cycles / clock.seconds)  # fmt: skip


class _CpuClock:
    """CPU time and cycles while a device waits for the chip's interrupt."""

    def __init__(self, device: Device) -> None:
        self.seconds, self.cycles = 0.0, 0
        wait = device.transport.wait_interrupt

        def timed(timeout_cycles: int) -> bool:
            started, cycle = time.process_time(), device.transport.sim_time().cycles
            try:
                return wait(timeout_cycles)
            finally:
                self.seconds += time.process_time() - started
                self.cycles += device.transport.sim_time().cycles - cycle

        device.transport.wait_interrupt = timed


def summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The targets, and whether they are met in this run."""
    def speeds(dtype: str) -> dict[tuple, int]:
        return {(row["scope"], row["emission"], row["config"], row["rows"]): row["pe_updates_per_s"]
                for row in rows if row["dtype"] == dtype}  # fmt: skip

    speed = speeds("int8")
    build = {row["config"]: row["build_s"] for row in rows if row["scope"] == "chip"}
    loop = speed["array", "loop", "", 128]
    lines = []
    for size, least in ((32, 8), (64, 30)):
        what, slow = f"array 128x128 loop / {size}x{size} structural", speed.get(("array", "structural", "", size))
        if slow is None:
            lines.append(f"{what}: with BENCH_FULL=1, target >= {least}")
        else:
            verdict = "pass" if loop / slow >= least else "MISS"
            lines.append(f"{what}: {loop / slow:.1f}, target >= {least}: {verdict}")
    bf16 = speeds("bf16")["array", "loop", "", 128] / 1e6
    lines.append(f"array 128x128 loop of bf16: {bf16:.0f} M PE updates/s, target >= 25: "
                 f"{'pass' if bf16 >= 25 else 'MISS'}")  # fmt: skip
    mid = speed["chip", "loop", "mid128", 128] / 1e6
    lines.append(f"chip mid128: {mid:.0f} M PE updates/s, target >= 100: {'pass' if mid >= 100 else 'MISS'}")
    lines.append(f"chip mid128 built in {build['mid128']} s, target <= 120: "
                 f"{'pass' if build['mid128'] <= 120 else 'MISS'}")  # fmt: skip
    return lines
