"""The receiving end's order: flits arrive with holes, and leave in the order of their sequence numbers.

A flit that is new gets a place in the pool at once, whatever is missing before it; the place is noted under its
sequence number. Every place of the note holds the *lap* of the number that was last noted there (the number's top bit),
which tells new from old without ever clearing: a number is noted once per lap. Only after a reset all are cleared,
which takes ``window`` cycles.
"""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .link_config import LinkConfig
from .store import Store

__all__ = ["Reorder"]


class Reorder(wiring.Component):
    """Sorts out what arrives.

    Members
    -------
    clear : In(1)
        Hold for ``window`` cycles after a reset, before the first frame.
    cleared : Out(1)
    frame, data, number, seq, flit : In
        A valid frame (``frame``), with a flit (``data``).
    heard, map, ack : Out
        As in :func:`feedback_layout`.
    slot : In
        A free place of the pool.
    store, flit_out : Out
        The place is taken by this flit.
    next_valid, next_slot, next_vc : Out
        The next flit in order: where it is, and its channel. It is taken at once.
    twice : Out(1)
        A flit came that is here already.
    """

    def __init__(self, config: LinkConfig) -> None:
        self.config = config
        super().__init__({
            "clear": In(1),
            "cleared": Out(1),
            "frame": In(1),
            "data": In(1),
            "number": In(config.seq_bits),
            "seq": In(config.seq_bits),
            "flit": In(config.flit_bits),
            "heard": Out(config.seq_bits),
            "map": Out(config.map_bits),
            "ack": Out(config.seq_bits),
            "slot": In(config.slot_bits),
            "store": Out(1),
            "flit_out": Out(config.flit_bits),
            "next_valid": Out(1),
            "next_slot": Out(config.slot_bits),
            "next_vc": Out(config.vc_bits),
            "twice": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        c = self.config
        note = data.StructLayout({"lap": 1, "slot": c.slot_bits, "vc": c.vc_bits})
        m.submodules.notes = notes = Store(depth=c.window, width=note.size, bypass=True)
        m.submodules.laps = laps = Store(depth=c.window, width=1, bypass=True)

        # Transmissions, in the order of the channel. A number further ahead than the window is an old one.
        step = Signal(c.seq_bits)
        m.d.comb += step.eq(self.number - self.heard)
        recent = self.frame & (step <= c.window)
        shifted = Signal(c.map_bits)
        with m.If(step < c.map_bits):
            m.d.comb += shifted.eq(self.map << step[: c.map_bits.bit_length()])
        with m.If(recent):
            m.d.sync += [self.heard.eq(self.number), self.map.eq(shifted)]
            with m.If(self.data):
                m.d.sync += [self.heard.eq(self.number + 1), self.map.eq(shifted << 1 | 1)]

        # New or here already.
        arrived = Signal()
        seq = Signal(c.seq_bits, reset_less=True)
        flit = Signal(c.flit_bits, reset_less=True)
        m.d.sync += [arrived.eq(recent & self.data), seq.eq(self.seq), flit.eq(self.flit)]
        m.d.comb += laps.raddr.eq(self.seq[:-1])
        ahead = Signal(c.seq_bits)
        new = Signal()
        m.d.comb += [
            ahead.eq(seq - self.ack),
            new.eq((ahead < c.window) & (laps.rdata != seq[-1])),
            self.store.eq(arrived & new), self.twice.eq(arrived & ~new), self.flit_out.eq(flit),
        ]

        # The note, which starts as the lap before the first.
        place = Signal(note)
        where = Signal(c.window_bits)
        cursor = Signal(c.window_bits)
        with m.If(self.clear & ~self.cleared):
            m.d.comb += [place.lap.eq(1), where.eq(cursor)]
            m.d.sync += [cursor.eq(cursor + 1), self.cleared.eq(cursor == c.window - 1)]
        with m.Else():
            m.d.comb += [
                place.lap.eq(seq[-1]), place.slot.eq(self.slot), where.eq(seq[:-1]),
                place.vc.eq(data.View(c.flit, flit).vc),
            ]  # fmt: skip
        write = self.store | (self.clear & ~self.cleared)
        m.d.comb += [
            notes.we.eq(write), notes.waddr.eq(where), notes.wdata.eq(place.as_value()),
            laps.we.eq(write), laps.waddr.eq(where), laps.wdata.eq(place.lap),
        ]

        # The next in order.
        after = Signal(c.seq_bits)
        head = data.View(note, notes.rdata)
        begun = Signal()  # the note at `ack` has been read
        m.d.sync += begun.eq(self.cleared)
        m.d.comb += [
            self.next_valid.eq(begun & (head.lap == self.ack[-1])),
            self.next_slot.eq(head.slot), self.next_vc.eq(head.vc),
            after.eq(self.ack + self.next_valid), notes.raddr.eq(after[:-1]),
        ]
        m.d.sync += self.ack.eq(after)
        return m
