"""Units of the golden machine: in-order queues, tokens, and when an op starts and ends.

A unit takes ops from the head of its queue and carries each through *stages*; the last one finishes it and gives its
tokens. Between the stages other units may run, so what a program does not order with tokens can happen either way.
What the ops compute is in the subclasses (``dma``, ``mxu``, ``vpu``).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sluice_hw import isa
from sluice_hw.isa import Error, Op, Unit

from .faults import Fault, UndefinedError, UnitFault, UnwrittenReadError

if TYPE_CHECKING:
    from .machine import GoldenMachine

__all__ = ["Active", "MicroOp", "UnitModel"]


@dataclass(frozen=True)
class MicroOp:
    """An op as it stands in a queue: addresses and predicates resolved."""

    op: Op
    pc: int
    fields: Mapping[str, int]
    address: Mapping[str, int]
    waits: tuple[Unit, ...] = ()
    signals: tuple[Unit, ...] = ()
    accumulate: bool = False
    swap: bool = False


@dataclass
class Active:
    """An op under way.

    Attributes
    ----------
    stage
        Stages it has passed.
    early
        Per effect, whether this schedule lets it happen as early as the rules allow, rather than as late.
    data
        What the unit keeps for it: setup copied at the start, operands read.
    """

    uop: MicroOp
    stage: int = 0
    early: tuple[bool, bool] = (False, False)
    data: dict[str, Any] = field(default_factory=dict)


class UnitModel:
    """Base of all units.

    Parameters
    ----------
    machine
        Owner of memories, tokens and counters.
    unit
        Which one this is.

    Attributes
    ----------
    queue
        Ops not started.
    flight
        Ops started and not finished, oldest first.
    """

    #: Names of the methods that carry an op through its stages.
    STAGES: Mapping[Op, tuple[str, ...]] = {}

    def __init__(self, machine: GoldenMachine, unit: Unit) -> None:
        self.machine, self.unit = machine, unit
        self.depth = machine.config.queue_depth(unit.name.lower())
        self.queue: deque[MicroOp] = deque()
        self.flight: list[Active] = []

    @property
    def idle(self) -> bool:
        return not self.queue and not self.flight

    # -- what a subclass says ------------------------------------------------------------------------------------
    def blocked(self, uop: MicroOp) -> str | None:
        """What ``uop`` waits for beside tokens; None when nothing."""
        return None

    def setup(self, uop: MicroOp) -> None:
        """Take a setup word."""
        raise NotImplementedError(uop.op.name)

    def begin(self, active: Active) -> None:
        """Start an op (its tokens are taken)."""

    def sync(self, active: Active) -> None:
        """The only stage of SYNC."""

    # -- scheduling ----------------------------------------------------------------------------------------------
    def waiting(self) -> str | None:
        """What the op at the head of the queue waits for; None when it can start."""
        uop = self.queue[0]
        missing = [u.name for u in uop.waits if not self.machine.tokens[u, self.unit]]
        if missing:
            return "a token from " + " and ".join(missing)
        return self.blocked(uop)

    def step(self, rng: random.Random | None) -> bool:
        """Do one thing, chosen by ``rng`` or else starting before finishing; false when there is nothing to do."""
        if not self.queue and not self.flight:
            return False
        can_take = bool(self.queue) and not self.machine.stopped and self.waiting() is None
        if can_take and rng is None:
            self._take(rng)
            return True
        ready = [i for i in range(len(self.flight)) if self._may_advance(i)]
        if not ready and not can_take:
            return False
        if rng is None:
            self._advance(self.flight[ready[0]])
        else:
            choice = rng.randrange(len(ready) + can_take)
            if choice == len(ready):
                self._take(rng)
            else:
                self._advance(self.flight[ready[choice]])
        return True

    def _may_advance(self, index: int) -> bool:
        active = self.flight[index]
        if active.uop.op is Op.SYNC:
            return index == 0
        # Ops of a kind pass each stage in order; a SYNC behind them waits for all.
        return all(a.stage > active.stage for a in self.flight[:index] if a.uop.op is active.uop.op)

    def _take(self, rng: random.Random | None) -> None:
        uop = self.queue.popleft()
        if not isa.OPS[uop.op].dispatched or "wait_ld" not in uop.fields:
            self._guard(uop, self.setup, uop)
            return
        for u in uop.waits:
            self.machine.tokens[u, self.unit] -= 1
        active = Active(uop)
        if rng is not None:
            active.early = (rng.random() < 0.5, rng.random() < 0.5)
        self.flight.append(active)
        if uop.op is not Op.SYNC and not self._guard(uop, self.begin, active):
            self.flight.remove(active)

    def _advance(self, active: Active) -> None:
        stages = ("sync",) if active.uop.op is Op.SYNC else self.STAGES[active.uop.op]
        if not self._guard(active.uop, getattr(self, stages[active.stage]), active):
            self.flight.remove(active)
            return
        active.stage += 1
        if active.stage == len(stages):
            self.flight.remove(active)
            self.machine.counters.ops += 1
            for u in active.uop.signals:
                self._guard(active.uop, self._give, u)

    def _give(self, to: Unit) -> None:
        tokens, top = self.machine.tokens, self.machine.config.token_max
        if tokens[self.unit, to] >= top:
            reason = f"{self.unit.name} gives {to.name} a token beyond the {top} that a counter holds"
            raise UnitFault(Error.TOKEN_OVERFLOW, int(to), reason)
        tokens[self.unit, to] += 1
        self.machine.counters.tokens += 1

    def _guard(self, uop: MicroOp, action: Callable[[Any], None], argument: Any) -> bool:
        """Run a part of ``uop``; false when it faulted. Errors of programs get the op's name and place."""
        try:
            action(argument)
        except UnitFault as f:
            name = self.unit.name.lower()
            self.machine.stop(Fault(f.code, uop.pc, f.field, f.info & 0xFFFFFFFF, name, f"{uop.op.name}: {f.reason}"))
            return False
        except UnwrittenReadError as error:
            raise UnwrittenReadError(error.memory, error.address, uop.op.name, uop.pc) from None
        except UndefinedError as error:
            raise UndefinedError(f"{uop.op.name} at pc {uop.pc}: {error}") from None
        return True
