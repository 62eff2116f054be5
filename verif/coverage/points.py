"""Coverage points of all runs under ``sim_build/report``, merged over every model that holds the same module.

A simulation leaves ``coverage.dat`` (Verilator), ``functional.json`` (:mod:`verif.cover`) and ``model`` (path of the
model, whose Verilog is beside it) in its report folder. One module of the hardware stands in many models: in that of
its unit test, of the units around it, of the chip. Where the Verilog of the module is the same, what one reaches is
reached; where it differs (another configuration), the variants are counted apart.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

__all__ = ["KINDS", "Hit", "Module", "Place", "functional", "read_points", "structural"]

KINDS = ("line", "branch", "toggle")


@dataclass(frozen=True)
class Place:
    """Where Verilator counts: kind, line of the module (1: its first), column, and for a toggle its bit and edge."""

    kind: str
    line: int
    column: int
    comment: str


@dataclass(frozen=True)
class Hit:
    """A point of a ``coverage.dat`` file: module name in the model, line of the file, place data, count."""

    module: str
    line: int
    column: int
    kind: str
    comment: str
    count: int


@dataclass
class Module:
    """One Verilog module text and what was reached in it.

    Attributes
    ----------
    name
        Last part of its name: ``feeder`` for ``chip.mxu.feeder``.
    variant
        Number among the modules of that name, from 1.
    text
        Its lines.
    counts
        By place.
    """

    name: str
    variant: int
    text: list[str]
    counts: dict[Place, int] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.name}.{self.variant}"

    def of(self, kind: str) -> dict[Place, int]:
        """The points of a kind."""
        return {place: count for place, count in self.counts.items() if place.kind == kind}


def read_points(path: Path) -> list[Hit]:
    """Points of a ``coverage.dat`` file."""
    hits = []
    for line in path.read_text().splitlines():
        match = re.fullmatch(r"C '(.*)' (\d+)", line)
        if not match:
            continue
        fields = dict(part.split("\x02", 1) for part in match[1].split("\x01") if "\x02" in part)
        kind, _, module = fields["page"].removeprefix("v_").partition("/")
        hits.append(Hit(module, int(fields["l"]), int(fields["n"]), kind, fields.get("o", ""), int(match[2])))
    return hits


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
    """Of a module without the hierarchy in front of module names, which tells models apart and not modules."""
    plain = re.sub(r"\\?[\w$]+(?:\.[\w$]+)*\.([\w$]+) ", r"\1 ", "\n".join(text))
    plain = re.sub(r"^module \S+", "module", plain)
    return hashlib.sha256(plain.encode()).hexdigest()


def structural(report: Path) -> list[Module]:
    """All modules with what was reached in them, by name and variant."""
    modules: dict[tuple[str, str], Module] = {}
    digests: dict[tuple[Path, int], str] = {}
    variants: dict[str, int] = {}
    for path in sorted(report.rglob("coverage.dat")):
        model = Path((path.parent / "model").read_text().strip())
        parts = _modules_of(model)
        for hit in read_points(path):
            part = next((p for p in parts if p[0] <= hit.line <= p[1]), None)
            if part is None or hit.kind not in KINDS:
                continue
            start, _, short, text = part
            if (model, start) not in digests:
                digests[model, start] = _digest(text)
            digest = digests[model, start]
            if (short, digest) not in modules:
                variants[short] = variants.get(short, 0) + 1
                modules[short, digest] = Module(short, variants[short], text)
            place = Place(hit.kind, hit.line - start + 1, hit.column, hit.comment)
            counts = modules[short, digest].counts
            counts[place] = counts.get(place, 0) + hit.count
    return sorted(modules.values(), key=lambda m: (m.name, m.variant))


def functional(report: Path) -> dict[str, dict[str, int]]:
    """Counts of all bins by group."""
    groups: dict[str, dict[str, int]] = {}
    for path in sorted(report.rglob("functional.json")):
        for group, bins in json.loads(path.read_text()).items():
            into = groups.setdefault(group, {})
            for name, count in bins.items():
                into[name] = into.get(name, 0) + count
    return groups
