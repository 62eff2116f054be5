"""LD in time."""

from __future__ import annotations

from collections import deque

from sluice.golden.units import MicroOp
from sluice_hw.isa import Op, Unit

from .engine import Engine
from .train import TimedDma, Train

__all__ = ["TimedLoad"]


class TimedLoad(TimedDma):
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

    def from_memory(self, time: int, taken: int) -> tuple[bool, int]:
        """Whether a beat leaves the memory in this cycle, and what is taken then."""
        ports = self.engine.ports
        if ports.dram is not None:
            moves = ports.dram.gives(time)
            if moves:
                ports.dram.given(time)
            return moves, taken
        if not ports.bus.due(time):
            return False, taken
        store = self.engine.units[Unit.ST]
        if store.read_was_last and store.wants_bus(time):
            self.waits["HBM"] += 1
            return False, taken
        store.read_was_last = True
        ports.bus.move()
        return True, taken | ports.banks.bus

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
            if self.engine.ports.dram is not None:
                self.engine.ports.dram.request(False, op.fields["count"], time + self.timing.REQUEST)
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
            if flight < unit.timing.BUS_TO_VMEM:
                moves, taken = unit.from_memory(time, taken)
                if moves:
                    ports.progress = True
                    if ahead is not None:
                        ahead.append(time + unit.timing.BUS_TO_VMEM)
                    else:
                        self._left -= 1
                        self._ready.append(time + unit.timing.BUS_TO_VMEM)
        if ended:
            ports.remove(self)
            unit.moved(self, time)
        return taken
