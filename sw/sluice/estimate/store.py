"""ST in time."""

from __future__ import annotations

from collections import deque
from functools import partial

from sluice.golden.units import MicroOp
from sluice_hw.isa import Op, Unit

from .engine import Engine
from .train import TimedDma, Train

__all__ = ["TimedStore"]


class TimedStore(TimedDma):
    """ST. A train may start when the one before it has been read."""

    train_op = Op.HBM_WRITE_SLICE

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, Unit.ST)
        self._reading: StoreTrain | None = None
        self._read_end = -1
        self.sending: deque[StoreTrain] = deque()
        self._open: deque[StoreTrain | tuple[MicroOp, int]] = deque()  # not answered
        self._ended: list[int] = []
        self._started = 0
        self.sent = -1  # cycle of the last beat
        self.read_was_last = False

    def wants_bus(self, time: int) -> bool:
        """Whether a beat is ready to go to memory."""
        return bool(self.sending) and self.sending[0].wants(time)

    def to_memory(self, time: int, taken: int) -> bool:
        """Whether a beat that is ready goes to memory in this cycle."""
        ports = self.engine.ports
        if ports.dram is not None:
            if not ports.dram.takes(time):
                return False
            ports.dram.taken(time)
            return True
        if taken & ports.banks.bus or not ports.bus.due(time):
            return False
        self.read_was_last = False
        ports.bus.move()
        return True

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
            self._open.append((op, time))
            self._answer()
            return
        self.needs(op, DMA_SHAPE=self.shape)
        train = StoreTrain(self, op, time)
        self._reading = train
        self.sending.append(train)
        self._open.append(train)
        self.slices += op.fields["count"]
        if self.engine.ports.dram is not None:
            asked = time + self.timing.REQUEST
            self.engine.ports.dram.request(True, op.fields["count"], asked, partial(self._written, train))
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
        if self.engine.ports.dram is None:
            self._answered(train, last + self.timing.ANSWER)
        if self.sending:
            self.sending[0].first(last + 1)
        self.poke()

    def _written(self, train: StoreTrain, done: int) -> None:
        """DRAM has the train's last beat in cycle ``done``."""
        self._answered(train, done + self.timing.ANSWER)

    def _answered(self, train: StoreTrain, end: int) -> None:
        """The memory answers for a train in cycle ``end``, not earlier than for those before it."""
        train.answer = end
        self._answer()
        self.poke()

    def _last_end(self) -> int:
        return self._ended[-1] if self._ended else -1

    def _answer(self) -> None:
        while self._open:
            head = self._open[0]
            if isinstance(head, StoreTrain):
                if head.answer is None:
                    return
                op, end = head.op, max(head.answer, self._last_end() + 1)
            else:
                op, end = head[0], max(head[1] + 1, self._last_end() + 1)
            self._open.popleft()
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
        self.answer: int | None = None  # the cycle of the memory's answer

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
            if unit.to_memory(time, taken):
                self._ready.popleft()
                self._sent += 1
                ports.progress = True
                taken |= ports.banks.bus
            else:
                unit.waits["HBM"] += 1
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
