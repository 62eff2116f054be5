"""What loads and stores have in common in time: trains of slices, and rows in VMEM line by line."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from sluice.golden.units import MicroOp
from sluice_hw.isa import Op, Unit

from .engine import Engine, TimedUnit
from .ports import Stream

__all__ = ["TimedDma", "Train"]


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

    def __init__(self, unit: TimedDma, op: MicroOp, start: int) -> None:
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


class TimedDma(TimedUnit):
    """A unit that moves trains."""

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
