"""Sum the coverage that the runs under ``sim_build/report`` left, print it, and list what was never reached.

Verilator's points are summed over all runs of one model, then added up by unit; functional bins are summed by group.
The lists go to ``sim_build/coverage``: ``uncovered.txt`` with the Verilog line of each point, ``functional.txt``.
"""

import json
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from sluice.build import sim_build_dir

__all__ = ["Point", "functional", "main", "read_points", "structural"]

KINDS = ("line", "branch", "toggle")


@dataclass(frozen=True)
class Point:
    """A place that Verilator counts: its kind, module, source line and, for a toggle, bit and edge."""

    kind: str
    module: str
    line: int
    column: int
    comment: str


def read_points(path: Path) -> dict[Point, int]:
    """Counts of a ``coverage.dat`` file."""
    points: dict[Point, int] = {}
    for line in path.read_text().splitlines():
        match = re.fullmatch(r"C '(.*)' (\d+)", line)
        if not match:
            continue
        fields = dict(part.split("\x02", 1) for part in match[1].split("\x01") if "\x02" in part)
        kind, _, module = fields["page"].removeprefix("v_").partition("/")
        point = Point(kind, module, int(fields["l"]), int(fields["n"]), fields.get("o", ""))
        points[point] = points.get(point, 0) + int(match[2])
    return points


def structural(report: Path) -> tuple[dict[str, dict[str, tuple[int, int]]], list[str]]:
    """Reached and existing points by unit and kind, and a line of text for each point never reached.

    A unit is the name a test gave its model; its variants (one Verilog text each) are counted apart and added.
    """
    models: dict[Path, dict[Point, int]] = defaultdict(lambda: defaultdict(int))
    for path in sorted(report.rglob("coverage.dat")):
        model = Path((path.parent / "model").read_text().strip())
        for point, count in read_points(path).items():
            models[model][point] += count
    table: dict[str, dict[str, tuple[int, int]]] = {}
    uncovered = []
    for model, points in sorted(models.items()):
        unit = model.name.rsplit("-", 1)[0]
        rows = table.setdefault(unit, dict.fromkeys(KINDS, (0, 0)))
        texts = _source(model)
        for point, count in sorted(points.items(), key=lambda item: (item[0].line, item[0].column)):
            if point.kind not in rows:
                continue
            reached, total = rows[point.kind]
            rows[point.kind] = (reached + (count > 0), total + 1)
            if not count:
                text = texts[point.line - 1].strip() if point.line <= len(texts) else ""
                uncovered.append(f"{model.name} {point.kind} {point.module}:{point.line} {point.comment}  {text}")
    return table, uncovered


def _source(model: Path) -> list[str]:
    files = sorted((model / "src").glob("*.v"))
    return files[0].read_text().splitlines() if len(files) == 1 else []


def functional(report: Path) -> dict[str, dict[str, int]]:
    """Counts of all bins by group."""
    groups: dict[str, dict[str, int]] = {}
    for path in sorted(report.rglob("functional.json")):
        for group, bins in json.loads(path.read_text()).items():
            into = groups.setdefault(group, {})
            for name, count in bins.items():
                into[name] = into.get(name, 0) + count
    return groups


def _ratio(reached: int, total: int) -> str:
    return f"{100 * reached / total:5.1f} % of {total}" if total else "-"


def main() -> int:
    """Print both tables; exit status 1 when no run left coverage."""
    report, target = sim_build_dir() / "report", sim_build_dir() / "coverage"
    table, uncovered = structural(report)
    if not table:
        print(f"no coverage under {report}: run the tests with SLUICE_COVERAGE=1", file=sys.stderr)
        return 1
    groups = functional(report)
    target.mkdir(parents=True, exist_ok=True)
    (target / "uncovered.txt").write_text("".join(f"{line}\n" for line in uncovered))
    missed = [f"{group} {name}" for group, bins in sorted(groups.items()) for name, count in bins.items() if not count]
    (target / "functional.txt").write_text("".join(f"{line}\n" for line in missed))

    print(f"{'unit':28} " + " ".join(f"{kind:>18}" for kind in KINDS))
    sums = {kind: [0, 0] for kind in KINDS}
    for unit, rows in sorted(table.items()):
        print(f"{unit:28} " + " ".join(f"{_ratio(*rows[kind]):>18}" for kind in KINDS))
        for kind in KINDS:
            sums[kind][0] += rows[kind][0]
            sums[kind][1] += rows[kind][1]
    print(f"{'all':28} " + " ".join(f"{_ratio(*sums[kind]):>18}" for kind in KINDS))
    bins = [count for group in groups.values() for count in group.values()]
    print(f"functional: {_ratio(sum(count > 0 for count in bins), len(bins))} bins in {len(groups)} groups")
    print(f"never reached: {target / 'uncovered.txt'}, {target / 'functional.txt'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
