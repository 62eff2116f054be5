"""Hardware loops: which levels are open, in which iteration they are, and the rules of their nesting."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from . import isa

__all__ = ["COUNT_BITS", "LoopLevels"]

_LEVELS = isa.LOOP_LEVELS
#: A count from a parameter register has 32 bits.
COUNT_BITS = 32


class LoopLevels(wiring.Component):
    """The loop levels of the sequencer.

    ``loop`` and ``end`` act only when their verdict is good, and not both in a cycle.

    Members
    -------
    clear : In(1)
        Close all loops.
    pc : In(17)
        Address of the word that executes.
    level : In(3)
        Level that this word names.
    loop : In(1)
        The word is a LOOP of ``count`` iterations, not 0, whose END stands at ``end_pc``.
    end : In(1)
        The word is an END.
    bad_level, bad_end : Out(1)
        Verdict on a LOOP: its level does not lie inwards of all open ones; its END does not lie behind it and before
        the END of the loop around it.
    bad_close : Out(1)
        Verdict on an END: the level is not that of the innermost open loop, or the loop ends elsewhere.
    at_end : Out(1)
        The innermost open loop ends at this word.
    leaves : Out(1)
        An END here would be the loop's last.
    again : Out(17)
        Where the innermost loop's body begins.
    open, first, last : Out(6)
        Levels that are open; in their first, in their last iteration.
    done, total : array of Out(32)
        Iterations finished and asked for.
    ends : array of Out(16)
        Where the open loops end.
    """

    def __init__(self) -> None:
        super().__init__({
            "clear": In(1),
            "pc": In(17),
            "level": In(3),
            "loop": In(1),
            "count": In(COUNT_BITS),
            "end_pc": In(16),
            "end": In(1),
            "bad_level": Out(1),
            "bad_end": Out(1),
            "bad_close": Out(1),
            "at_end": Out(1),
            "leaves": Out(1),
            "again": Out(17),
            "open": Out(_LEVELS),
            "first": Out(_LEVELS),
            "last": Out(_LEVELS),
            "done": Out(COUNT_BITS).array(_LEVELS),
            "total": Out(COUNT_BITS).array(_LEVELS),
            "ends": Out(16).array(_LEVELS),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        begin = Signal(data.ArrayLayout(17, _LEVELS))

        inner = Signal(range(_LEVELS))
        inner_end = Signal(16)
        inner_last = Signal()
        for i in range(_LEVELS):
            with m.If(self.open[i]):  # the last assignment wins: the innermost open level
                m.d.comb += [
                    inner.eq(i), inner_end.eq(self.ends[i]), inner_last.eq(self.last[i]), self.again.eq(begin[i]),
                ]
        any_open = self.open.any()
        m.d.comb += [
            self.at_end.eq(any_open & (self.pc == inner_end)),
            self.leaves.eq(inner_last),
            self.bad_level.eq(any_open & (self.level <= inner)),
            self.bad_end.eq((self.end_pc <= self.pc) | (any_open & (self.end_pc >= inner_end))),
            self.bad_close.eq(~self.at_end | (self.level != inner)),
        ]

        for i in range(_LEVELS):
            with m.If(self.loop & (self.level == i)):
                m.d.sync += [
                    self.open[i].eq(1),
                    self.first[i].eq(1),
                    self.last[i].eq(self.count == 1),
                    self.done[i].eq(0),
                    self.total[i].eq(self.count),
                    begin[i].eq(self.pc + 1),
                    self.ends[i].eq(self.end_pc),
                ]
            with m.Elif(self.end & (self.level == i)):
                with m.If(self.last[i]):
                    m.d.sync += [self.open[i].eq(0), self.first[i].eq(0), self.last[i].eq(0)]
                with m.Else():
                    m.d.sync += self.first[i].eq(0)
                    m.d.sync += self.done[i].eq(self.done[i] + 1)
                    m.d.sync += self.last[i].eq(self.done[i] + 2 == self.total[i])
        with m.If(self.clear):
            m.d.sync += [self.open.eq(0), self.first.eq(0), self.last.eq(0)]
        return m
