"""MXU in time: the queue's head, passes through feeder, array and accumulators, and weight tiles beside them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from sluice.golden.units import MicroOp
from sluice_hw.isa import Op, Unit

from .engine import Engine, TimedUnit
from .feed import Feed, Issued
from .pattern import Pattern, pattern
from .ports import Stream
from .weights import Loader

__all__ = ["TimedMatrix"]


class Pass:
    """One PULSE_ARRAY.

    Attributes
    ----------
    issued
        The cycles of its rows; None: not known.
    early
        Accesses made before that was known.
    """

    def __init__(self, op: MicroOp, rows: Pattern, start: int) -> None:
        self.op, self.rows, self.start = op, rows, start
        self.issued: Issued | None = None
        self.early = 0


class Activations(Stream):
    """Accesses of a pass to VMEM, which nothing holds up, in given cycles."""

    priority = 1
    fixed = True

    def __init__(self, mxu: TimedMatrix, a_pass: Pass, times: Sequence[int], places: Sequence[int]) -> None:
        self._mxu, self._pass, self._times, self._places = mxu, a_pass, times, places
        base, rows = a_pass.op.address["vmem"], a_pass.rows
        self.regions = mxu.engine.ports.banks.regions(base + rows.lo, base + rows.hi) if rows.hi >= rows.lo else 0
        self._masks: dict[int, int] | None = None

    def step(self, time: int, taken: int) -> int:
        if self._masks is None:
            banks, base = self._mxu.engine.ports.banks, self._pass.op.address["vmem"]
            self._masks = {t: banks.narrow(base + a) for t, a in zip(self._times, self._places, strict=True)}
        mask = self._masks.get(time)
        if mask is None:
            return taken
        self._mxu.engine.ports.progress = True
        return taken | mask


class Sums(Stream):
    """A pass's reads of the accumulators, which the vector unit waits for."""

    priority = 0
    fixed = True

    def __init__(self, mxu: TimedMatrix, a_pass: Pass) -> None:
        self._mxu, self._pass = mxu, a_pass
        first = a_pass.op.address["acc"]
        self._row = first
        self.regions = mxu.engine.ports.banks.acc_regions(first, first + len(a_pass.rows.rows) - 1)
        self._times: dict[int, int] | None = None

    def step(self, time: int, taken: int) -> int:
        if self._times is None:
            issued, banks, array = self._pass.issued, self._mxu.engine.ports.banks, self._mxu.timing.array
            assert issued is not None
            self._times = {array + t: banks.half(self._row + i) for i, t in enumerate(issued.rows)}
        mask = self._times.get(time)
        if mask is None:
            return taken
        self._mxu.engine.ports.progress = True
        return taken | mask


class TimedMatrix(TimedUnit):
    """MXU."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, Unit.MXU)
        self._shape: Mapping[str, int] = {}
        self._segments: dict[int, Mapping[str, int]] = {}
        self._shaped = 0  # the first cycle in which a pass may start with its shape
        self.loader = Loader(self)
        self._feed = Feed()
        self._tile_free = False  # a tile was started that no started pass takes
        self._pending: deque[Pass] = deque()  # started, rows' cycles not known
        self._swapping = False  # the last pass that they are known of has not taken its tile yet
        self._passes = 0
        self._ended: list[int] = []
        self._reports: set[int] = set()
        self._sync_busy = -1
        self._open = {Op.PULSE_ARRAY: 0, Op.LOAD_WEIGHTS: 0}  # not reported
        #: SYNC under way, its start, and how many of each must be reported before it ends.
        self._under: tuple[MicroOp, int, dict[Op, int]] | None = None
        self._reported = 0
        self.first_row: int | None = None
        self.last_row = 0
        self.macs = 0
        self._row_macs = 0
        self.tiles = 0

    # -- queue head ------------------------------------------------------------------------------------------------
    def setup(self, op: MicroOp, time: int) -> None:
        if op.op is Op.FEED_SHAPE:
            self._shape = op.fields
            self._shaped = time + self.timing.SHAPE_TO_PULSE
        else:
            self._segments = {**self._segments, op.fields["index"]: op.fields}

    def may_start(self, op: MicroOp, shown: int) -> int | None:
        if op.op is Op.LOAD_WEIGHTS:
            return None if self._tile_free else self.loader.may_start(shown)
        if op.op is Op.SYNC:
            return None if self._under else max(shown, self._sync_busy)
        if op.swap and not self._tile_free:
            return None
        walked = self._when_walked()
        if walked is None:
            return None
        time = max(shown, self._shaped, walked)
        if self._passes >= self.timing.PASSES:
            known = self._passes - self.timing.PASSES
            if known >= len(self._ended):
                return None
            time = max(time, self._ended[known] + 1)
        return time

    def _when_walked(self) -> int | None:
        """The cycle in which the last row of the last pass is walked; None: not known."""
        if not self._pending:
            return self._feed.walked
        # While a row waits for its tile, a few rows behind it are walked.
        last = self._pending[-1]
        return self._feed.when_walked(sum(len(p.rows.rows) for p in self._pending), last.start, len(last.rows.rows))

    def start(self, op: MicroOp, time: int) -> None:
        if op.op is Op.LOAD_WEIGHTS:
            self._tile_free = True
            self._open[op.op] += 1
            self.tiles += 1
            self.loader.start(op, time)
        elif op.op is Op.SYNC:
            self._under = op, time, dict(self._open)
            self._sync()
        else:
            self.needs(op, FEED_SHAPE=self._shape, FEED_SEGMENT=self._segments)
            if op.swap:
                self._tile_free = False
            self._open[op.op] += 1
            rows = pattern(self.engine.config, self._shape, self._segments)
            a_pass = Pass(op, rows, time)
            self._passes += 1
            self._pending.append(a_pass)
            self._issue()

    # -- passes ------------------------------------------------------------------------------------------------------
    def tile_done(self) -> None:
        """A tile is complete."""
        self._issue()

    def _issue(self) -> None:
        """Work out the rows of passes whose tiles are there."""
        while self._pending and not self._swapping:
            p = self._pending[0]
            hold = 0
            if p.op.swap:
                tile = self.loader.tiles[0]
                if tile.complete is None or tile.complete > self.engine.now:
                    self._read_ahead(p)
                    return
                hold = tile.complete
            self._pending.popleft()
            p.issued = self._feed.run(p.rows, p.start, hold)
            if p.op.swap:
                self._row_macs = self.loader.tiles[0].op.fields["k"] * self.loader.tiles[0].op.fields["n"]
                self._swapping = True
                self.engine.at(p.issued.first, lambda time=p.issued.first: self._swap(time))
            self._under_way(p)

    def _read_ahead(self, p: Pass) -> None:
        """While the first row waits for its tile, the accesses of the first rows are made."""
        if not p.early:
            first = self._feed.first_access(p.start)
            p.early = min(self.timing.WINDOWS_AHEAD, len(p.rows.places))
            self._accesses(p, range(first, first + p.early), p.rows.places[: p.early])

    def _accesses(self, p: Pass, times: Sequence[int], places: Sequence[int]) -> None:
        if len(times):
            stream, ports = Activations(self, p, times, places), self.engine.ports
            self.engine.at(times[0], lambda: ports.add(stream))
            self.engine.at(times[-1] + 1, lambda: ports.remove(stream))

    def _swap(self, time: int) -> None:
        self._swapping = False
        self.loader.swap(time)
        self._issue()
        self.poke()

    def _under_way(self, p: Pass) -> None:
        issued, timing, engine = p.issued, self.timing, self.engine
        assert issued is not None
        self.busy += len(issued.rows)
        self.macs += len(issued.rows) * self._row_macs
        if self.first_row is None:
            self.first_row = issued.first
        self.last_row = issued.last
        self._accesses(p, issued.accesses[p.early :], issued.places[p.early :])
        if p.op.accumulate:
            sums = Sums(self, p)
            engine.at(issued.first + timing.array, lambda: engine.ports.add(sums))
            engine.at(issued.last + timing.array + 1, lambda: engine.ports.remove(sums))
        end = issued.last + timing.array + timing.SUMS_TO_TOKEN
        self._ended.append(end - 1)
        engine.at(end - 1, lambda: self._pass_ends(p, end))
        self.poke()

    def _pass_ends(self, p: Pass, end: int) -> None:
        self.report(p.op, end)
        self.poke()

    # -- ends --------------------------------------------------------------------------------------------------------
    def report(self, op: MicroOp, time: int) -> int:
        """An op ends: one a cycle."""
        while time in self._reports:
            time += 1
        self._reports.add(time)
        self.finish(op, time)
        self._open[op.op] -= 1
        self._reported = max(self._reported, time)
        if self._under is not None:
            self._under[2][op.op] -= 1
        self._sync()
        return time - 1

    def _sync(self) -> None:
        if self._under is None or any(count > 0 for count in self._under[2].values()):
            return
        op, started, _ = self._under
        self._under = None
        end = max(started + self.timing.MXU_SYNC, self._reported + 1 if self._reported > started else 0)
        self._sync_busy = end
        self.finish(op, end)
        self.poke()
