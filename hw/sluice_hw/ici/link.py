"""One end of a link, between a router and the wire.

Put one at each side of a cable (:mod:`.channel` in simulation); both sides must be made from the same
:class:`LinkConfig`, and say so to each other before the first flit. What a link promises, and how, is in
``docs/torus.md``.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .codec import Decoder, Encoder
from .config import TorusConfig
from .elastic import ElasticBuffer
from .flit import flit_layout
from .frame import Kind, Reason, State, WireSignature, wire_bits
from .handshake import Handshake
from .interface import FlitPort
from .link_config import LinkConfig
from .link_rx import LinkRx
from .link_tx import LinkTx

__all__ = ["COUNTERS", "Link", "counters_layout", "status_layout"]

#: Name and meaning of each counter.
COUNTERS = {
    "sent": "flits taken from the router while up",
    "retries": "transmissions of a flit that was sent before",
    "delivered": "flits given to the router",
    "twice": "flits that arrived again, left out",
    "bad_frames": "words of the wire that were no valid frame (checksum)",
    "nonsense": "frames whose statements cannot be, left out",
    "elastic_losses": "times that the elastic buffer was full and lost frames (at least one each)",
    "credit_stalls": "cycles in which a channel had no credit because its place in the pool is taken",
    "window_stalls": "cycles in which no credit was given because too many flits are not acknowledged",
    "router_stalls": "cycles in which received flits waited and the router had no credit for any",
    "lost": "flits taken from the router whose delivery was not confirmed when the link died, or later",
}


def counters_layout() -> data.StructLayout:
    """32-bit counters, which wrap around, in the order of :data:`COUNTERS`."""
    return data.StructLayout({name: unsigned(32) for name in COUNTERS})


def status_layout() -> data.StructLayout:
    """``state`` (:class:`State`), ``reason`` (:class:`Reason`), ``mismatch`` (:class:`Parameter`) and ``theirs``, the
    other end's value of that parameter."""
    return data.StructLayout({"state": 2, "reason": 3, "mismatch": 3, "theirs": 16})


class Link(wiring.Component):
    """One end of a link.

    Parameters
    ----------
    torus
        Whose flits it carries.
    config
        ``LinkConfig.for_torus(torus, ...)``; ``config.elastic`` makes ``wire_in`` belong to domain ``wire``.

    Members
    -------
    tx : In(FlitPort(torus))
        From the router's output.
    rx : Out(FlitPort(torus))
        To the router's input.
    wire_out : Out(WireSignature)
    wire_in : In(WireSignature)
    status : Out(status_layout())
    changed : Out(1)
        ``status.state`` became UP or DEAD in this cycle.
    counters : Out(counters_layout())

    Raises
    ------
    ValueError
        If `config` is for other flits than those of `torus`.
    """

    def __init__(self, *, torus: TorusConfig, config: LinkConfig) -> None:
        for name, mine, theirs in (("flit", config.flit, flit_layout(torus)), ("vcs", config.vcs, torus.vcs),
                                   ("vc_depth", config.vc_depth, torus.vc_depth)):  # fmt: skip
            if mine != theirs:
                raise ValueError(f"link {name} must be that of the torus, {theirs}, not {mine}")
        self.torus, self.config = torus, config
        wire = WireSignature(wire_bits(config))
        super().__init__({
            "tx": In(FlitPort(torus)),
            "rx": Out(FlitPort(torus)),
            "wire_out": Out(wire),
            "wire_in": In(wire),
            "status": Out(status_layout()),
            "changed": Out(1),
            "counters": Out(counters_layout()),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        c = self.config
        m.submodules.encoder = encoder = Encoder(c)
        m.submodules.decoder = decoder = Decoder(c)
        m.submodules.tx = tx = LinkTx(c)
        m.submodules.rx = rx = LinkRx(c)
        m.submodules.handshake = hand = Handshake(c)
        dropped = Signal()
        if c.elastic:
            m.submodules.elastic = elastic = ElasticBuffer(bits=wire_bits(c), depth=c.elastic)
            m.d.comb += [
                elastic.i.valid.eq(self.wire_in.valid), elastic.i.word.eq(self.wire_in.word),
                decoder.wire.valid.eq(elastic.o.valid), decoder.wire.word.eq(elastic.o.word),
                dropped.eq(elastic.dropped),
            ]  # fmt: skip
        else:
            m.d.comb += [decoder.wire.valid.eq(self.wire_in.valid), decoder.wire.word.eq(self.wire_in.word)]

        up, dead = hand.state == State.UP, hand.state == State.DEAD
        frame = Signal()
        came = decoder.frame
        m.d.comb += [
            frame.eq((decoder.data | decoder.idle) & up),
            # From the wire.
            rx.frame.eq(frame), rx.data.eq(decoder.data), rx.number.eq(came.number), rx.seq.eq(came.seq),
            rx.flit.eq(came.flit), tx.feedback_valid.eq(frame), tx.feedback.eq(came.feedback),
            hand.hello.eq(decoder.hello), hand.greeting.eq(decoder.greeting), hand.frame.eq(frame),
            # To the wire. A greeting takes the place of a frame, which is then one that was lost.
            encoder.enable.eq(hand.state != State.CLEAR), encoder.hello.eq(hand.say_hello),
            encoder.greeting.eq(hand.say),
            encoder.frame.kind.eq(Mux(tx.data, Kind.DATA, Kind.IDLE)), encoder.frame.number.eq(tx.number),
            encoder.frame.seq.eq(tx.seq), encoder.frame.flit.eq(tx.flit), encoder.frame.feedback.eq(rx.feedback),
            self.wire_out.valid.eq(encoder.wire.valid), self.wire_out.word.eq(encoder.wire.word),
            # Life.
            rx.clear.eq(hand.state == State.CLEAR), hand.cleared.eq(rx.cleared), tx.enable.eq(up & hand.ready),
            hand.waiting.eq(tx.waiting != 0), hand.progress.eq(tx.progress), hand.overflow.eq(rx.overflow),
            # A router that is gone ends the link once everything that it sent has arrived.
            hand.close.eq(self.rx.dead | (self.tx.ended & (tx.waiting == 0))),
        ]
        m.d.comb += [
            # The router's side.
            tx.put.eq(self.tx.valid), tx.put_flit.eq(self.tx.flit.as_value()),
            self.tx.credit.eq(tx.grant), self.tx.dead.eq(dead),
            rx.credit.eq(self.rx.credit), rx.discard.eq(self.rx.dead | (hand.reason == Reason.OVERFLOW)),
            self.rx.valid.eq(rx.out_valid), self.rx.flit.eq(rx.out_flit),
        ]
        m.d.sync += self.rx.ended.eq(self.rx.ended | (dead & rx.empty))

        before = Signal(2)
        m.d.sync += before.eq(hand.state)
        m.d.comb += [
            self.status.state.eq(hand.state), self.status.reason.eq(hand.reason),
            self.status.mismatch.eq(hand.mismatch), self.status.theirs.eq(hand.theirs),
            self.changed.eq((hand.state != before) & (up | dead)),
        ]
        steps = {
            "sent": self.tx.valid & up, "retries": tx.again & up, "delivered": self.rx.valid, "twice": rx.twice,
            "bad_frames": decoder.bad, "nonsense": tx.nonsense, "elastic_losses": dropped,
            "credit_stalls": tx.starved & up, "window_stalls": tx.full,
            "router_stalls": rx.stalled,
            "lost": Mux(dead, Mux(before == State.DEAD, 0, tx.waiting) + self.tx.valid, 0),
        }
        m.d.sync += [self.counters[name].eq(self.counters[name] + steps[name]) for name in COUNTERS]
        return m

