"""Event ring: when ops started and finished, and where the chip stopped."""

from __future__ import annotations

import enum

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from . import isa
from .config import ChipConfig

__all__ = ["EventKind", "EventRing", "event_layout"]

_N = len(isa.Unit)


class EventKind(enum.IntEnum):
    """What happened."""

    START = 0
    FINISH = 1
    ERROR = 2


def event_layout() -> data.StructLayout:
    """One entry: the cycle since the program's start, then what register EVENT_INFO shows."""
    return data.StructLayout({"time": unsigned(32), "pc": unsigned(16), "unit": unsigned(3), "kind": unsigned(2)})


class EventRing(wiring.Component):
    """Records the last events of a program.

    Several may come in one cycle; one a cycle is written, each with the time it came at, so that entries of different
    units may stand out of order by a few cycles. An event whose unit still has one of the same kind waiting is dropped
    and counted.

    Parameters
    ----------
    entries : int
        A power of two from 4, :attr:`ChipConfig.event_ring`.

    Members
    -------
    clear : In(1)
        Empty the ring, restart the clock.
    started, finished : In(4)
        By :class:`isa.Unit`, with ``started_pc`` and ``finished_pc``, arrays of In(16).
    error, error_pc, error_unit : In
        The chip stops.
    select, event : In(16), Out(event_layout())
        Entry ``select`` modulo ``entries``, one cycle later.
    head : Out(32)
        Events written.
    dropped : Out(16)
        Events lost (stays at its top).

    Raises
    ------
    TypeError, ValueError
        If ``entries`` is not a power of two from 4 to 4096.
    """

    def __init__(self, *, entries: int) -> None:
        if not isinstance(entries, int) or isinstance(entries, bool):
            raise TypeError(f"event ring entries must be an integer, not {entries!r}")
        if not 4 <= entries <= 4096 or entries & (entries - 1):
            raise ValueError(f"event ring entries must be a power of two from 4 to 4096, not {entries}")
        self._entries = entries
        super().__init__({
            "clear": In(1),
            "started": In(_N),
            "started_pc": In(16).array(_N),
            "finished": In(_N),
            "finished_pc": In(16).array(_N),
            "error": In(1),
            "error_pc": In(16),
            "error_unit": In(3),
            "select": In(16),
            "event": Out(event_layout()),
            "head": Out(32),
            "dropped": Out(16),
        })

    @classmethod
    def for_config(cls, config: ChipConfig) -> EventRing:
        return cls(entries=config.event_ring)

    @property
    def entries(self) -> int:
        return self._entries

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.ring = ring = memory.Memory(shape=event_layout(), depth=self.entries, init=[])
        read, write = ring.read_port(), ring.write_port()
        m.d.comb += [
            read.addr.eq(self.select),
            read.en.eq(1),
            self.event.eq(read.data),
            write.addr.eq(self.head),
        ]
        time = Signal(32)
        m.d.sync += time.eq(time + 1)

        # Errors first, then finishes, then starts: an op that ends is the older news of its unit.
        sources = [(self.error, self.error_pc, self.error_unit, EventKind.ERROR)]
        sources += [(self.finished[u], self.finished_pc[u], u, EventKind.FINISH) for u in range(_N)]
        sources += [(self.started[u], self.started_pc[u], u, EventKind.START) for u in range(_N)]
        waiting = Signal(len(sources))
        lost = Signal(len(sources))
        chosen = Signal(len(sources))
        m.d.comb += chosen.eq(waiting & (~waiting + 1))
        for i, (come, pc, unit, kind) in enumerate(sources):
            event = Signal(event_layout(), name=f"event{i}", reset_less=True)
            with m.If(come & (~waiting[i] | chosen[i])):
                m.d.sync += [
                    waiting[i].eq(1), event.time.eq(time), event.pc.eq(pc), event.unit.eq(unit), event.kind.eq(kind),
                ]
            with m.Elif(chosen[i]):
                m.d.sync += waiting[i].eq(0)
            m.d.comb += lost[i].eq(come & waiting[i] & ~chosen[i])
            with m.If(chosen[i]):
                m.d.comb += write.data.eq(event)
        m.d.comb += write.en.eq(waiting.any())
        m.d.sync += self.head.eq(self.head + write.en)
        losses = sum(lost[i] for i in range(len(sources)))
        total = Signal(range(0xFFFF + len(sources) + 1))
        m.d.comb += total.eq(self.dropped + losses)
        m.d.sync += self.dropped.eq(Mux(total > 0xFFFF, 0xFFFF, total))
        with m.If(self.clear):
            m.d.sync += [time.eq(0), waiting.eq(0), self.head.eq(0), self.dropped.eq(0)]
        return m
