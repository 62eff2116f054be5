"""The sending end's memory: flits until they are acknowledged, and which transmission carried which.

Flits have sequence numbers in the order of acceptance. Each time that one is put on the wire it gets the next
*transmission number*. The channel keeps the order, so the receiver sees a missing transmission at the next frame,
whatever that carries, and each of its frames says for the last ``map_bits`` transmissions whether they arrived. A lost
one is sent again, under a new number, by itself: selective repeat, without timers.

Numbers count modulo twice the window and never lead by more than the window: with ``a`` the oldest number that matters,
all that are in use lie in a .. a + window, so that differences modulo 2 x window are below or above ``window`` for new
and old ones, and no number stands for two things at once.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .frame import feedback_layout
from .link_config import LinkConfig
from .store import Store

__all__ = ["ReplaySender"]


class ReplaySender(wiring.Component):
    """Accepts flits at any time (credits see to it that there is room) and says what to put on the wire.

    Members
    -------
    put, put_flit : In
        A flit to deliver.
    enable : In(1)
        The link is up.
    feedback_valid, feedback : In
        From a valid frame of the far end.
    data : Out(1)
        This cycle's frame carries a flit: ``seq`` and ``flit``.
    number : Out
        Its transmission number; without a flit the number of the next transmission.
    seq, flit : Out
    again : Out(1)
        It was sent before.
    waiting : Out
        Flits accepted and not acknowledged.
    progress : Out(1)
        Something was acknowledged.
    nonsense : Out(1)
        Feedback that cannot be, ignored: old, from frames out of order, or a broken far end.
    """

    def __init__(self, config: LinkConfig) -> None:
        self.config = config
        super().__init__({
            "put": In(1),
            "put_flit": In(config.flit_bits),
            "enable": In(1),
            "feedback_valid": In(1),
            "feedback": In(feedback_layout(config)),
            "data": Out(1),
            "number": Out(config.seq_bits),
            "seq": Out(config.seq_bits),
            "flit": Out(config.flit_bits),
            "again": Out(1),
            "waiting": Out(config.seq_bits),
            "progress": Out(1),
            "nonsense": Out(1),
        })
        names = ("acked", "unsent", "accepted", "settled", "heard", "next_number", "first", "last", "oldest")
        #: The numbers, by name, and ``resend``: one is about to be sent again. For checks.
        self.numbers = {name: Signal(config.seq_bits, name=name) for name in names} | {"resend": Signal(name="resend")}

    def elaborate(self, platform) -> Module:
        m = Module()
        c = self.config
        bits = c.seq_bits

        def number(name: str) -> Signal:
            return Signal(bits, name=name)

        m.submodules.flits = flits = Store(depth=c.window, width=c.flit_bits)
        m.submodules.ring = ring = Store(depth=c.window, width=bits)

        # Sequence numbers: acked <= unsent <= accepted <= acked + window.
        n = self.numbers
        acked, unsent, accepted = n["acked"], n["unsent"], n["accepted"]
        # Transmission numbers: oldest <= settled <= heard <= next_number <= oldest + window.
        settled, heard, next_number = n["settled"], n["heard"], n["next_number"]
        first, last, oldest = n["first"], n["last"], n["oldest"]
        arrived = Signal(c.map_bits)

        m.d.comb += [
            self.waiting.eq(accepted - acked),
            flits.we.eq(self.put), flits.waddr.eq(accepted[:-1]), flits.wdata.eq(self.put_flit),
        ]
        with m.If(self.put):
            m.d.sync += accepted.eq(accepted + 1)

        # What the far end says.
        fb = self.feedback
        ack_step, heard_step = number("ack_step"), number("heard_step")
        ack_limit, heard_limit = number("ack_limit"), number("heard_limit")
        m.d.comb += [
            ack_step.eq(fb.ack - acked), ack_limit.eq(unsent - acked),
            heard_step.eq(fb.heard - heard), heard_limit.eq(next_number - heard),
        ]
        believed = (ack_step <= ack_limit) & (heard_step <= heard_limit)
        with m.If(self.feedback_valid & believed):
            m.d.sync += [acked.eq(fb.ack), heard.eq(fb.heard), arrived.eq(fb.map)]
            m.d.comb += self.progress.eq(ack_step != 0)
        m.d.comb += self.nonsense.eq(self.feedback_valid & ~believed)

        # Settle transmissions: all that arrived at once, or one that was lost, which is sent again. Those whose fate
        # only lost frames told become suspects, first..last, and are sent again to be safe when nothing else is to be
        # settled; meanwhile the news is read on, so that one outage does not make later transmissions suspect.
        lag = number("lag")
        lost_mask = Signal(c.map_bits)
        suspects = first != last
        m.d.comb += [lag.eq(heard - settled), oldest.eq(Mux(suspects, first, settled))]
        with m.If(lag < c.map_bits):
            m.d.comb += lost_mask.eq(~arrived & ((1 << lag[: c.map_bits.bit_length()]) - 1))
        with m.Else():
            m.d.comb += lost_mask.eq(~arrived)
        found, found_number = Signal(), number("found_number")
        for i in range(c.map_bits):  # the last assignment holds: the oldest
            with m.If(lost_mask[i]):
                m.d.comb += [found.eq(1), found_number.eq(heard - 1 - i)]
        # A number is free again when all before it are settled, so suspects go first when numbers run out.
        flying = number("flying")
        m.d.comb += flying.eq(next_number - oldest)
        m.d.comb += ring.raddr.eq(found_number[:-1])
        resend = n["resend"]
        m.d.sync += resend.eq(0)
        with m.If(self.enable):
            with m.If(lag > c.map_bits):
                m.d.sync += [settled.eq(heard - c.map_bits), last.eq(heard - c.map_bits), first.eq(oldest)]
            with m.Elif(suspects & (~found | (flying >= c.window - 1))):
                m.d.comb += ring.raddr.eq(first[:-1])
                m.d.sync += [first.eq(first + 1), resend.eq(1)]
                with m.If(~found):
                    m.d.sync += settled.eq(heard)
            with m.Else():
                m.d.sync += [settled.eq(Mux(found, found_number + 1, heard)), resend.eq(found)]

        # One transmission per cycle: again, or a new one.
        old, again_step = Signal(), number("again_step")  # acknowledged in the meantime
        use_again, use_new = Signal(), Signal()
        seq = number("seq_now")
        m.d.comb += [
            again_step.eq(ring.rdata - acked),
            old.eq(again_step >= ack_limit),
            use_again.eq(self.enable & resend & ~old),
            use_new.eq(self.enable & ~use_again & (unsent != accepted) & (flying < c.window)),
            seq.eq(Mux(use_again, ring.rdata, unsent)),
            flits.raddr.eq(seq[:-1]),
            ring.we.eq(use_again | use_new), ring.waddr.eq(next_number[:-1]), ring.wdata.eq(seq),
        ]
        with m.If(use_again | use_new):
            m.d.sync += next_number.eq(next_number + 1)
        with m.If(use_new):
            m.d.sync += unsent.eq(unsent + 1)
        m.d.sync += [self.data.eq(use_again | use_new), self.again.eq(use_again), self.number.eq(next_number),
                     self.seq.eq(seq)]  # fmt: skip
        m.d.comb += self.flit.eq(flits.rdata)
        return m
