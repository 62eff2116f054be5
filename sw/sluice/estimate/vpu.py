"""VPU in time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from sluice.golden.units import MicroOp
from sluice_hw.isa import Op, Residual, Source, Unit

from .engine import Engine, TimedUnit
from .ports import Stream

__all__ = ["TimedVector"]


class Rows(Stream):
    """One VECTOR: rows of the source, of the residual, and results a fixed time later."""

    priority = 3

    def __init__(self, unit: TimedVector, op: MicroOp) -> None:
        timing, config, banks = unit.timing, unit.engine.config, unit.engine.ports.banks
        shape, mode, rescale = unit.shape, unit.mode, unit.rescale
        self.unit, self.op = unit, op
        self._shape, self._mode, self._rescale = shape, mode, rescale
        self.window = shape["n0"] * shape["n1"]
        self.rows = shape["n2"] * shape["n3"]
        self.wide = bool(mode["wide"])
        self.residual = mode["residual"] != Residual.NONE and not self.wide
        cols = config.cols
        self.pieces = -(-4 * mode["cols"] // cols) if self.wide else 1
        self.latency = timing.WIDE if self.wide else timing.RESIDUAL if self.residual else timing.NARROW
        self.room = timing.WIDE_ROWS if self.wide else timing.NARROW_ROWS
        self._from_vmem = mode["source"] == Source.VMEM
        self._reads = self.rows * self.window

        def span(base: int, size: int, *steps: tuple[int, int]) -> tuple[int, int]:
            reach = [(count - 1) * step for count, step in steps]
            return base + sum(min(r, 0) for r in reach), base + sum(max(r, 0) for r in reach) + size - 1

        n2, n3 = shape["n2"], shape["n3"]
        src = span(op.address["src"], 1, (shape["n0"], shape["s0"]), (shape["n1"], shape["s1"]),
                   (n2, shape["s2"]), (n3, shape["s3"]))
        word = config.word_bytes
        self._parts = [banks.regions(*span(
            op.address["dst"], mode["cols"] * (4 if self.wide else 1), (n2, shape["d2"]), (n3, mode["d3"])))]
        self._parts.append(
            banks.regions(src[0], src[1] + word - 1) if self._from_vmem else banks.acc_regions(*src))
        if self.residual:
            self._parts.append(banks.regions(*span(op.address["res"], word, (n2, rescale["r2"]), (n3, rescale["r3"]))))
        self.regions = 0
        self.meets_itself = False
        for part in self._parts:
            self.meets_itself |= bool(self.regions & part)
            self.regions |= part
        self.version = 0
        self._read = self._res = 0  # rows read
        self._written = 0  # pieces written
        self._out = 0  # result rows under way
        self._ready: deque[int] = deque()  # when results under way can be written
        self._held: deque[int] = deque()  # when residual rows that have been matched are taken
        self._since = self._first = 0
        self._masks: tuple[list[int], list[int], list[int]] | None = None

    # -- planned -------------------------------------------------------------------------------------------------
    def plan(self) -> None:
        now = self._since = self.unit.engine.now
        self.version += 1
        version = self.version
        delay = 1 if self.residual and self.window == 1 and not self._read else 0
        self._first = now + delay
        left = self._reads - self._read
        last_read = self._first + left - 1
        if self._ready:
            begins = max(now, self._ready[0])
        else:
            done = self._read % self.window
            begins = self._first + self.window - done - 1 + self.latency
        self._begins = begins
        end = begins + self.rows * self.pieces - self._written - 1
        if left:
            end = max(end, last_read + self.latency + self.pieces - 1)
        elif self._ready:
            end = max(end, self._ready[-1] + self.pieces - 1)
        self._at_plan = (self._read, self._written, list(self._ready))
        self.unit.engine.at(end, lambda: self._done(version))

    def _done(self, version: int) -> None:
        if version == self.version:
            self._end(self.unit.engine.now)

    def _end(self, time: int) -> None:
        self.unit.engine.ports.remove(self)
        self.unit.ended(self, time)

    def sync(self) -> None:
        now = self.unit.engine.now
        self.version += 1
        read0, written0, ready0 = self._at_plan
        reads = min(self._reads, read0 + max(0, now - self._first))
        # Cycles in which results read until now are ready.
        ready = ready0 + [
            self._first + (row + 1) * self.window - 1 - read0 + self.latency
            for row in range(read0 // self.window, reads // self.window)
        ]
        # They leave in order, each piece in a cycle of its own.
        at, written, pieces = 0, written0, self.pieces
        time = self._since
        partial = written % pieces
        while at < len(ready):
            begin = max(time, ready[at])
            need = pieces - partial
            if begin + need > now:
                done = max(0, now - begin)
                written += done
                break
            time, written, partial = begin + need, written + need, 0
            at += 1
        self._ready = deque(ready[at:])
        self._out = len(self._ready)
        self._read = min(reads, (written // pieces + self.room) * self.window)
        while len(self._ready) > self._read // self.window - written // pieces:
            self._ready.pop()
        self._out = len(self._ready)
        self._written = written
        if self.residual:
            self._res = min(self.rows, self._read // self.window + 2)
            self._held = deque()

    # -- stepping ------------------------------------------------------------------------------------------------
    def _work_out(self) -> tuple[list[int], list[int], list[int]]:
        banks, s, m, op = self.unit.engine.ports.banks, self._shape, self._mode, self.op
        source, residual, result = [], [], []
        cols = self.unit.engine.config.cols
        for o3 in range(s["n3"]):
            for o2 in range(s["n2"]):
                at = op.address["src"] + o2 * s["s2"] + o3 * s["s3"]
                for w1 in range(s["n1"]):
                    for w0 in range(s["n0"]):
                        row = at + w0 * s["s0"] + w1 * s["s1"]
                        source.append(banks.narrow(row) if self._from_vmem else banks.half(row))
                if self.residual:
                    r = self._rescale
                    residual.append(banks.narrow(op.address["res"] + o2 * r["r2"] + o3 * r["r3"]))
                at = op.address["dst"] + o2 * s["d2"] + o3 * m["d3"]
                size = m["cols"] * (4 if self.wide else 1)
                for piece in range(self.pieces):
                    result.append(banks.narrow(at + piece * cols, min(cols, size - piece * cols)))
        return source, residual, result

    def step(self, time: int, taken: int) -> int:
        if self._masks is None:
            self._masks = self._work_out()
        source, residual, result = self._masks
        unit, ports = self.unit, self.unit.engine.ports
        out, ahead = self._out, self._res - self._read // self.window
        if self.residual and self._res < self.rows:
            while self._held and self._held[0] <= time:
                self._held.popleft()
            if ahead + len(self._held) < unit.timing.RESIDUAL_ROWS:
                mask = residual[self._res]
                ports.progress = True
                if mask & taken:
                    unit.waits["VMEM"] += 1
                else:
                    self._res += 1
                taken |= mask
        if self._read < self._reads:
            ends = (self._read + 1) % self.window == 0
            if not ends or (out < self.room and (not self.residual or ahead > 0)):
                mask = source[self._read]
                ports.progress = True
                if mask & taken:
                    unit.waits["VMEM" if self._from_vmem else "ACC"] += 1
                else:
                    self._read += 1
                    if ends:
                        self._out += 1
                        self._ready.append(time + self.latency)
                        if self.residual:
                            self._held.append(time + unit.timing.NARROW - unit.timing.BUFFERED)
                if self._from_vmem:
                    taken |= mask
        if self._ready:
            ports.progress = True
            if self._ready[0] <= time:
                mask = result[self._written]
                if mask & taken:
                    unit.waits["VMEM"] += 1
                else:
                    self._written += 1
                    if self._written % self.pieces == 0:
                        self._ready.popleft()
                        self._out -= 1
                        if self._written == self.rows * self.pieces:
                            self._end(time)
                taken |= mask
        return taken


class Parameters(Stream):
    """One LOAD_PARAMS."""

    priority = 5

    def __init__(self, unit: TimedVector, op: MicroOp) -> None:
        config, banks = unit.engine.config, unit.engine.ports.banks
        self.unit, self.op = unit, op
        self._base, self._cols = op.address["vmem"], config.cols
        self.regions = banks.regions(
            self._base, self._base + (unit.timing.PARAM_READS - 1) * config.cols + config.word_bytes - 1)
        self._at = self._since = self.version = 0

    def plan(self) -> None:
        self._since = self.unit.engine.now
        self.version += 1
        version = self.version
        self.unit.engine.at(
            self._since + self.unit.timing.PARAM_READS - self._at - 1, lambda: self._done(version))

    def _done(self, version: int) -> None:
        if version == self.version:
            self._end(self.unit.engine.now)

    def _end(self, time: int) -> None:
        self.unit.engine.ports.remove(self)
        self.unit.loaded(self.op, time)

    def sync(self) -> None:
        self.version += 1
        self._at += self.unit.engine.now - self._since

    def step(self, time: int, taken: int) -> int:
        ports = self.unit.engine.ports
        mask = ports.banks.narrow(self._base + self._at * self._cols)
        ports.progress = True
        if mask & taken:
            self.unit.waits["VMEM"] += 1
        else:
            self._at += 1
            if self._at == self.unit.timing.PARAM_READS:
                self._end(time)
        return taken | mask


class TimedVector(TimedUnit):
    """VPU."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, Unit.VPU)
        self.shape: Mapping[str, int] = {}
        self.mode: Mapping[str, int] = {}
        self.rescale: Mapping[str, int] = {}
        self._running = False
        self._free = 0  # the first cycle in which the unit is quiet
        self._loading = False
        self._params_free = 0
        self._params_full = False
        self.vector_rows = 0

    def setup(self, op: MicroOp, time: int) -> None:
        if op.op is Op.VECTOR_SHAPE:
            self.shape = op.fields
        elif op.op is Op.VECTOR_MODE:
            self.mode = op.fields
        else:
            self.rescale = op.fields

    def may_start(self, op: MicroOp, shown: int) -> int | None:
        if op.op is Op.LOAD_PARAMS:
            return None if self._loading or self._params_full else max(shown, self._params_free)
        return None if self._running or self._loading else max(shown, self._free)

    def start(self, op: MicroOp, time: int) -> None:
        engine = self.engine
        if op.op is Op.LOAD_PARAMS:
            self._loading = True
            stream = Parameters(self, op)
            engine.at(time + 1, lambda: engine.ports.add(stream))
        elif op.op is Op.SYNC:
            self.finish(op, time)
        else:
            self.needs(op, VECTOR_SHAPE=self.shape, VECTOR_MODE=self.mode)
            if self.mode["residual"] != Residual.NONE and not self.mode["wide"]:
                self.needs(op, VECTOR_RESIDUAL=self.rescale)
            self._running = True
            if self._params_full:
                self._params_full, self._params_free = False, time + 1
            rows = Rows(self, op)
            self.vector_rows += rows.rows
            engine.at(time + 1, lambda: engine.ports.add(rows))

    def loaded(self, op: MicroOp, last: int) -> None:
        """The parameters' last read is granted in cycle ``last``."""
        end = last + self.timing.PARAM_TO_TOKEN
        self.busy += self.timing.PARAM_READS
        self._free = max(self._free, end + 1)
        self._loading, self._params_full = False, True
        self.finish(op, end)
        self.poke()

    def ended(self, rows: Rows, time: int) -> None:
        """A VECTOR's last result is written in cycle ``time``."""
        self._running = False
        self._free = max(self._free, time + 1)
        self.busy += max(rows.rows * rows.window, rows.rows * rows.pieces)
        self.finish(rows.op, time)
        self.poke()
