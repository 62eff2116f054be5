"""The sequencer in time: when each word executes, and each op reaches its queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluice.golden.sequencer import Sequencer
from sluice_hw.isa import Op, Unit

from .engine import Engine, TimedUnit
from .errors import EstimateError
from .timing import Timing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.golden.units import UnitModel

__all__ = ["Issue"]


class Issue(Sequencer):
    """Executes a program's words at their time. What they mean is golden's business.

    Attributes
    ----------
    time
        The cycle of the word at ``pc``.
    halted_at
        The cycle of the HALT, None before it.
    blocked
        Cycles that words waited for room in a queue, by unit.
    """

    def __init__(self, engine: Engine, words: Sequence[int], params: Sequence[int], entry: int, limit: int) -> None:
        units: Mapping[Unit, UnitModel] = {}
        super().__init__(engine.config, words, params, units, entry)
        self._engine, self._limit = engine, limit
        self.time = Timing.FETCH
        self.halted_at: int | None = None
        self.blocked = dict.fromkeys(Unit, 0)
        self.jumps = self.words = 0
        self._waits_for: TimedUnit | None = None
        engine.issue = self
        engine.at(0, self._go)

    def resume(self, unit: TimedUnit) -> None:
        """An op left the queue of ``unit``."""
        if self._waits_for is unit:
            self._waits_for = None
            self._engine.at(self._engine.now, self._go)

    def _go(self) -> None:
        while self._waits_for is None and self.halted_at is None:
            word = self._fetch()
            if self._loops and self._loops[-1].end == self.pc and word.op is not Op.END:
                raise self._nesting(f"{word.op.name} stands where the LOOP at {self._loops[-1].start} ends", 0)
            if word.unit is not None:
                unit = self._engine.units[word.unit]
                pushed = unit.push(self._resolve(word), self.time)
                if pushed is None:
                    self._waits_for = unit
                    return
                self.blocked[word.unit] += pushed - self.time
                self.time = pushed + 1
                self.pc += 1
            elif word.op is Op.HALT:
                self.halted_at = self.time
                self.halt_code = word.fields["code"]
            elif word.op is Op.ADDR:
                self._addr(word.fields)
                self.pc += 1
                self.time += 1 + self._products(word.fields)
            else:
                before = self.pc
                (self._loop if word.op is Op.LOOP else self._end)(word.fields)
                jumps = self.pc != before + 1
                self.jumps += jumps
                self.time += Timing.JUMP if jumps else 1
            self.words += 1
            if self.words > self._limit:
                raise EstimateError(f"the program executes more than {self._limit} words")

    def _products(self, fields: Mapping[str, int]) -> int:
        """Cycles that an ADDR inside loops holds up the next word."""
        if fields["ring"]:
            return 0
        return Timing.ADDRESS_PRODUCT * sum(
            1 for loop in self._loops if loop.iteration and fields[f"stride{loop.level}"])
