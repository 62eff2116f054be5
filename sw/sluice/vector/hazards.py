"""Tokens: which op waits for which, found from what they read and write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sluice_hw.isa import Unit

from .nodes import Loop, Word

__all__ = ["Access", "Hazards", "Span"]


class Span(NamedTuple):
    """Part of a memory, from ``lo`` up to ``hi``; of each ``pitch`` only the first ``width``, where there is one."""

    memory: str
    lo: int
    hi: int
    pitch: int = 0
    width: int = 0

    def meets(self, other: Span) -> bool:
        """Whether they share a place (of two pitches: may)."""
        if self.memory != other.memory or self.lo >= other.hi or other.lo >= self.hi:
            return False
        if not self.pitch or self.pitch != other.pitch:
            return True
        ahead = (other.lo - self.lo) % self.pitch
        return ahead < self.width or ahead + other.width > self.pitch


@dataclass
class Access:
    """What a piece of work of one unit reads and writes.

    Attributes
    ----------
    waiter, signaller
        The op that must wait before it, and the op whose end is its end.
    enclosing
        Loops of its own around both: only their first (last) iteration exchanges tokens.
    """

    waiter: Word
    signaller: Word
    reads: list[Span] = field(default_factory=list)
    writes: list[Span] = field(default_factory=list)
    wait_loops: frozenset[Loop] = frozenset()
    signal_loops: frozenset[Loop] = frozenset()


def _meet(a: list[Span], b: list[Span]) -> bool:
    return any(one.meets(other) for one in a for other in b)


class Hazards:
    """Gives ops their tokens, in program order.

    Units work in order: who has waited for an op of another unit has waited for all that stood before it there.
    """

    def __init__(self) -> None:
        self._done: dict[Unit, list[Access]] = {unit: [] for unit in Unit}
        #: Ops of a unit (from) that another (to) knows to have ended.
        self._seen: dict[tuple[Unit, Unit], int] = {(a, b): 0 for a in Unit for b in Unit}

    def add(self, access: Access) -> None:
        """Find what ``access`` must wait for, and exchange tokens."""
        mine = access.waiter.unit
        for unit, past in self._done.items():
            if unit is mine:
                continue
            for index in range(len(past) - 1, self._seen[unit, mine] - 1, -1):
                other = past[index]
                if _meet(other.writes, access.reads + access.writes) or _meet(other.reads, access.writes):
                    if unit in access.waiter.waits or mine in other.signaller.signals:
                        raise AssertionError("an op exchanges one token with a unit")
                    access.waiter.waits[unit] = access.wait_loops
                    other.signaller.signals[mine] = other.signal_loops
                    while index + 1 < len(past) and past[index + 1].signaller is other.signaller:
                        index += 1
                    self._seen[unit, mine] = index + 1
                    break
        self._done[mine].append(access)
