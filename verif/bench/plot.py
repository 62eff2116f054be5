"""Load curves as an SVG picture, without a plotting package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["curves_svg"]

_COLOURS = ("#1f6f8b", "#c1502e", "#5b8c3a", "#7a4fa3", "#8a6d1d", "#444444")
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 360, 260, 60, 30, 90


def curves_svg(curves: Mapping[str, Sequence[Mapping[str, Any]]], *, latency_top: float = 100.0) -> str:
    """Accepted load and latency over offered load, one line per pattern.

    Parameters
    ----------
    curves
        Rows with ``offered``, ``accepted`` and ``latency`` by name.
    latency_top
        Upper end of the axis of latency; longer ones are cut off there.
    """
    width, height = 2 * _WIDTH + _GAP + _LEFT + 150, _HEIGHT + _TOP + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    panels = (("accepted, flits per node and cycle", "accepted", 1.0), ("latency, cycles", "latency", latency_top))
    for panel, (title, key, top) in enumerate(panels):
        x0 = _LEFT + panel * (_WIDTH + _GAP)

        def place(x: float, y: float, x0: int = x0, top: float = top) -> str:
            return f"{x0 + min(x, 1.0) * _WIDTH:.1f},{_TOP + _HEIGHT * (1 - min(y, top) / top):.1f}"

        parts.append(f'<text x="{x0}" y="{_TOP - 10}">{title}</text>')
        parts.append(f'<text x="{x0 + _WIDTH - 150}" y="{_TOP + _HEIGHT + 40}">offered, flits/node/cycle</text>')
        for tick in range(6):
            x, y = x0 + tick * _WIDTH / 5, _TOP + _HEIGHT * (1 - tick / 5)
            parts.append(f'<path d="M{x:.1f} {_TOP}V{_TOP + _HEIGHT}M{x0} {y:.1f}h{_WIDTH}" stroke="#ddd"/>')
            parts.append(f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">{tick / 5:.1f}</text>')
            parts.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{top * tick / 5:g}</text>')
        for index, rows in enumerate(curves.values()):
            points = " ".join(place(row["offered"], row[key]) for row in rows)
            colour = _COLOURS[index % len(_COLOURS)]
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for index, name in enumerate(curves):
        x, y = width - 130, _TOP + 20 + 20 * index
        parts.append(f'<path d="M{x} {y - 4}h20" stroke="{_COLOURS[index % len(_COLOURS)]}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 26}" y="{y}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])
