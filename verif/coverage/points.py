"""Coverage points of all runs under ``sim_build/report``, merged over every model that holds the same module.

A simulation leaves ``coverage.dat`` (Verilator), ``functional.json`` (:mod:`verif.cover`) and ``model`` (path of the
model, whose Verilog is beside it) in its report folder. One module of the hardware stands in many models: in that of
its unit test and of the units around it, several times in one, in several sizes. As is usual for a module with
parameters, what any of them reaches is reached: texts that differ in names of modules and in numbers alone are one
module. Where a configuration changes more, the variants are counted apart.

A *line* point is a block of statements, worth as many lines as it holds: also the body of an ``if`` without ``else``,
which Verilator calls a branch. *Branches* are what is left: the two sides of ``?:`` and the way past an ``if``.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

__all__ = ["KINDS", "Hit", "Module", "Place", "functional", "read_points", "structural"]

KINDS = ("line", "branch", "toggle")

# Yosys makes combinational processes run once at the start by such a statement, whose condition is a constant.
_NEVER = re.compile(r"if \(\\\$auto\$verilog_backend\.cc:\d+:dump_module\$\d+ \) begin end")


@dataclass(frozen=True)
class Place:
    """Where Verilator counts: kind, line of the module (1: its first), column, and for a toggle its bit and edge.

    ``size`` is the number of lines of a line point, 1 for the others.
    """

    kind: str
    line: int
    column: int
    comment: str
    size: int = 1


@dataclass(frozen=True)
class Hit:
    """A point of a ``coverage.dat`` file: module name in the model, line of the file, place data, count."""

    module: str
    line: int
    column: int
    kind: str
    comment: str
    count: int
    size: int = 1


@dataclass
class Module:
    """One Verilog module text and what was reached in it.

    Attributes
    ----------
    names
        Last parts of the names it has: ``feeder`` for ``chip.mxu.feeder``.
    variant
        Number among the modules of that name, from 1.
    text
        Its lines, in the first model that holds it.
    counts
        By place.
    """

    names: set[str]
    text: list[str]
    counts: dict[Place, int] = field(default_factory=dict)
    variant: int = 0

    @property
    def name(self) -> str:
        return min(self.names, key=lambda name: (len(name), name))

    @property
    def title(self) -> str:
        return f"{self.name}.{self.variant}"

    def of(self, kind: str) -> dict[Place, int]:
        """The points of a kind."""
        return {place: count for place, count in self.counts.items() if place.kind == kind}


def _lines(text: str) -> int:
    """Number of lines in Verilator's list of them, as ``3-4,7``."""
    ends = [[int(end) for end in part.split("-")] for part in text.split(",") if part]
    return sum(end[-1] - end[0] + 1 for end in ends)


_POINT = re.compile(
    r"C '.*\x01l\x02(\d+)\x01n\x02(\d+)\x01.*\x01page\x02v_(\w+)/([^\x01]*)"
    r"\x01o\x02([^\x01]*)(?:\x01S\x02([^\x01]*))?.*' (\d+)"
)


def _hit(line: str) -> Hit | None:
    """A line of a ``coverage.dat`` file."""
    match = _POINT.fullmatch(line)
    if not match:
        return None
    number, column, kind, module, comment, lines, count = match.groups()
    if (kind, comment) == ("branch", "if"):
        kind = "line"
    size = max(1, _lines(lines or "")) if kind == "line" else 1
    return Hit(module, int(number), int(column), kind, comment, int(count), size)


def read_points(path: Path) -> list[Hit]:
    """Points of a ``coverage.dat`` file."""
    return [hit for hit in map(_hit, path.read_text().splitlines()) if hit]


@cache
def _modules_of(model: Path) -> list[tuple[int, int, str, list[str]]]:
    """First line, last line, short name and text of each module in a model's Verilog."""
    files = sorted((model / "src").glob("*.v"))
    lines = files[0].read_text().splitlines() if len(files) == 1 else []
    found, start = [], 0
    for number, line in enumerate(lines, 1):
        if line.startswith("module "):
            start = number
        elif line.startswith("endmodule") and start:
            name = re.match(r"module\s+\\?([^\s(;#]+)", lines[start - 1])
            short = name[1].rpartition(".")[2] if name else "?"
            found.append((start, number, short, lines[start - 1 : number]))
            start = 0
    return found


def _digest(text: list[str]) -> str:
    """Of a module without its own name, the hierarchy in front of others, and all numbers."""
    plain = re.sub(r"\\?[\w$]+(?:\.[\w$]+)*\.([\w$]+) ", r"\1 ", "\n".join(text))
    plain = re.sub(r"^module \S+", "module", plain)
    plain = re.sub(r"\d+'h[0-9a-f]+|\d+", "#", plain)
    return hashlib.sha256(plain.encode()).hexdigest()


def structural(report: Path) -> list[Module]:
    """All modules with what was reached in them, by name and variant."""
    modules: dict[str, Module] = {}
    # Where the points of a model count, by their text: many runs of one model have the same points.
    places: dict[Path, dict[str, tuple[dict[Place, int], Place] | None]] = {}
    digests: dict[tuple[Path, int], str] = {}

    def place_of(model: Path, line: str) -> tuple[dict[Place, int], Place] | None:
        hit = _hit(line)
        if hit is None or hit.kind not in KINDS:
            return None
        parts = _modules_of(model)
        at = bisect_right(parts, hit.line, key=lambda part: part[0]) - 1
        if at < 0 or hit.line > parts[at][1]:
            return None
        start, _, short, text = parts[at]
        if _NEVER.search(text[hit.line - start]):
            return None
        if (model, start) not in digests:
            digests[model, start] = _digest(text)
        module = modules.setdefault(digests[model, start], Module(set(), text))
        module.names.add(short)
        return module.counts, Place(hit.kind, hit.line - start + 1, hit.column, hit.comment, hit.size)

    for path in sorted(report.rglob("coverage.dat")):
        model = Path((path.parent / "model").read_text().strip())
        known = places.setdefault(model, {})
        for line in path.read_text().splitlines():
            key, _, count = line.rpartition(" ")
            if key not in known:
                known[key] = place_of(model, line)
            if known[key] is not None:
                counts, place = known[key]
                counts[place] = counts.get(place, 0) + int(count)
    variants: dict[str, int] = {}
    ordered = sorted(modules.values(), key=lambda module: module.name)
    for module in ordered:
        module.variant = variants[module.name] = variants.get(module.name, 0) + 1
    return ordered


def functional(report: Path) -> dict[str, dict[str, int]]:
    """Counts of all bins by group."""
    groups: dict[str, dict[str, int]] = {}
    for path in sorted(report.rglob("functional.json")):
        for group, bins in json.loads(path.read_text()).items():
            into = groups.setdefault(group, {})
            for name, count in bins.items():
                into[name] = into.get(name, 0) + count
    return groups
