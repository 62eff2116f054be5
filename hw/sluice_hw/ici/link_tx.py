"""The sending end of a link: credits to the router, flits to frames."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .credit import CreditAccount
from .frame import feedback_layout
from .link_config import LinkConfig
from .replay import ReplaySender

__all__ = ["LinkTx"]


class LinkTx(wiring.Component):
    """Replay and account of the far pool, side by side.

    Members
    -------
    put, put_flit, grant
        The router's side: a flit in every cycle with ``put``, a credit per bit of ``grant``.
    enable : In(1)
        The link is up.
    feedback_valid, feedback : In
        From a valid frame of the far end.
    data, number, seq, flit : Out
        For the next frame, see :class:`ReplaySender`.
    waiting, progress : Out
    again, nonsense, starved, full : Out(1)
        For counters; ``full``: credits are held back because too many flits are not acknowledged.
    """

    def __init__(self, config: LinkConfig) -> None:
        self.config = config
        super().__init__({
            "put": In(1),
            "put_flit": In(config.flit_bits),
            "grant": Out(config.vcs),
            "enable": In(1),
            "feedback_valid": In(1),
            "feedback": In(feedback_layout(config)),
            "data": Out(1),
            "number": Out(config.seq_bits),
            "seq": Out(config.seq_bits),
            "flit": Out(config.flit_bits),
            "waiting": Out(config.seq_bits),
            "progress": Out(1),
            "again": Out(1),
            "nonsense": Out(1),
            "starved": Out(1),
            "full": Out(1),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.account = account = CreditAccount(self.config)
        m.submodules.replay = replay = ReplaySender(self.config)
        taken = Signal()
        m.d.comb += [
            taken.eq(self.put & self.enable),
            replay.put.eq(taken), replay.put_flit.eq(self.put_flit), replay.enable.eq(self.enable),
            replay.feedback_valid.eq(self.feedback_valid), replay.feedback.eq(self.feedback),
            account.enable.eq(self.enable),
            account.room.eq(replay.waiting + account.outstanding < self.config.window),
            account.taken.eq(taken), account.taken_vc.eq(data.View(self.config.flit, self.put_flit).vc),
            account.freed_valid.eq(self.feedback_valid), account.freed_vc.eq(self.feedback.freed_vc),
            account.freed.eq(self.feedback.freed),
            self.grant.eq(account.grant),
            self.data.eq(replay.data), self.number.eq(replay.number), self.seq.eq(replay.seq),
            self.flit.eq(replay.flit), self.waiting.eq(replay.waiting), self.progress.eq(replay.progress),
            self.again.eq(replay.again), self.nonsense.eq(replay.nonsense), self.starved.eq(account.starved),
            self.full.eq(self.enable & ~account.room),
        ]
        return m
