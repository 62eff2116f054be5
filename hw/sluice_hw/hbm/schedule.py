"""The schedule: at which clock of a unit of work each DRAM command stands, and how close two units may come.

A *unit* is ``2 x bursts`` clocks in which a channel moves 64 bytes of every two: ``bursts`` of 32 bytes from each
pseudo-channel, a quarter of them from one bank of each bank group. Banks 0 and 1 (groups 0 and 1) take turns in the
first half, banks 2 and 3 in the second, so that a bank has half a unit in which its row is closed and the next opened:
units of the same direction follow each other without a gap, whichever rows they want, the same banks included. The
four banks of a unit are a *set*; a pseudo-channel has as many sets as banks in a group. The second pseudo-channel does
the same one clock later: the channel's command buses and the two data buses are full.

Rows are opened and closed at the same clocks by reads and writes (a read could close sooner), and always closed, so
that nothing depends on history. Everything here is derived from a :class:`DramTiming` by comparing pairs of commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property

from .timing import DramTiming

__all__ = ["Command", "Kind", "Schedule"]


class Kind(Enum):
    """Commands, as far as a schedule needs them."""

    ACT = "ACT"
    PRE = "PRE"
    RD = "RD"
    WR = "WR"
    REFSB = "REFSB"


@dataclass(frozen=True)
class Command:
    """A command at a clock of its program; ``bank`` is the bank group and so the bank within the set."""

    at: int
    kind: Kind
    pc: int
    bank: int

    @property
    def is_column(self) -> bool:
        return self.kind in (Kind.RD, Kind.WR)

    @property
    def length(self) -> int:
        """Clocks on its bus: an activation takes two, for its row address."""
        return 2 if self.kind is Kind.ACT else 1


@cache
def spacing(t: DramTiming, first: Kind, second: Kind, *, same_bank: bool, same_group: bool) -> int:
    """Least clocks from ``first`` to ``second`` in one pseudo-channel; 0 where neither minds the other."""
    written = t.wl + t.burst
    if same_bank:
        table = {
            (Kind.ACT, Kind.RD): t.rcd_rd, (Kind.ACT, Kind.WR): t.rcd_wr, (Kind.ACT, Kind.PRE): t.ras,
            (Kind.ACT, Kind.ACT): t.rc, (Kind.PRE, Kind.ACT): t.rp, (Kind.PRE, Kind.REFSB): t.rp,
            (Kind.RD, Kind.PRE): t.rtp, (Kind.WR, Kind.PRE): written + t.wr,
            (Kind.REFSB, Kind.ACT): t.rfc_sb, (Kind.REFSB, Kind.REFSB): t.rfc_sb,
        }  # fmt: skip
        if (first, second) in table:
            return table[first, second]
    return {
        (Kind.ACT, Kind.ACT): t.rrd_l if same_group else t.rrd_s,
        (Kind.ACT, Kind.REFSB): t.rrd_l if same_group else t.rrd_s,
        (Kind.REFSB, Kind.ACT): t.rrefd, (Kind.REFSB, Kind.REFSB): t.rrefd,
        (Kind.RD, Kind.RD): t.ccd_l if same_group else t.ccd_s,
        (Kind.WR, Kind.WR): t.ccd_l if same_group else t.ccd_s,
        (Kind.RD, Kind.WR): t.rtw,
        (Kind.WR, Kind.RD): written + (t.wtr_l if same_group else t.wtr_s),
    }.get((first, second), 0)  # fmt: skip


class Schedule:
    """The programs of a channel, in clocks from the grant of a unit or the start of a refresh.

    Parameters
    ----------
    timing : DramTiming

    Attributes
    ----------
    bank_bursts : int
        Bursts that a unit takes from a bank: half a row or, where rows cannot be turned in half a unit, all of it.
    unit : int
        Clocks of a unit, which is also its bursts of both pseudo-channels together, and its beats of 32 bytes.
    column : int
        Clock of the first RD or WR.

    Raises
    ------
    ValueError
        For timings that do not fit such a schedule.
    """

    def __init__(self, timing: DramTiming) -> None:
        self.timing = timing
        for self.bank_bursts in (timing.row_bursts // 2, timing.row_bursts):
            if self._turns():
                return
        raise ValueError(f"{timing.name!r}: a row cannot be closed and opened in half a unit")

    def _turns(self) -> bool:
        """Place the commands; whether units of the same banks can follow each other at once."""
        t = self.timing
        self.unit = 4 * self.bank_bursts * t.burst
        half = self.unit // 2
        step = max(t.rrd_s, 4)  # two activations of two clocks each between those of one pseudo-channel
        rcd, column = max(t.rcd_rd, t.rcd_wr), 0
        acts = {(b, pc): b // 2 * half + b % 2 * step + 2 * pc for b in range(4) for pc in (0, 1)}
        for (b, pc), at in acts.items():
            column = max(column, at + rcd - (b // 2 * half + b % 2 * t.burst + pc))
        self.column = column
        last = 2 * t.burst * (self.bank_bursts - 1)
        close = column + last + max(t.rtp, t.wl + t.burst + t.wr)
        pres = {(b, pc): close + b // 2 * half + b % 2 * t.burst + pc for b in range(4) for pc in (0, 1)}
        self.rows = tuple(sorted(
            [Command(at, Kind.ACT, pc, b) for (b, pc), at in acts.items()]
            + [Command(at, Kind.PRE, pc, b) for (b, pc), at in pres.items()],
            key=lambda c: c.at,
        ))  # fmt: skip
        if t.faw > half - step:
            return False
        return not any(self.unit in self._forbidden(self.edges(a), self.edges(a), same_set=True) for a in (0, 1))

    def edges(self, write: int) -> tuple[Command, ...]:
        """Commands of a unit that reads or writes, of its columns the first and the last of each bank: those between
        can only meet commands of a unit that starts before this one ends."""
        t, half = self.timing, self.unit // 2
        kind = Kind.WR if write else Kind.RD
        return self.rows + tuple(
            Command(self.column + b // 2 * half + b % 2 * t.burst + 2 * t.burst * i + pc, kind, pc, b)
            for b in range(4) for i in (0, self.bank_bursts - 1) for pc in (0, 1)
        )  # fmt: skip

    @cached_property
    def refresh(self) -> tuple[Command, ...]:
        """REFSB of the four banks of a set, skewed as the halves of a unit are."""
        step, half = self.timing.rrefd, self.unit // 2
        return tuple(
            Command(b // 2 * half + b % 2 * step + pc, Kind.REFSB, pc, b) for b in range(4) for pc in (0, 1)
        )  # fmt: skip

    def _forbidden(self, first: Iterable[Command], second: Iterable[Command], *, same_set: bool) -> set[int]:
        """Distances, from the start of one program to that of another, at which two commands come too close."""
        bad: set[int] = set()
        second = tuple(second)
        for a in first:
            for b in second:
                bus = a.is_column == b.is_column
                ahead, behind = (b.length, a.length) if bus else (0, 0)
                if a.pc == b.pc:
                    near = {"same_bank": same_set and a.bank == b.bank, "same_group": a.bank == b.bank}
                    behind = max(behind, spacing(self.timing, a.kind, b.kind, **near))
                    ahead = max(ahead, spacing(self.timing, b.kind, a.kind, **near))
                zero = a.at - b.at
                bad.update(range(zero - ahead + 1, zero + behind))
        return bad

    def _rule(self, first: Iterable[Command], second: Iterable[Command]) -> list[bool]:
        """Whether a program may start d clocks after another, a unit at least, whatever their sets."""
        bad = self._forbidden(first, second, same_set=False) | self._forbidden(first, second, same_set=True)
        return [d >= self.unit and d not in bad for d in range(self.span + 1)]

    @cached_property
    def span(self) -> int:
        """Clocks from the grant of a unit after which nothing of it is left, its banks closed and ready."""
        return max(c.at for c in self.rows) + self.timing.rp

    @cached_property
    def follow(self) -> dict[tuple[int, int], list[bool]]:
        """``follow[w, v][d]``: whether a unit (``v`` 1: of writes) may be granted d clocks after one that is ``w``,
        whatever their sets. Beyond the list it may."""
        return {
            (first, second): self._rule(self.edges(first), self.edges(second))
            for first in (0, 1) for second in (0, 1)
        }  # fmt: skip

    @cached_property
    def refresh_in_unit(self) -> int:
        """Clock of a unit at which the refresh of another set may start, whatever unit came before and comes next."""
        allowed = {d for rule in self.follow.values() for d, ok in enumerate(rule) if ok} | {self.span + 1}
        inside = self._forbidden(self.rows, self.refresh, same_set=False)
        # The unit before may have been of the set that is refreshed.
        before = self._forbidden(self.rows, self.refresh, same_set=True) | inside
        after = self._forbidden(self.refresh, self.rows, same_set=False)
        for at in range(self.unit - self.refresh[-1].at):
            if at not in inside and not any(d + at in before or d - at in after for d in allowed):
                return at
        raise ValueError(f"{self.timing.name!r}: no clock of a unit suits the refresh of a set")

    @cached_property
    def refresh_alone(self) -> list[bool]:
        """Whether a refresh may start d clocks after the grant of a unit, of the set itself or another, when no other
        unit follows until :attr:`after_refresh`. Beyond the list it may."""
        return self._rule(self.rows, self.refresh)

    @cached_property
    def after_refresh(self) -> int:
        """Clocks from the start of a refresh to the next grant of a unit of any other set."""
        return 1 + max(self._forbidden(self.refresh, self.rows, same_set=False))

    @cached_property
    def own_after_refresh(self) -> int:
        """Clocks from the start of a refresh to the next grant of a unit of the set itself."""
        return 1 + max(self._forbidden(self.refresh, self.rows, same_set=True))

    @cached_property
    def refresh_all(self) -> int:
        """Clocks from the grant of the last unit to REF of the first pseudo-channel, a clock before the second's."""
        return self.span
