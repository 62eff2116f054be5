"""DRAM behind the slice controller in time: slices, one after the other, by the schedule that the controller plays.

What :class:`sluice_hw.hbm.controller.DramController` decides clock by clock is repeated here for the clocks in which
anything can be granted. Refresh is left out: when it falls due depends on what the chip did before the program. With
``per-bank`` it costs next to nothing as long as slices of other sets come along; see docs/results.md for the error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice_hw.hbm.dram_config import CROSSING_CLOCKS, QUEUE_CLOCKS, DramConfig

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["TimedDram"]


@dataclass
class _Slices:
    """What is left of a train: slices, the first clock in which one can be granted, whom to tell of the last."""

    left: int
    valid: int
    done: Callable[[int], None] | None = None


class TimedDram:
    """Grants of slices. Times of the methods are core cycles, in the order of the calls.

    Attributes
    ----------
    arrivals
        Core cycles in which beats that were read can leave for the port, in their order.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._config = config = DramConfig.of(engine.config)
        self._memory, self._core = config.clock_ratio
        self._crossing = CROSSING_CLOCKS if config.crosses else 0
        schedule = config.schedule
        self._follow, self._span = schedule.follow, schedule.span
        self._behind = (config.units - 1) * schedule.unit  # of a slice's last unit
        self._least = config.units * schedule.unit
        self._beats = config.chip.slice_beats
        # From a grant to the first beat's leaving for the port, a cycle before it shows there, and the decoder between.
        self._to_beat = config.grant_to_beat - 1 + (2 if config.coded else 0)
        self._to_done = config.latency
        self._waiting: tuple[deque[_Slices], deque[_Slices]] = (deque(), deque())
        self._room, self._held, self._whole = 2 * self._beats, 0, 0
        self._fetches: deque[int] = deque()  # clocks in which a slice's first beat leaves the write buffer
        self._part = 0  # beats of a slice that is not whole yet
        self.arrivals: deque[int] = deque()
        self._last, self._last_write = -(1 << 30), 0
        self._turn, self._count, self._ended = 0, 0, False
        self._next = 0  # the first clock that is not decided
        self._woken_at: int | None = None

    # -- clocks ------------------------------------------------------------------------------------------------
    def _clock(self, time: int) -> int:
        """Memory clock of a core cycle."""
        return -(-time * self._memory // self._core)

    def _cycle(self, clock: int) -> int:
        """Core cycle of a memory clock."""
        return -(-clock * self._core // self._memory)

    # -- what the chip does ------------------------------------------------------------------------------------
    def request(self, write: bool, count: int, time: int, done: Callable[[int], None] | None = None) -> None:
        """A train is asked for; ``done`` is called, ahead of time, with the cycle in which it is written."""
        clock = self._clock(time + self._crossing)
        self._waiting[write].append(_Slices(count, clock + QUEUE_CLOCKS, done))
        self._wake(clock + QUEUE_CLOCKS)

    def gives(self, time: int) -> bool:
        """Whether a beat that was read can leave in a cycle."""
        self._advance(time)
        return bool(self.arrivals) and self.arrivals[0] <= time

    def given(self, time: int) -> None:
        """It leaves."""
        self._advance(time)
        self.arrivals.popleft()
        self._room += 1
        self._wake(self._clock(time) + 1)

    def takes(self, time: int) -> bool:
        """Whether a beat to be written finds room in a cycle."""
        self._advance(time)
        clock = self._clock(time)
        while self._fetches and self._fetches[0] + self._beats <= clock:
            self._fetches.popleft()
            self._held -= self._beats
        gone = max(0, clock - self._fetches[0]) if self._fetches else 0
        return self._held - gone < 2 * self._beats

    def taken(self, time: int) -> None:
        """It is written into the buffer."""
        self._advance(time)
        self._held += 1
        self._part += 1
        if self._part == self._beats:
            self._part = 0
            self._whole += 1
            self._wake(self._clock(time + self._crossing) + 1)

    # -- what the controller does --------------------------------------------------------------------------------
    def _wake(self, clock: int) -> None:
        """Look at that clock, or when the next slice can be granted at the earliest."""
        time = self._cycle(max(clock, self._last + self._least))
        if self._woken_at is None or time < self._woken_at:
            self._woken_at = time
            self._engine.at(time, lambda: self._woken(time))

    def _woken(self, time: int) -> None:
        if self._woken_at == time:
            self._woken_at = None
        self._advance(time)

    def _eligible(self, write: int, clock: int) -> bool:
        waiting = self._waiting[write]
        if not waiting or waiting[0].valid > clock:
            return False
        return self._whole > 0 if write else self._room >= self._beats

    def _may_follow(self, write: int, clock: int) -> bool:
        age = clock - self._last - self._behind
        return age > self._span or self._follow[self._last_write, write][age]

    def _advance(self, time: int) -> None:
        """Decide every clock up to that of a cycle."""
        until = self._clock(time)
        config = self._config
        while self._next <= until:
            if not any(self._eligible(v, until) for v in (0, 1)):
                self._next = until + 1
                return
            clock = self._next = max(self._next, self._last + self._least)
            if clock > until:
                break
            self._next += 1
            able = [self._eligible(v, clock) for v in (0, 1)]
            other_first = self._count == config.turn_max or (self._ended and self._count >= config.turn_min)
            pick = self._turn ^ (able[self._turn ^ 1] and (other_first or not able[self._turn]))
            if able[pick] and self._may_follow(pick, clock):
                self._grant(pick, clock)
        if any(self._eligible(v, until) for v in (0, 1)):
            self._wake(until + 1)

    def _grant(self, write: int, clock: int) -> None:
        train = self._waiting[write][0]
        train.left -= 1
        self._count = 1 if write != self._turn else self._count + (self._count != self._config.turn_max)
        self._turn, self._ended = write, not train.left
        self._last, self._last_write = clock, write
        if not train.left:
            self._waiting[write].popleft()
        if self._waiting[0] or self._waiting[1]:
            self._wake(clock + self._least)
        if not write:
            self._room -= self._beats
            first = clock + self._to_beat
            self.arrivals.extend(self._cycle(first + i) + self._crossing for i in range(self._beats))
            return
        self._whole -= 1
        self._fetches.append(clock + self._config.schedule.column + self._config.timing.wl)
        if not train.left and train.done is not None:
            train.done(self._cycle(clock + self._to_done) + self._crossing)
