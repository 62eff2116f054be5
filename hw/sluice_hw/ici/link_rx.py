"""The receiving end of a link: frames to flits in order, and what to tell the far end about them."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .frame import feedback_layout
from .link_config import LinkConfig
from .pool import Pool
from .reorder import Reorder

__all__ = ["LinkRx"]


class LinkRx(wiring.Component):
    """Order and pool, one behind the other.

    Members
    -------
    clear, cleared
        See :class:`Reorder`.
    frame, data, number, seq, flit : In
        A valid frame of the far end.
    feedback : Out
        For the next frame; the channel whose count it holds changes every cycle.
    credit, discard, out_valid, out_flit
        The router's side, see :class:`Pool`.
    empty : Out(1)
        Nothing is left that could still go to the router.
    stalled, overflow, twice : Out(1)
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
            "feedback": Out(feedback_layout(config)),
            "credit": In(config.vcs),
            "discard": In(1),
            "out_valid": Out(1),
            "out_flit": Out(config.flit_bits),
            "empty": Out(1),
            "stalled": Out(1),
            "overflow": Out(1),
            "twice": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.order = order = Reorder(self.config)
        m.submodules.pool = pool = Pool(self.config)
        turn = Signal(range(self.config.vcs))
        m.d.sync += turn.eq(turn + 1)
        with m.If(turn == self.config.vcs - 1):
            m.d.sync += turn.eq(0)
        # From a frame to its note read: three cycles without any of them.
        calm = Signal(2)
        with m.If(self.frame | order.store | order.next_valid):
            m.d.sync += calm.eq(3)
        with m.Elif(calm != 0):
            m.d.sync += calm.eq(calm - 1)
        m.d.comb += [
            order.clear.eq(self.clear), self.cleared.eq(order.cleared),
            order.frame.eq(self.frame), order.data.eq(self.data), order.number.eq(self.number),
            order.seq.eq(self.seq), order.flit.eq(self.flit), order.slot.eq(pool.slot),
            pool.store.eq(order.store), pool.flit.eq(order.flit_out),
            pool.append.eq(order.next_valid), pool.append_slot.eq(order.next_slot),
            pool.append_vc.eq(order.next_vc),
            pool.credit.eq(self.credit), pool.discard.eq(self.discard),
            self.out_valid.eq(pool.out_valid), self.out_flit.eq(pool.out_flit),
            self.feedback.ack.eq(order.ack), self.feedback.heard.eq(order.heard), self.feedback.map.eq(order.map),
            self.feedback.freed_vc.eq(turn), self.feedback.freed.eq(Array(list(pool.freed))[turn]),
            self.empty.eq((calm == 0) & ~pool.queued & ~pool.out_valid),
            self.stalled.eq(pool.stalled), self.overflow.eq(pool.overflow), self.twice.eq(order.twice),
        ]
        return m
