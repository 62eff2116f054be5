"""Holes that are explained: lines of ``waivers.txt``, each with its reason.

The usual reason is another bench: a unit has a bench of its own that reaches all of it, and a smaller part of it works
where it is part of another. Pattern ``*`` says that, and is checked: it explains a hole only if one of the modules that
the waiver names has no holes of that kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from .points import KINDS, Module, Place

__all__ = ["FILE", "Waiver", "read_waivers"]

FILE = Path(__file__).with_name("waivers.txt")


@dataclass(frozen=True)
class Waiver:
    """``module`` (globs) and ``kind`` of the points, a pattern that the Verilog line holds, and the reason."""

    module: str
    kind: str
    pattern: str
    reason: str

    def names(self, module: Module) -> bool:
        """Whether it speaks of a module."""
        return any(fnmatchcase(name, glob) for name in module.names for glob in self.module.split())

    def holds(self, modules: Iterable[Module]) -> bool:
        """Whether what it says can be true; see above."""
        if self.pattern != "*":
            return True
        return any(self.names(module) and (points := module.of(self.kind)) and all(points.values())
                   for module in modules)  # fmt: skip

    def covers(self, module: Module, place: Place) -> bool:
        """Whether it explains a point."""
        if place.kind != self.kind or not self.names(module):
            return False
        return self.pattern == "*" or re.search(self.pattern, module.text[place.line - 1]) is not None


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
            re.compile(parts[2] if parts[2] != "*" else "")
        except re.error as error:
            raise ValueError(f"waivers, line {number}: {parts[2]!r} is no regular expression: {error}") from None
        waivers.append(Waiver(*parts))
    return waivers
