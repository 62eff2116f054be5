"""What the builds share: a logged command, flags, and the parts of a cache key."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .cache import BuildFailed, sim_build_dir
from .toolchain import Toolchain, ToolchainError

__all__ = [
    "RECIPE", "check_build", "cpu_identity", "library_flags", "log_tail", "run_logged", "run_step",
]  # fmt: skip

#: Part of every cache key: raise it when the build steps change what they produce.
RECIPE = "2"

#: Seconds of wall time after which a run is taken for hung and ended; ``SLUICE_RUN_TIMEOUT`` overrides it.
RUN_TIMEOUT = 3600.0


def check_build(name: str) -> None:
    """Refuse names and places that make cannot build with."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise ValueError(f"model name must be of letters, digits, '_', '-' and '.', not {name!r}")
    root = sim_build_dir()
    if re.search(r"\s", str(root)):
        raise ToolchainError(
            f"the build folder {str(root)!r} has spaces in its path, which make cannot handle. "
            "Set SLUICE_BUILD to a folder without"
        )


def library_flags(toolchain: Toolchain) -> list[str]:
    """Compiler flags of a library. Two in one process both define class Vtop: each is to call its own copy.

    Programs are compiled with them, too, and so share the run-time library and the headers.
    """
    return ["-fPIC", *([] if "clang" in toolchain.cxx_version else ["-fno-gnu-unique"])]


def run_logged(command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path) -> str:
    """Run a command with its output appended to a log; returns ``exit status N`` or what ended it."""
    limit = float(os.environ.get("SLUICE_RUN_TIMEOUT") or RUN_TIMEOUT)
    started = time.monotonic()
    with log.open("ab") as file:
        file.write(f"$ {shlex.join(command)}\n".encode())
        file.flush()
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(timeout=limit)
        except BaseException as error:
            # The group holds the compilers that make started, too.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return f"no end after {time.monotonic() - started:.0f} s (SLUICE_RUN_TIMEOUT)"
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit status {code}"


def run_step(what: str, name: str, command: Sequence[str], *, work: Path, env: Mapping[str, str]) -> None:
    """A step of the build of ``name`` in the folder ``work``, logged in its ``build.log``.

    Raises
    ------
    BuildFailed
        With the end of the log.
    """
    log = work / "build.log"
    status = run_logged(command, cwd=work, env=env, log=log)
    if status != "exit status 0":
        raise BuildFailed(f"{what} failed for {name!r} ({status})\n{log_tail(log)}")


def log_tail(log: Path, lines: int = 40) -> str:
    try:
        text = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(f"  | {line}" for line in text[-lines:])


def cpu_identity() -> str:
    """Hash of the CPU's features, for code compiled with ``-march=native``."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    chosen = sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    return hashlib.sha256("\n".join(chosen).encode()).hexdigest()
