"""Holes that are explained: lines of ``waivers.txt``, each with its reason."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from .points import KINDS, Module, Place

__all__ = ["FILE", "Waiver", "read_waivers"]

FILE = Path(__file__).with_name("waivers.txt")


@dataclass(frozen=True)
class Waiver:
    """``module`` (a glob) and ``kind`` of the points, a pattern that the Verilog line holds, and the reason."""

    module: str
    kind: str
    pattern: str
    reason: str

    def covers(self, module: Module, place: Place) -> bool:
        """Whether it explains a point."""
        if place.kind != self.kind or not any(fnmatchcase(name, self.module) for name in module.names):
            return False
        return re.search(self.pattern, module.text[place.line - 1]) is not None


def read_waivers(text: str) -> list[Waiver]:
    """Waivers of a file: ``module | kind | pattern | reason`` a line; ``#`` begins a comment line.

    Raises
    ------
    ValueError
        For a line of another form, naming it.
    """
    waivers = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split(" | ")]
        if len(parts) != 4 or not all(parts):
            raise ValueError(f"waivers, line {number}: must be 'module | kind | pattern | reason', not {line!r}")
        if parts[1] not in KINDS:
            raise ValueError(f"waivers, line {number}: kind must be one of {', '.join(KINDS)}, not {parts[1]!r}")
        try:
            re.compile(parts[2])
        except re.error as error:
            raise ValueError(f"waivers, line {number}: {parts[2]!r} is no regular expression: {error}") from None
        waivers.append(Waiver(*parts))
    return waivers
