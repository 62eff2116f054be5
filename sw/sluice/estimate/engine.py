"""Time of the cost model: events in their order, units that take ops from queues, tokens between them."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from sluice.golden.units import MicroOp
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Op, Unit

from .errors import EstimateError
from .ports import Ports
from .timing import Timing

if TYPE_CHECKING:
    from .issue import Issue

__all__ = ["Engine", "TimedUnit"]


class Engine:
    """Events by cycle.

    Attributes
    ----------
    now
        The cycle that everything happens in.
    ports
        Streams of accesses that may meet.
    """

    def __init__(self, config: ChipConfig) -> None:
        self.config, self.timing = config, Timing(config)
        self.now = 0
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self.tokens: dict[tuple[Unit, Unit], int] = {(a, b): 0 for a in Unit for b in Unit}
        self.units: dict[Unit, TimedUnit] = {}
        self.issue: Issue
        self.ports = Ports(self)

    def at(self, time: int, call: Callable[[], None]) -> None:
        """Call in a cycle, not before this one."""
        self._number += 1
        heapq.heappush(self.events, (max(time, self.now), self._number, call))

    def run(self) -> None:
        """Until nothing is left to happen."""
        events, ports = self.events, self.ports
        while True:
            while ports.busy and not ports.run():
                pass
            if not events:
                return
            self.now, _, call = heapq.heappop(events)
            call()

    def give(self, source: Unit, targets: tuple[Unit, ...], time: int) -> None:
        """A unit gives tokens in a cycle."""
        if targets:
            self.at(time + Timing.TOKEN, lambda: self._arrive(source, targets))

    def _arrive(self, source: Unit, targets: tuple[Unit, ...]) -> None:
        for target in targets:
            self.tokens[source, target] += 1
            self.units[target].poke()


class TimedUnit:
    """A unit: takes ops in order, when they show at the head of the queue and may start.

    Attributes
    ----------
    pops
        When ops left the queue, all of them.
    ends
        The last cycle in which the unit finished something.
    waits
        Cycles that an op at the head waited, by what for.
    ops
        Ops started, setup words excluded.
    busy
        Cycles in which the unit did its work.
    """

    def __init__(self, engine: Engine, unit: Unit) -> None:
        self.engine, self.unit = engine, unit
        self.timing = engine.timing
        self.depth = engine.config.queue_depth(unit.name.lower())
        self.queue: deque[tuple[int, MicroOp]] = deque()
        self.pops: list[int] = []
        self.pushed = 0
        self.ends = -1
        self.waits: Counter[str] = Counter()
        self.ops = self.busy = 0
        self._head = 0  # the first cycle in which the op at the head can be looked at
        self._poked: int | None = None
        self._why = ""

    # -- queue ---------------------------------------------------------------------------------------------------
    def push(self, op: MicroOp, time: int) -> int | None:
        """Put an op into the queue in the first cycle from ``time`` on that has room; which one, or None: not known."""
        if self.pushed >= self.depth:
            if len(self.pops) <= self.pushed - self.depth:
                return None
            time = max(time, self.pops[self.pushed - self.depth] + 1)
        self.pushed += 1
        self.queue.append((time + Timing.BUFFERED, op))
        if len(self.queue) == 1:
            self._poke_at(time + Timing.BUFFERED)
        return time

    def _poke_at(self, time: int) -> None:
        if self._poked is None or time < self._poked:
            self._poked = time
            self.engine.at(time, self.poke)

    def poke(self) -> None:
        """Something may have changed: start what can start."""
        now = self.engine.now
        if self._poked is not None and self._poked <= now:
            self._poked = None
        while self.queue:
            shows, op = self.queue[0]
            time = max(shows, self._head)
            if self.is_setup(op):
                self.setup(op, time)
                self._pop(time)
                continue
            if time > now:
                self._poke_at(time)
                return
            may = self.may_start(op, time)
            if may is None or may > now:
                self._why = "an earlier op"
                if may is not None:  # else whoever it waits for will poke
                    self._poke_at(may)
                return
            missing = [u for u in op.waits if not self.engine.tokens[u, self.unit]]
            if missing:
                self._why = f"token {missing[0].name}"
                return
            if now > time:
                self.waits[self._why.removeprefix("an ")] += now - time
            for u in op.waits:
                self.engine.tokens[u, self.unit] -= 1
            self.ops += 1
            self._pop(now)
            self.start(op, now)

    def _pop(self, time: int) -> None:
        self.queue.popleft()
        self.pops.append(time)
        self._head = time + 1
        self.engine.issue.resume(self)

    def finish(self, op: MicroOp, time: int) -> None:
        """The op ends and gives its tokens."""
        self.ends = max(self.ends, time)
        self.engine.give(self.unit, op.signals, time)

    @property
    def stuck(self) -> str:
        """What the op at the head of the queue waits for, in words."""
        _, op = self.queue[0]
        return f"{self.unit.name} waits at word {op.pc}, {op.op.name}, for {self._why.replace('token', 'a token from')}"

    def needs(self, op: MicroOp, **setups: object) -> None:
        """Refuse an op whose setup words have not been met."""
        for name, value in setups.items():
            if not value:
                raise EstimateError(f"{op.op.name} at word {op.pc} needs {name} before it")

    # -- what a subclass says ------------------------------------------------------------------------------------
    def is_setup(self, op: MicroOp) -> bool:
        """Whether it only writes registers."""
        return op.op in _SETUPS

    def setup(self, op: MicroOp, time: int) -> None:
        """Take a setup word."""
        raise NotImplementedError

    def may_start(self, op: MicroOp, shown: int) -> int | None:
        """The first cycle in which it can start as far as this unit is concerned; None: not known yet."""
        raise NotImplementedError

    def start(self, op: MicroOp, time: int) -> None:
        """It starts, with its tokens."""
        raise NotImplementedError


_SETUPS = frozenset({
    Op.DMA_SHAPE, Op.FEED_SHAPE, Op.FEED_SEGMENT, Op.VECTOR_SHAPE, Op.VECTOR_MODE, Op.VECTOR_RESIDUAL,
})  # fmt: skip
