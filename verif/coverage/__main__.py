"""Sum, print and write what the runs under ``sim_build/report`` reached.

Exit status 1 below the line target, with a line that is neither reached nor explained, or with a waiver that explains
nothing.
"""

from __future__ import annotations

import json
import sys

from sluice.build import sim_build_dir
from verif.tools.summary import Summary

from .page import write_pages
from .points import KINDS, functional, structural
from .waivers import FILE, read_waivers

__all__ = ["LINE_TARGET", "main"]

#: Share of lines that the tests must reach; each of the others must be explained.
LINE_TARGET = 0.95

#: Holes that are printed; all stand in ``uncovered.txt``.
HOLES = 20


def _ratio(reached: int, total: int) -> str:
    return f"{100 * reached / total:5.1f} % of {total}" if total else "-"


def main() -> int:
    """Print the table by module name; the exit status."""
    report, target = sim_build_dir() / "report", sim_build_dir() / "coverage"
    modules = structural(report)
    if not modules:
        print(f"no coverage under {report}: run the tests with SLUICE_COVERAGE=1", file=sys.stderr)
        return 1
    waivers = read_waivers(FILE.read_text())
    true = [waiver for waiver in waivers if waiver.holds(modules)]
    used = set()
    waived, uncovered, holes = {}, [], []
    sums = {kind: [0, 0, 0] for kind in KINDS}
    names: dict[str, dict[str, list[int]]] = {}
    for number, module in enumerate(modules):
        rows = names.setdefault(module.name, {kind: [0, 0, 0] for kind in KINDS})
        for place, count in sorted(module.counts.items(), key=lambda item: (item[0].line, item[0].column)):
            reason = next((w for w in true if w.covers(module, place)), None) if not count else None
            if reason:
                used.add(reason)
                waived[number, place] = reason.reason
            elif not count:
                text = module.text[place.line - 1].strip()
                uncovered.append(f"{module.title} {place.kind} {place.line} {place.comment}  {text}")
                if place.kind == "line":
                    holes.append(uncovered[-1])
            for tally in (rows[place.kind], sums[place.kind]):
                tally[0] += place.size * (count > 0)
                tally[1] += place.size * (reason is not None)
                tally[2] += place.size
    groups = functional(report)
    index = write_pages(target, modules, waived, groups)
    (target / "uncovered.txt").write_text("".join(f"{line}\n" for line in uncovered))
    missed = [f"{group} {name}" for group, bins in sorted(groups.items()) for name, count in bins.items() if not count]
    (target / "functional.txt").write_text("".join(f"{line}\n" for line in missed))

    print(f"{'module':28} " + " ".join(f"{kind:>18}" for kind in KINDS))
    for name, rows in sorted(names.items()):
        print(f"{name:28} " + " ".join(f"{_ratio(r[0] + r[1], r[2]):>18}" for r in rows.values()))
    print(f"{'all':28} " + " ".join(f"{_ratio(r[0] + r[1], r[2]):>18}" for r in sums.values()))
    bins = [count for group in groups.values() for count in group.values()]
    print(f"explained: {', '.join(f'{sums[kind][1]} {kind}' for kind in KINDS)}: {FILE.name}")
    print(f"functional: {_ratio(sum(count > 0 for count in bins), len(bins))} bins in {len(groups)} groups")
    print(f"report: {index}; never reached: uncovered.txt, functional.txt beside it")
    stale = [w for w in waivers if w not in used]
    for waiver in stale:
        print(f"waiver explains nothing: {waiver.module} | {waiver.kind} | {waiver.pattern}", file=sys.stderr)
    reached, explained, total = sums["line"]
    share = reached / total if total else 0.0
    said = f"{100 * share:.1f} % of {total} lines, {explained} explained"
    print(f"reached: {said}, {total - reached - explained} neither")
    (target / "summary.json").write_text(json.dumps({
        "line": share, "functional": sum(c > 0 for c in bins) / len(bins) if bins else None,
        **{f"{kind}_points": dict(zip(("reached", "explained", "total"), sums[kind], strict=True)) for kind in KINDS},
    }, indent=1) + "\n")  # fmt: skip
    noted = report / "summary.json"
    if noted.is_file():  # the session could not know it yet
        Summary(**{**json.loads(noted.read_text()), "coverage": said}).write(report)
    if share < LINE_TARGET:
        print(f"reached: {100 * share:.1f} % of the lines, less than {100 * LINE_TARGET:.0f} %", file=sys.stderr)
    for hole in holes[:HOLES]:
        print(f"neither reached nor explained: {hole}", file=sys.stderr)
    if len(holes) > HOLES:
        print(f"and {len(holes) - HOLES} more, see uncovered.txt", file=sys.stderr)
    return 1 if share < LINE_TARGET or holes or stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
