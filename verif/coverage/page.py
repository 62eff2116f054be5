"""The coverage report as HTML: an index, and a page per module with the count beside each line."""

from __future__ import annotations

import html
from collections import defaultdict
from pathlib import Path

from .points import KINDS, Module, Place

__all__ = ["write_pages"]

_STYLE = (
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:2px 10px;text-align:right}"
    "td:first-child,th:first-child{text-align:left}tr:nth-child(even){background:#f3f3f3}pre{line-height:1.3}"
    ".no{background:#fbb}.why{background:#fe9}.yes{background:#dfd}i{color:#777;font-style:normal}"
)


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style><h1>{html.escape(title)}</h1>{body}</html>\n"
    )


def _share(reached: int, total: int) -> str:
    return f"{100 * reached / total:.1f} % of {total}" if total else "-"


def write_pages(
    folder: Path,
    modules: list[Module],
    waived: dict[tuple[int, Place], str],
    functional: dict[str, dict[str, int]],
) -> Path:
    """Write ``index.html`` and a page per module; the path of the index.

    Parameters
    ----------
    waived
        Reason by place in ``modules`` and point.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, module in enumerate(modules):
        cells = []
        for kind in KINDS:
            points = module.of(kind)
            reached = sum(p.size for p, count in points.items() if count or (number, p) in waived)
            cells.append(f"<td>{_share(reached, sum(place.size for place in points))}</td>")
        name = f"{module.title}.html"
        rows.append(f'<tr><td><a href="{html.escape(name)}">{html.escape(module.title)}</a></td>{"".join(cells)}</tr>')
        (folder / name).write_text(_page(module.title, _lines(number, module, waived)))
    bins = "".join(
        f"<tr><td>{html.escape(group)}</td><td>{_share(sum(c > 0 for c in b.values()), len(b))}</td>"
        f"<td>{html.escape(', '.join(name for name, c in b.items() if not c))}</td></tr>"
        for group, b in sorted(functional.items())
    )
    head = "".join(f"<th>{kind}</th>" for kind in KINDS)
    index = folder / "index.html"
    index.write_text(_page("Coverage", (
        f"<p>Explained holes count as reached; they are yellow on the pages.</p><table><tr><th>module</th>{head}</tr>"
        f"{''.join(rows)}</table><h2>Functional</h2><table><tr><th>group</th><th>bins</th><th>never</th></tr>{bins}"
        "</table>")))  # fmt: skip
    return index


def _lines(number: int, module: Module, waived: dict[tuple[int, Place], str]) -> str:
    by_line: dict[int, list[tuple[Place, int]]] = defaultdict(list)
    for place, count in module.counts.items():
        by_line[place.line].append((place, count))
    out = []
    for line, text in enumerate(module.text, 1):
        points = by_line.get(line, [])
        holes = [place for place, count in points if not count]
        reasons = sorted({waived[number, place] for place in holes if (number, place) in waived})
        if not points:
            style = ""
        elif not holes:
            style = "yes"
        else:
            style = "why" if all((number, place) in waived for place in holes) else "no"
        least = min((count for _, count in points), default=None)
        note = "; ".join([*reasons, *[f"{p.kind} {p.comment}" for p in holes if (number, p) not in waived][:4]])
        out.append(
            f'<i>{line:5} {"" if least is None else least:>8}</i> <span class="{style}" title="{html.escape(note)}">'
            f"{html.escape(text)}</span>"
        )
    return "<pre>" + "\n".join(out) + "</pre>"
