"""The row walk of a pass: the accesses that each row needs, and when rows are issued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from sluice_hw.config import ChipConfig

from .timing import Timing

__all__ = ["Pattern", "pattern"]

_SHAPE = ("n0", "n1", "n2", "s0", "s1", "s2", "segments", "pad", "x_step", "y_step", "line_bytes", "height")
_numbers = count()
_SEGMENT = ("lo", "hi", "offset", "x", "y")


@dataclass(frozen=True, eq=False)
class Pattern:
    """Rows of a pass, by what they read, relative to the pass's address.

    Attributes
    ----------
    rows
        How many.
    simple
        Every row makes one access.
    accesses
        Segments that make an access, of each row; empty for a simple pattern.
    places
        Addresses of the accesses.
    lo, hi
        Lowest and highest byte.
    """

    rows: int
    simple: bool
    accesses: tuple[tuple[int, ...], ...]
    places: tuple[int, ...]
    lo: int
    hi: int
    number: int

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


def pattern(config: ChipConfig, shape: Mapping[str, int], segments: Mapping[int, Mapping[str, int]]) -> Pattern:
    """The pattern of the shape and segments that stand in the registers."""
    used = tuple(
        tuple(segments[p][name] for name in _SEGMENT) for p in range(shape["segments"]) if p in segments)
    return _pattern(config.word_bytes, tuple(shape[name] for name in _SHAPE), used)


@lru_cache(maxsize=1024)
def _pattern(width: int, shape: tuple[int, ...], segments: tuple[tuple[int, ...], ...]) -> Pattern:
    n0, n1, n2, s0, s1, s2, _, pad, x_step, y_step, line_bytes, height = shape
    total = n0 * n1 * n2
    rows: list[tuple[int, ...]] = []
    places: list[int] = []
    lo, hi = 1 << 40, -(1 << 40)
    # Per segment: newest window's base (None: none), and whether the newest row began in the one before it.
    base: list[int | None] = [None] * len(segments)
    behind = [False] * len(segments)
    for i2 in range(n2):
        for i1 in range(n1):
            at = i1 * s1 + i2 * s2
            y = i1 * y_step
            for i0 in range(n0):
                x = i0 * x_step
                row = []
                for p, (first, end, offset, dx, dy) in enumerate(segments):
                    length = end - first
                    if length <= 0:
                        continue
                    addr = at + offset
                    if pad:
                        left, line = x + dx, y + dy
                        if not 0 <= line < height:
                            continue
                        cut = max(-left, 0)
                        over = max(left + length - line_bytes, 0)
                        length -= cut + over
                        if length <= 0:
                            continue
                        addr += cut
                    newest = base[p]
                    ahead = None if newest is None else addr - newest
                    in_newest = ahead is not None and 0 <= ahead < width
                    in_older = ahead is not None and behind[p] and -width <= ahead < 0
                    fits = ahead is not None and (ahead % width) + length <= width
                    if not in_newest and not in_older:
                        base[p] = addr
                        row.append(p)
                        places.append(addr)
                        behind[p] = False
                    elif in_newest and not fits:
                        assert newest is not None
                        base[p] = newest + width
                        row.append(p)
                        places.append(newest + width)
                        behind[p] = True
                    else:
                        behind[p] = in_older
                    lo, hi = min(lo, addr), max(hi, addr + width - 1)
                rows.append(tuple(row))
                at += s0
    if lo > hi:
        lo, hi = 0, -1
    simple = len(segments) == 1 and all(len(row) == 1 for row in rows)
    return Pattern(total, simple, () if simple else tuple(rows), tuple(places), lo, hi, next(_numbers))


class Feed:
    """The feeder's state from pass to pass: what the next row has to wait for.

    Attributes
    ----------
    word, access, issue
        Cycles of the last row word, choice of an access and issue of a row.
    walked
        The cycle in which the last row was walked, from which on the next pass can start.
    """

    def __init__(self) -> None:
        self.word = self.access = self.issue = -(1 << 30)
        self.walked = -1

    def first_access(self, start: int) -> int:
        """When a pass that starts in cycle ``start`` makes its first access, if it needs one for its first row."""
        word = max(start + Timing.START_TO_WORD, self.word + 1)
        return max(word + Timing.WORD_TO_ACCESS, self.access + 1) + 1

    def run(self, rows: Pattern, start: int, hold: int) -> tuple[int, int, tuple[int, ...] | None, Sequence[int]]:
        """Issue a pass that started in cycle ``start`` and whose first row must not go before ``hold``.

        Returns
        -------
        first, last
            Cycles of the first and the last row.
        issues
            Those of all rows relative to the first; None: one a cycle.
        accesses
            Cycles of the accesses.
        """
        if rows.simple:
            access = self.first_access(start)
            natural = max(access + 1, self.issue + 1)
            first = max(natural, hold)
            last = first + rows.rows - 1
            # Those of the first rows are made at once, later ones when a row's issue makes room.
            ahead = min(Timing.WINDOWS_AHEAD, rows.rows)
            times: Sequence[int] = range(access, access + rows.rows)
            if first > access + 1:
                times = [*range(access, access + ahead), *range(first - 2 + ahead, first - 2 + rows.rows)]
            self.walked = start + rows.rows
            if rows.rows > Timing.ROWS_WALKED:
                self.walked = max(self.walked, last - Timing.ROWS_WALKED + 1)
            self.issue, self.access, self.word = last, last - Timing.ACCESS_TO_ISSUE, last - 3
            return first, last, None, times
        # What lies far back does not matter, and a long wait looks like a longer one.
        far = 64
        late = max(0, max(hold, self.issue) - start - far)
        state = tuple(max(v - start - late, -far) for v in (self.word, self.access, self.issue, hold))
        issues, accesses, word, access, walked = _run(rows, state)
        self.walked = max(start + rows.rows, start + late + walked)
        start += late
        self.word, self.access, self.issue = start + word, start + access, start + issues[-1]
        first = start + issues[0]
        return first, self.issue, tuple(i - issues[0] for i in issues), [start + a for a in accesses]


@lru_cache(maxsize=1024)
def _run(rows: Pattern, state: tuple[int, int, int, int]) -> tuple[tuple[int, ...], tuple[int, ...], int, int, int]:
    """Issues and accesses relative to the start; last word, access, and walk."""
    word, access, issue, hold = state
    word = max(word, Timing.START_TO_WORD - 1)
    issues: list[int] = []
    accesses: list[int] = []
    words: list[int] = []
    #: Per segment: the rows (numbers) that made its accesses, and their choice times.
    made: dict[int, list[tuple[int, int]]] = {}
    for number, needs in enumerate(rows.accesses):
        # The front half moves when the row before, and its accesses, have found room.
        word += 1
        if number >= Timing.ROWS_AHEAD:
            word = max(word, issues[number - Timing.ROWS_AHEAD] + 1)
        for past in made.values():
            if len(past) >= 2:
                word = max(word, past[-2][1] + 1)
        words.append(word)
        ready = word + Timing.BUFFERED
        for segment in needs:
            past = made.setdefault(segment, [])
            access = max(access + 1, word + Timing.WORD_TO_ACCESS)
            if len(past) >= Timing.WINDOWS_AHEAD:
                # The window three before must have been left behind for this one's slot.
                owner = past[-Timing.WINDOWS_AHEAD][0]
                if owner < len(issues):
                    access = max(access, issues[owner])
            past.append((number, access))
            accesses.append(access + 1)
            ready = max(ready, access + Timing.ACCESS_TO_ISSUE)
        issue = max(issue + 1, ready, hold if number == 0 else 0)
        issues.append(issue)
    # The front half moves as a whole: the last row is walked as the row STAGES before it leaves.
    stages = Timing.START_TO_WORD - 1
    walked = words[-1 - stages] if len(words) > stages else -(1 << 30)
    return tuple(issues), tuple(accesses), word, access, walked
