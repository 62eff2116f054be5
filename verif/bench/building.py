"""Models built anew for a benchmark: how long it takes, and how much memory."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice.build import sim_build_dir

__all__ = ["Built", "Workshop"]


@dataclass(frozen=True)
class Built:
    """What a build returned, its wall time, and the size of the largest process that it started (MB of 10**6 bytes)."""

    result: Any
    seconds: float
    peak_rss_mb: float


class Workshop:
    """A build folder of its own, so that no earlier model is found; it is removed in the end.

    Verilator's run-time library and headers are compiled once for each set of flags: what is built first pays for them.
    """

    def __init__(self, name: str) -> None:
        self.folder = sim_build_dir() / "bench" / f"{name}-build"

    def __enter__(self) -> Workshop:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self

    def __exit__(self, *exc: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def build(self, make: Callable[..., Any], *args: Any) -> Built:
        """Call ``make(*args)``, a function of a module, in a process of its own."""
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            return pool.submit(_build, self.folder, make, args).result()


def _build(folder: Path, make: Callable[..., Any], args: tuple) -> Built:
    os.environ["SLUICE_BUILD"] = str(folder)
    start = time.perf_counter()
    result = make(*args)
    seconds = time.perf_counter() - start
    # Linux: KiB, of the largest of all processes below this one.
    return Built(result, seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6)
