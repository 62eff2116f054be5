"""LD and ST in time: trains between HBM and VMEM."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import lru_cache

from sluice.golden.units import MicroOp
from sluice_hw.isa import Op, Unit

from .engine import Engine, TimedUnit
from .ports import Stream

__all__ = ["TimedLoad", "TimedStore"]


@lru_cache(maxsize=4096)
def _lines(offset: int, rows: int, row_bytes: int, pitch: int, beat: int) -> int:
    """Lines, counted for each row, that rows touch; ``offset`` is the first one's in its line."""
    if pitch == row_bytes:
        rows, row_bytes = 1, rows * row_bytes
    if pitch % beat == 0:
        return rows * -(-(offset + row_bytes) // beat)
    return sum(-(-((offset + i * pitch) % beat + row_bytes) // beat) for i in range(rows))


class Train(Stream):
    """A train of either direction.

    Attributes
    ----------
    moves
        Lines of VMEM that it touches, one a cycle.
    beats
        Beats that rows fill, at least in part.
    total
        Beats that move.
    """

    def __init__(self, unit: _TimedDma, op: MicroOp, start: int) -> None:
        config, shape = unit.engine.config, unit.shape
        self.unit, self.op, self.started = unit, op, start
        self._vmem = op.address["vmem"]
        self._rows, self._row_bytes, self._pitch = shape["rows"], shape["row_bytes"], shape["pitch"]
        beat = config.hbm_beat_bytes
        self.moves = _lines(self._vmem % beat, self._rows, self._row_bytes, self._pitch, beat)
        self.beats = -(-self._rows * self._row_bytes // beat)
        self.total = op.fields["count"] * config.slice_beats
        ports = unit.engine.ports
        self.meets_itself = not ports.bus.full_rate
        banks = ports.banks
        span = (self._rows - 1) * self._pitch
        self.regions = banks.regions(
            self._vmem + min(span, 0), self._vmem + max(span, 0) + self._row_bytes - 1) | banks.bus_region
        self._masks: list[int] = []
        self.version = 0

    def mask(self, index: int) -> int:
        """Banks of a move."""
        if not self._masks:
            banks, beat = self.unit.engine.ports.banks, self.unit.engine.config.hbm_beat_bytes
            rows, row_bytes = self._rows, self._row_bytes
            if self._pitch == row_bytes:
                rows, row_bytes = 1, rows * row_bytes
            for row in range(rows):
                at = self._vmem + row * self._pitch
                end = at + row_bytes
                while at < end:
                    size = min(end - at, beat - at % beat)
                    self._masks.append(banks.wide(at, size))
                    at += size
        return self._masks[index]


class _TimedDma(TimedUnit):
    shape: Mapping[str, int] = {}
    train_op: Op

    def __init__(self, engine: Engine, unit: Unit) -> None:
        super().__init__(engine, unit)
        self._settled = 0  # the first cycle in which a train may start with its shape
        self.slices = 0

    def setup(self, op: MicroOp, time: int) -> None:
        self.shape = op.fields
        self._settled = time + self.timing.SHAPE_TO_TRAIN

    def checked(self, op: MicroOp, shown: int) -> int:
        """When a train's check is through."""
        return max(shown + self.timing.TRAIN_CHECK, self._settled) if op.op is self.train_op else shown


class TimedLoad(_TimedDma):
    """LD. Trains follow each other line by line; the memory's latency hides behind earlier ones."""

    train_op = Op.HBM_READ_SLICE

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, Unit.LD)
        self._waiting: deque[Train | tuple[MicroOp, int]] = deque()
        self._loaded: deque[int] = deque()  # when trains left the queue of trains
        self._started = 0
        self._free = 0  # the first cycle in which the next train's first line can be written
        self._moving = False
        self.ahead: deque[int] = deque()  # when beats of the next train that have left the memory can be written

    def more(self, time: int) -> bool:
        """Whether a beat of the next train could leave the memory."""
        head = self._waiting[0] if self._waiting else None
        return isinstance(head, LoadTrain) and head.due <= time and len(self.ahead) < head.total

    def may_start(self, op: MicroOp, shown: int) -> int | None:
        time = self.checked(op, shown)
        if self._started >= self.timing.trains:
            known = self._started - self.timing.trains
            if known >= len(self._loaded):
                return None
            time = max(time, self._loaded[known] + 1)
        return time

    def start(self, op: MicroOp, time: int) -> None:
        self._started += 1
        if op.op is self.train_op:
            self.needs(op, DMA_SHAPE=self.shape)
        self._waiting.append(LoadTrain(self, op, time) if op.op is self.train_op else (op, time))
        self._next()

    def _next(self) -> None:
        """Begin the next train, when the one before is through."""
        timing, now = self.timing, self.engine.now
        while self._waiting and not self._moving:
            head = self._waiting.popleft()
            if isinstance(head, tuple):
                op, started = head
                end = max(started + timing.LOAD_SYNC, self._free)
                self._loaded.append(end - 1)
                self._free = end + timing.LOAD_SYNC
                self.finish(op, end)
            else:
                self._moving = True
                self.slices += head.op.fields["count"]
                self._loaded.append(max(head.started + 1, self._free - timing.BEAT_TO_VMEM))
                begin = max(head.started + timing.load_fill, self._free, now)
                if not self.engine.ports.bus.full_rate:
                    begin = max(begin - timing.BUS_TO_VMEM, now)  # its beats come one by one
                if self.ahead:
                    head.fetched(self.ahead)
                    self.ahead = deque()
                self.engine.at(begin, lambda train=head: self.engine.ports.add(train))
        self.poke()

    def moved(self, train: Train, last: int) -> None:
        """A train's last beat, also the dropped ones, was taken for a write in cycle ``last``."""
        self._moving = False
        self._free = last + 1
        self.busy += train.total
        self._next()


class LoadTrain(Train):
    """A train that loads."""

    priority = 6

    def __init__(self, unit: TimedLoad, op: MicroOp, start: int) -> None:
        super().__init__(unit, op, start)
        self._at = 0  # moves made, and beats dropped behind them
        self._since = 0
        # Beats that moves use up. One that the last line only begins is dropped behind it like those nobody wants.
        beat, size = unit.engine.config.hbm_beat_bytes, self._rows * self._row_bytes
        end = self._vmem + (self._rows - 1) * self._pitch + self._row_bytes
        last = min(size if self._pitch == self._row_bytes else self._row_bytes, (end - 1) % beat + 1)
        self._used = size // beat + ((size - last) % beat + last < beat)
        self._size = self.moves + self.total - self._used
        self._finished = False
        self._ready: deque[int] = deque()  # when beats that have left the memory can be written
        self._left = self.total  # beats in the memory
        self.due = start + unit.timing.load_fill - unit.timing.BUS_TO_VMEM  # of the first beat at the bus

    def plan(self) -> None:
        self._since = self.unit.engine.now
        self.version += 1
        version = self.version
        first = self._since - self._at
        if self._at < self.moves:
            self.unit.engine.at(first + self.moves - 1, lambda: self._written(version))
        self.unit.engine.at(first + self._size - 1, lambda: self._through(version))

    def _written(self, version: int) -> None:
        if version == self.version:
            self._finish(self.unit.engine.now)

    def _finish(self, time: int) -> None:
        if not self._finished:  # a plan's last move may be made again, by a step of the same cycle
            self._finished = True
            self.unit.finish(self.op, time)

    def _through(self, version: int) -> None:
        if version == self.version:
            self.unit.engine.ports.remove(self)
            self.unit.moved(self, self.unit.engine.now)

    def sync(self) -> None:
        now = self.unit.engine.now
        self.version += 1
        self._at += now - self._since
        self._ready.clear()
        self._left = self.total - self._beats_used()
        self._flow(now)

    def _flow(self, now: int) -> None:
        """What undisturbed movement has on its way."""
        while self._left and len(self._ready) < self.unit.timing.BUS_TO_VMEM:
            self._ready.append(now + len(self._ready))
            self._left -= 1

    def _beats_used(self) -> int:
        if self._at >= self.moves:
            return self._used + self._at - self.moves
        return self._at * self._used // self.moves

    def fetched(self, ready: deque[int]) -> None:
        """Beats that left the memory while the train before was written."""
        self._ready, self._left = ready, self.total - len(ready)

    def step(self, time: int, taken: int) -> int:
        unit, ports = self.unit, self.unit.engine.ports
        if not self._at and not self._ready and self._left == self.total and ports.bus.full_rate:
            self._flow(time)
        ended = False
        if not self._ready or self._ready[0] > time:
            pass
        else:
            mask = self.mask(self._at) if self._at < self.moves else 0
            ports.progress = True
            if mask & taken:
                unit.waits["VMEM"] += 1
            else:
                used = self._beats_used()
                self._at += 1
                if self._beats_used() > used:
                    self._ready.popleft()
                if self._at == self.moves:
                    self._finish(time)
                ended = self._at == self._size
            taken |= mask
        ahead = unit.ahead if not self._left else None
        if self._left or (ahead is not None and unit.more(time)):
            flight = len(self._ready) + (len(ahead) if ahead is not None else 0)
            if flight < unit.timing.BUS_TO_VMEM and ports.bus.due(time):
                store = unit.engine.units[Unit.ST]
                if store.read_was_last and store.wants_bus(time):
                    unit.waits["HBM"] += 1
                else:
                    store.read_was_last = True
                    ports.bus.move()
                    ports.progress = True
                    taken |= ports.banks.bus
                    if ahead is not None:
                        ahead.append(time + unit.timing.BUS_TO_VMEM)
                    else:
                        self._left -= 1
                        self._ready.append(time + unit.timing.BUS_TO_VMEM)
        if ended:
            ports.remove(self)
            unit.moved(self, time)
        return taken


class TimedStore(_TimedDma):
    """ST. A train may start when the one before it has been read."""

    train_op = Op.HBM_WRITE_SLICE

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, Unit.ST)
        self._reading: StoreTrain | None = None
        self._read_end = -1
        self.sending: deque[StoreTrain | tuple[MicroOp, int]] = deque()
        self._ended: list[int] = []
        self._started = 0
        self.sent = -1  # cycle of the last beat
        self.read_was_last = False

    def wants_bus(self, time: int) -> bool:
        """Whether a beat is ready to go to memory."""
        head = self.sending[0] if self.sending else None
        return isinstance(head, StoreTrain) and head.wants(time)

    def may_start(self, op: MicroOp, shown: int) -> int | None:
        time = max(self.checked(op, shown), self._read_end)
        if self._reading is not None:
            return None
        if self._started >= self.timing.UNFINISHED:
            known = self._started - self.timing.UNFINISHED
            if known >= len(self._ended):
                return None
            time = max(time, self._ended[known] + 1)
        return time

    def start(self, op: MicroOp, time: int) -> None:
        self._started += 1
        if op.op is Op.SYNC:
            self.sending.append((op, time))
            self._answer()
            return
        self.needs(op, DMA_SHAPE=self.shape)
        train = StoreTrain(self, op, time)
        self._reading = train
        self.sending.append(train)
        self.slices += op.fields["count"]
        self.engine.at(time + 1, lambda: self.engine.ports.add(train))

    def read(self, train: StoreTrain, last: int) -> None:
        """The train's last line is read in cycle ``last``."""
        if self._reading is train:
            self._reading, self._read_end = None, last
            self.poke()

    def through(self, train: StoreTrain, last: int) -> None:
        """The train's last beat goes to memory in cycle ``last``."""
        assert self.sending[0] is train
        self.sending.popleft()
        self.sent = last
        self.busy += train.total
        end = max(last + self.timing.ANSWER, self._last_end() + 1)
        self._ended.append(end)
        self.finish(train.op, end)
        self._answer()
        if self.sending and isinstance(self.sending[0], StoreTrain):
            self.sending[0].first(last + 1)
        self.poke()

    def _last_end(self) -> int:
        return self._ended[-1] if self._ended else -1

    def _answer(self) -> None:
        while self.sending and isinstance(self.sending[0], tuple):
            op, started = self.sending.popleft()
            end = max(started + 1, self._last_end() + 1)
            self._ended.append(end)
            self.finish(op, end)


class StoreTrain(Train):
    """A train that stores: reads lines, and sends beats a fixed time later, when the trains before are through."""

    priority = 7

    def __init__(self, unit: TimedStore, op: MicroOp, start: int) -> None:
        super().__init__(unit, op, start)
        self._read = self._sent = 0
        self._ready: deque[int] = deque()  # when beats can go
        self._since = 0
        self._last: int | None = None
        self._begin = 0  # the first cycle in which the bus is this train's
        self._per_beat = self.moves / self.beats

    def first(self, time: int) -> None:
        """The trains before it are through."""
        self._begin = time
        if not self.stepping and self.version:
            self.sync()
            self.plan()

    def wants(self, time: int) -> bool:
        """Whether a beat is ready to go to memory."""
        return bool(self._ready) and self._ready[0] <= time and time >= self._begin

    def _is_first(self) -> bool:
        return self.unit.sending[0] is self

    def plan(self) -> None:
        engine, timing = self.unit.engine, self.unit.timing
        self._since = engine.now
        self.version += 1
        version = self.version
        last_read = self._since + self.moves - self._read - 1
        if self._read < self.moves:
            engine.at(last_read, lambda: self._was_read(version))
        if self._is_first():
            ready = last_read + timing.READ_TO_BEAT + self.total - self.beats
            last = max(ready, max(self._begin, self._since) + self.total - self._sent - 1)
            self._last = last
            engine.at(last, lambda: self._through(version))

    def _was_read(self, version: int) -> None:
        if version == self.version:
            self.unit.read(self, self.unit.engine.now)

    def _through(self, version: int) -> None:
        if version == self.version:
            self.unit.engine.ports.remove(self)
            self.unit.through(self, self.unit.engine.now)

    def sync(self) -> None:
        now, timing = self.unit.engine.now, self.unit.timing
        self.version += 1
        reads = min(self.moves, self._read + now - self._since)
        if self._last is not None:
            self._sent = max(self._sent, self.total - (self._last - now + 1))
            self._sent = min(self._sent, self.total)
        before = self._read
        self._read = reads
        if before < self.moves <= reads:
            self.unit.engine.at(now, lambda: self.unit.read(self, now))
        # Beats read and not sent.
        have = self._beats_of(reads)
        self._ready = deque(
            now - (have - beat) + timing.READ_TO_BEAT if beat < self.beats else now
            for beat in range(self._sent, have))

    def _beats_of(self, reads: int) -> int:
        return self.total if reads >= self.moves else int(reads / self._per_beat)

    def step(self, time: int, taken: int) -> int:
        unit, ports = self.unit, self.unit.engine.ports
        if self._ready and self._is_first() and self._ready[0] <= time and time >= self._begin:
            if taken & ports.banks.bus or not ports.bus.due(time):
                unit.waits["HBM"] += 1
            else:
                self._ready.popleft()
                self._sent += 1
                ports.progress = True
                unit.read_was_last = False
                ports.bus.move()
                taken |= ports.banks.bus
        if self._read < self.moves:
            ahead = self._read - int(self._sent * self._per_beat)
            if ahead < unit.timing.CHUNKS + 1:
                mask = self.mask(self._read)
                if mask & taken:
                    unit.waits["VMEM"] += 1
                    ports.progress = True
                else:
                    had = self._beats_of(self._read)
                    self._read += 1
                    ports.progress = True
                    have = self._beats_of(self._read)
                    ready = time + unit.timing.READ_TO_BEAT
                    self._ready.extend(ready + max(0, b - self.beats + 1) for b in range(had, have))
                    if self._read == self.moves:
                        unit.read(self, time)
                taken |= mask
        if self._sent == self.total:
            ports.remove(self)
            unit.through(self, time)
        return taken
