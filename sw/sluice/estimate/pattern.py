"""What each row of a pass reads: the windows of the feeder, and the accesses that open or continue them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from sluice_hw.config import ChipConfig

__all__ = ["Pattern", "Row", "pattern"]

_SHAPE = ("n0", "n1", "n2", "s0", "s1", "s2", "segments", "pad", "x_step", "y_step", "line_bytes", "height")
_SEGMENT = ("lo", "hi", "offset", "x", "y")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a pass.

    Attributes
    ----------
    reads
        (segment, window) of the segments that read something; windows of a segment are numbered from 1 in a pass.
    accesses
        (segment, address) of the accesses that it adds; addresses are relative to the pass's.
    """

    reads: tuple[tuple[int, int], ...]
    accesses: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Pattern:
    """All rows.

    Attributes
    ----------
    simple
        Every row makes one access: they follow each other without a gap.
    places
        Addresses of all accesses, in the order of the rows.
    windows
        How many each segment opens.
    lo, hi
        Lowest and highest byte; hi < lo when nothing is read.
    """

    rows: tuple[Row, ...]
    simple: bool
    places: tuple[int, ...]
    windows: tuple[int, ...]
    lo: int
    hi: int


def pattern(config: ChipConfig, shape: Mapping[str, int], segments: Mapping[int, Mapping[str, int]]) -> Pattern:
    """The pattern of the shape and segments that stand in the registers."""
    used = tuple(
        tuple(segments[p][name] for name in _SEGMENT) for p in range(shape["segments"]) if p in segments)
    return _pattern(config.word_bytes, tuple(shape[name] for name in _SHAPE), used)


@lru_cache(maxsize=256)
def _pattern(width: int, shape: tuple[int, ...], segments: tuple[tuple[int, ...], ...]) -> Pattern:
    n0, n1, n2, s0, s1, s2, _, pad, x_step, y_step, line_bytes, height = shape
    rows: list[Row] = []
    places: list[int] = []
    lo, hi = 1 << 40, -(1 << 40)
    # Per segment: the newest window's first byte (None: none is open) and number, and whether the newest row began in
    # the one before, which the newest continues.
    base: list[int | None] = [None] * len(segments)
    behind = [False] * len(segments)
    number = [0] * len(segments)
    for i2 in range(n2):
        for i1 in range(n1):
            at = i1 * s1 + i2 * s2
            y = i1 * y_step
            for i0 in range(n0):
                reads, accesses = [], []
                for p, (first, end, offset, dx, dy) in enumerate(segments):
                    length, addr = end - first, at + offset
                    if pad:
                        left = i0 * x_step + dx
                        if not 0 <= y + dy < height:
                            continue
                        cut = max(-left, 0)
                        length -= cut + max(left + length - line_bytes, 0)
                        addr += cut
                    if length <= 0:
                        continue
                    lo, hi = min(lo, addr), max(hi, addr + width - 1)
                    newest = base[p]
                    ahead = -(1 << 40) if newest is None else addr - newest
                    if 0 <= ahead < width:
                        reads.append((p, number[p]))
                        behind[p] = ahead + length > width
                        if behind[p]:  # continue it
                            number[p] += 1
                            base[p] = addr - ahead + width
                            accesses.append((p, addr - ahead + width))
                    elif behind[p] and -width <= ahead < 0:
                        reads.append((p, number[p] - 1))
                    else:
                        number[p] += 1
                        base[p], behind[p] = addr, False
                        reads.append((p, number[p]))
                        accesses.append((p, addr))
                places += [addr for _, addr in accesses]
                rows.append(Row(tuple(reads), tuple(accesses)))
                at += s0
    simple = len(segments) == 1 and all(len(row.accesses) == 1 for row in rows)
    return Pattern(tuple(rows), simple, tuple(places), tuple(number), lo, hi)
