"""Recorded cycles of the programs of ``cycle_programs.py``: ``baselines/cycles.json``, and the command that writes it.

Each entry has the program's ``config`` and ``name``, its ``cycles`` on the chip, ``program`` (a hash of its words), and
``history``: what it was before, oldest first, with the reason for every change. The words themselves are in
``baselines/programs.npz``, so that estimates are compared with the cycles of what really ran, whatever the compiler
makes of the same case today. From the project's folder::

    make baseline REASON="why they change" [CONFIGS="tiny v1"]

runs all programs of the configurations (default: all) on the chip. A program whose words or cycles are not those
recorded needs the reason; nothing is written without one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sluice.asm import Program
from sluice.runtime import Device
from verif.system.configs import SETTLED
from verif.system.cycle_programs import CASES, CHIPS, Case, chip

__all__ = ["PATH", "PROGRAMS", "Recorded", "load", "load_programs", "measure", "open_chip", "program_hash"]

PATH = Path(__file__).with_name("baselines") / "cycles.json"
PROGRAMS = PATH.with_name("programs.npz")

#: By configuration and name.
Recorded = dict[tuple[str, str], dict[str, Any]]


def program_hash(program: Program) -> str:
    """Hash of a program's words."""
    return hashlib.sha256(program.to_bytes()).hexdigest()[:16]


def load(path: Path = PATH) -> Recorded:
    """All entries."""
    entries = json.loads(path.read_text()) if path.is_file() else []
    return {(entry["config"], entry["name"]): entry for entry in entries}


def save(recorded: Mapping[tuple[str, str], dict[str, Any]], path: Path = PATH) -> None:
    """Write all entries, in the order of the programs, one a line."""
    order = {(case.config, case.name): i for i, case in enumerate(CASES)}
    entries = [recorded[key] for key in sorted(recorded, key=lambda key: order.get(key, len(order))) if key in order]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n")


def load_programs(path: Path = PROGRAMS) -> dict[tuple[str, str], Program]:
    """The programs that ran, by configuration and name."""
    if not path.is_file():
        return {}
    with np.load(path) as file:
        return {tuple(key.split("/", 1)): Program.from_bytes(file[key].tobytes()) for key in file.files}


def save_programs(programs: Mapping[tuple[str, str], Program], path: Path = PROGRAMS) -> None:
    """Write all programs."""
    arrays = {"/".join(key): np.frombuffer(p.to_bytes(), np.uint8) for key, p in sorted(programs.items())}
    np.savez_compressed(path, **arrays)


@contextmanager
def open_chip(config: str) -> Iterator[Device]:
    """A chip to measure on."""
    with Device(chip(config), "rtl") as device:
        yield device


def measure(device: Device, case: Case) -> tuple[int, Program]:
    """Cycles and program of a case. Its data are what HBM holds: timing does not depend on them.

    On DRAM it depends on when refreshes are due, so that each program has a chip of its own, from power-on.
    """
    program = case.build()
    if device.config.is_dram:
        with open_chip(case.config) as fresh:
            fresh.transport.advance(SETTLED)
            cycles = fresh.run(program).cycles
        assert cycles is not None
        return cycles, program
    cycles = device.run(program).cycles
    assert cycles is not None
    return cycles, program


def change(entry: dict[str, Any] | None, case: Case, cycles: int, program: str, reason: str) -> dict[str, Any]:
    """The entry of a case after a run; ``entry`` is the one before it."""
    now = {"config": case.config, "name": case.name, "cycles": cycles, "program": program}
    if entry is None:
        return {**now, "history": []}
    if (entry["cycles"], entry["program"]) == (cycles, program):
        return entry
    return {**now, "history": [*entry["history"], {"cycles": entry["cycles"], "reason": reason}]}


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Run the programs whose cycles are recorded, and record them.")
    parser.add_argument("configs", nargs="*", help=f"default: {' '.join(CHIPS)}")
    parser.add_argument("--reason", default="", help="why recorded cycles or programs change")
    args = parser.parse_args(argv)
    unknown = [name for name in args.configs if name not in CHIPS]
    if unknown:
        parser.error(f"unknown config {unknown[0]!r}; allowed: {', '.join(CHIPS)}")
    recorded, programs, changed = load(), load_programs(), 0
    for config in args.configs or list(CHIPS):
        cases = [case for case in CASES if case.config == config]
        with open_chip(config) as device:
            for case in cases:
                before = recorded.get((config, case.name))
                cycles, programs[config, case.name] = measure(device, case)
                after = change(before, case, cycles, program_hash(programs[config, case.name]), args.reason)
                recorded[config, case.name] = after
                if before is not None and after is not before:
                    changed += 1
                    words = "" if before["program"] == after["program"] else ", other words"
                    print(f"{case}: {before['cycles']} -> {after['cycles']} cycles{words}", flush=True)
                elif before is None:
                    print(f"{case}: {after['cycles']} cycles, new", flush=True)
    if changed and not args.reason.strip():
        print(f"{changed} program(s) changed: give the reason to record them; nothing was written", file=sys.stderr)
        return 1
    save(recorded)
    save_programs({key: program for key, program in programs.items() if key in recorded})
    return 0


if __name__ == "__main__":
    sys.exit(main())
