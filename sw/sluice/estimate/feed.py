"""The feeder in time: when the rows of a pass are issued, and their accesses made.

Rows of one access each follow each other cycle by cycle, which is a formula. Otherwise the feeder's queues are
followed cycle by cycle, which VMEM never holds up: the feeder's port is the first of all.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from .pattern import Pattern, Row
from .timing import Timing

__all__ = ["Feed", "Issued"]

_LONG_AGO = -(1 << 40)


@dataclass(frozen=True)
class Issued:
    """A pass's cycles.

    Attributes
    ----------
    first, last
        Of the first and the last row's issue.
    rows
        Of every row's issue.
    accesses, places
        Of every access to VMEM, and its address relative to the pass's.
    """

    first: int
    last: int
    rows: Sequence[int]
    accesses: Sequence[int]
    places: Sequence[int]


class Feed:
    """The feeder's state from pass to pass.

    Attributes
    ----------
    walked
        The cycle in which the last row was walked, from which on the next pass can start.
    """

    def __init__(self) -> None:
        # Cycles of the last row word, choice of an access and issue of a row, where formulas take over.
        self._word = self._access = self._issue = _LONG_AGO
        self.walked = -1
        self._recent: list[int] = []  # cycles of the last rows' issues
        self._queues: _Queues | None = None

    def first_access(self, start: int) -> int:
        """When a pass that starts in cycle ``start`` makes its first access, if it needs one for its first row."""
        word = max(start + Timing.START_TO_WORD, self._word + 1)
        return max(word + Timing.WORD_TO_ACCESS, self._access + 1) + 1

    def _note(self, issues: Sequence[int]) -> None:
        kept = Timing.ROWS_WALKED + 1
        self._recent = [*self._recent, *issues[-kept:]][-kept:]

    def _room(self, waiting: int) -> int:
        """When the last of some rows behind those issued can be walked, as far as these make room for it."""
        back = Timing.ROWS_WALKED + 1 - waiting
        return self._recent[-back] + 1 if len(self._recent) >= back else 0

    def when_walked(self, waiting: int, start: int, rows: int) -> int | None:
        """When the last row of a pass of ``rows`` rows is walked, that started in cycle ``start`` and cannot be issued.

        ``waiting`` are its rows and those before it that wait, too. None: not before some are issued.
        """
        if waiting > Timing.ROWS_WALKED:
            return None
        return max(start + rows, self.walked, self._room(waiting))

    def run(self, rows: Pattern, start: int, hold: int) -> Issued:
        """Issue a pass that started in cycle ``start`` and whose first row must not go before ``hold``."""
        return self._simple(rows, start, hold) if rows.simple else self._followed(rows, start, hold)

    def _simple(self, rows: Pattern, start: int, hold: int) -> Issued:
        count = len(rows.rows)
        access = self.first_access(start)
        first = max(access + 1, self._issue + 1, hold)
        last = first + count - 1
        # The first rows' accesses are made at once, later ones when a row's issue makes room.
        ahead = min(Timing.WINDOWS_AHEAD, count)
        times: Sequence[int] = range(access, access + count)
        if first > access + 1:
            times = [*range(access, access + ahead), *range(first - 2 + ahead, first - 2 + count)]
        self._note(range(first, last + 1))
        self.walked = max(start + count, self._room(0))
        self._issue, self._access, self._word = last, last - Timing.ACCESS_TO_ISSUE, last - 3
        self._queues = None
        return Issued(first, last, range(first, last + 1), times, rows.places)

    def _followed(self, rows: Pattern, start: int, hold: int) -> Issued:
        queues = self._queues
        if queues is None:
            queues = _Queues(start + 1, self._access, self._issue)
        queues.run(start + 1)
        queues.begin(rows, hold)
        while queues.walking:
            queues.cycle()
        self.walked = queues.time - 1
        self._queues = copy.deepcopy(queues, {id(rows): rows})
        while not queues.empty:
            queues.cycle()
        self._issue, self._access, self._word = queues.issued[-1], queues.last_access, queues.last_word
        count = len(rows.rows)
        self._note(queues.issued)
        issues = queues.issued[-count:]
        accesses = queues.accesses[-len(rows.places) :] if rows.places else []
        return Issued(issues[0], issues[-1], issues, [t for t, _ in accesses], [a for _, a in accesses])


class _Queues:
    """Row words and accesses, as :mod:`sluice_hw.feeder` has them."""

    def __init__(self, time: int, last_access: int, last_issue: int) -> None:
        self.time = time
        self.last_access, self.last_issue, self.last_word = last_access, last_issue, _LONG_AGO
        self._walk: deque[tuple[Row, int]] = deque()  # rows not walked, and when they may be issued
        self._stages: deque[tuple[Row, int] | None] = deque([None] * (Timing.START_TO_WORD - 1))
        self._words: deque[tuple[int, Row, int]] = deque()  # when it shows, row, when it may be issued
        self._wanted: dict[int, deque[tuple[int, int]]] = {}  # per segment: when it shows, address
        self._credits: dict[int, int] = {}
        self._tails: dict[int, int] = {}  # window of the row issued last
        self._numbers: dict[int, int] = {}  # window of the next access
        self._base: dict[int, int] = {}  # windows of the passes before
        self._request: int | None = None
        self.issued: list[int] = []
        self.accesses: list[tuple[int, int]] = []

    @property
    def walking(self) -> bool:
        return bool(self._walk)

    @property
    def empty(self) -> bool:
        return not self._words and not any(self._stages) and not self._walk

    def run(self, until: int) -> None:
        """Up to a cycle."""
        while self.time < until:
            if self.empty and self._request is None:
                self.time = until
                self._stages = deque([None] * len(self._stages))
            else:
                self.cycle()

    def begin(self, rows: Pattern, hold: int) -> None:
        """The rows of a pass are walked from this cycle on."""
        for p in range(len(rows.windows)):
            self._wanted.setdefault(p, deque())
            self._credits.setdefault(p, 0)
            self._numbers.setdefault(p, 1)
            self._tails.setdefault(p, 0)
            self._base.setdefault(p, 0)
        self.issued, self.accesses = [], []
        base = dict(self._base)
        for number, row in enumerate(rows.rows):
            moved = Row(tuple((p, base[p] + w) for p, w in row.reads), row.accesses)
            self._walk.append((moved, hold if number == 0 else 0))
        for p, count in enumerate(rows.windows):
            self._base[p] += count

    def cycle(self) -> None:
        """One cycle."""
        time, credits = self.time, self._credits
        step = len(self._words) < Timing.ROWS_AHEAD
        if step:
            for queue in self._wanted.values():
                if len(queue) >= 2:
                    step = False
                    break
        head = self._words[0] if self._words and self._words[0][0] <= time else None
        issue = False
        if head is not None and time >= head[2] and time > self.last_issue:
            issue = all(credits[p] for p, _ in head[1].accesses)
        if issue:
            assert head is not None
            for p, window in head[1].reads:
                self._tails[p] = window
        # The next access: those that the head waits for first, else the lowest segment's.
        chosen = None
        if time > self.last_access:
            for p, queue in self._wanted.items():
                if queue and queue[0][0] <= time and self._numbers[p] - self._tails[p] <= Timing.WINDOWS_AHEAD:
                    urgent = head is not None and not credits[p] and any(q == p for q, _ in head[1].accesses)
                    if urgent:
                        chosen = p
                        break
                    if chosen is None:
                        chosen = p
        if issue:
            assert head is not None
            for p, _ in head[1].accesses:
                credits[p] -= 1
            self._words.popleft()
            self.issued.append(time)
            self.last_issue = time
        if self._request is not None:
            credits[self._request] += 1
        self._request = chosen
        if chosen is not None:
            _, addr = self._wanted[chosen].popleft()
            self._numbers[chosen] += 1
            self.accesses.append((time + 1, addr))
            self.last_access = time
        if step:
            done = self._stages.pop()
            if done is not None:
                self._words.append((time + Timing.BUFFERED, *done))
                self.last_word = time
                for p, addr in done[0].accesses:
                    self._wanted[p].append((time + Timing.PLAIN, addr))
            self._stages.appendleft(self._walk.popleft() if self._walk else None)
        elif head is not None and not issue and chosen is None and head[2] > time and self._request is None:
            self.time = head[2]  # nothing moves before that
            return
        self.time += 1
