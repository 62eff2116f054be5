"""Error answers: what becomes of packets that reached their destination cut short, or did not reach it.

A router gives a packet that it cannot pass on to its own node, by the lane out, with ``error`` in every flit
(:mod:`.router`). Here, between the router and the node, such a packet is taken out of the way. If it was a request, its
source gets an *error answer*: a response of one flit with ``error`` set, which seems to come from the destination and
carries the data that followed the header in the first flit of the request, so that the source knows what it answers. A
request that reached its destination without its tail is passed on, cut, for the node to forget, and answered likewise.
So each request that a link's death keeps from arriving whole is answered, but for what the link itself has lost.

Responses are answered by nobody: a message that answers a response would make responses wait for responses, and the
network could deadlock (:mod:`.deadlock`). One that strands is dropped and counted.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import TorusConfig
from .flit import Message, flit_layout, header_layout, header_of, order_of, vc_number
from .interface import Port
from .turns import in_turn

__all__ = ["LaneReturn", "Returns"]


def cause_layout(config: TorusConfig) -> data.StructLayout:
    """What an answer needs of the packet that it answers: ``tag`` is the data behind the header."""
    return data.StructLayout(
        {
            "header": header_layout(config),
            "tag": unsigned(config.data_bits - config.header_bits),
            "order": unsigned(1),
        }
    )


class LaneReturn(wiring.Component):
    """One lane out of the router. What it has to say of a packet stops the lane until it is heard.

    Members
    -------
    x, y : In
        Of this node.
    i : In(stream of flits)
        From the router.
    o : Out(stream of flits)
        To the node: what arrived, whole or cut.
    failed : Out(stream of causes)
        A packet stranded here or arrived cut.
    stranded : Out(1)
        That packet did not reach its destination.
    """

    def __init__(self, config: TorusConfig) -> None:
        self._config = config
        lane = stream.Signature(flit_layout(config))
        super().__init__(
            {
                "x": In(config.x_bits),
                "y": In(config.y_bits),
                "i": In(lane),
                "o": Out(lane),
                "failed": Out(stream.Signature(cause_layout(config))),
                "stranded": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config, flit = self._config, self.i.payload
        header = header_of(config, flit)
        cause, away, kept_away = self.failed.payload, Signal(), self.stranded
        m.d.comb += [
            away.eq(Mux(
                flit.head, flit.error & ((header.dst_x != self.x) | (header.dst_y != self.y)), kept_away
            )),
            self.o.payload.eq(flit), self.o.valid.eq(self.i.valid & ~away & ~self.failed.valid),
            self.i.ready.eq((away | self.o.ready) & ~self.failed.valid),
        ]  # fmt: skip
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += kept_away.eq(away)
            with m.If(flit.head):
                m.d.sync += cause.eq(Cat(flit.data, order_of(config, flit.vc)))
            # An answer that arrives has an error in the flit that is head and tail, and has failed in nothing.
            with m.If(flit.tail & flit.error & (away | ~flit.head)):
                m.d.sync += self.failed.valid.eq(1)
        with m.If(self.failed.valid & self.failed.ready):
            m.d.sync += self.failed.valid.eq(0)
        return m


class Returns(wiring.Component):
    """All lanes of a node, and its responses with the answers among them.

    Members
    -------
    x, y : In
    eject : In(stream of flits), array of 4 x 2
        From the router, by port and message.
    receive : Out(stream of flits), likewise
        To the node.
    own : In(stream of flits)
        The node's responses; a packet once begun must not wait for requests.
    responses : Out(stream of flits)
        These and error answers, packet by packet in turn. What is offered may change until it is taken.
    answered, dropped : Out
        How many requests are answered, and stranded responses dropped, in this cycle.

    Raises
    ------
    TypeError
        If ``config`` is not a :class:`TorusConfig`.
    """

    def __init__(self, config: TorusConfig) -> None:
        if not isinstance(config, TorusConfig):
            raise TypeError(f"config must be a TorusConfig, not {config!r}")
        self._config = config
        lane = stream.Signature(flit_layout(config))
        ports, messages = len(Port), len(Message)
        super().__init__(
            {
                "x": In(config.x_bits),
                "y": In(config.y_bits),
                "eject": In(lane).array(ports, messages),
                "receive": Out(lane).array(ports, messages),
                "own": In(lane),
                "responses": Out(lane),
                "answered": Out(1),
                "dropped": Out(range(ports + 1)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        lanes: dict[Message, list[LaneReturn]] = {message: [] for message in Message}
        for message in Message:
            for port in Port:
                m.submodules[f"lane{port}_{message}"] = lane = LaneReturn(config)
                lanes[message].append(lane)
                wiring.connect(m, wiring.flipped(self.eject[port][message]), lane.i)
                wiring.connect(m, lane.o, wiring.flipped(self.receive[port][message]))
                m.d.comb += [lane.x.eq(self.x), lane.y.eq(self.y)]
        requests, responses = lanes[Message.REQUEST], lanes[Message.RESPONSE]
        m.d.comb += [
            *(lane.failed.ready.eq(1) for lane in responses),
            self.dropped.eq(sum(lane.failed.valid & lane.stranded for lane in responses)),
        ]

        # Between packets of the node, answers; it has its chance between two of them.
        opened, last, answers = Signal(), Signal(), Signal()
        want, waiting = Signal(len(Port)), Cat(lane.failed.valid for lane in requests)
        m.d.comb += [
            answers.eq(~opened & waiting.any() & ~last),
            want.eq(Mux(answers & self.responses.ready, waiting, 0)),
        ]
        chosen = in_turn(m, want, Signal(range(len(Port)), name="turn"))
        cause, answer = Signal(cause_layout(config)), Signal(flit_layout(config))
        back = Signal(header_layout(config))
        for port, lane in enumerate(requests):
            m.d.comb += lane.failed.ready.eq(chosen[port])
            with m.If(chosen[port]):
                m.d.comb += cause.eq(lane.failed.payload)
        m.d.comb += [
            back.dst_x.eq(cause.header.src_x), back.dst_y.eq(cause.header.src_y),
            back.src_x.eq(cause.header.dst_x), back.src_y.eq(cause.header.dst_y),
            answer.data.eq(Cat(back, cause.tag)), answer.head.eq(1), answer.tail.eq(1), answer.error.eq(1),
            answer.vc.eq(vc_number(config, message=Message.RESPONSE, order=0, late=0)),
        ]  # fmt: skip
        if config.orders == 2:
            m.d.comb += answer.vc[1].eq(cause.order)

        m.d.comb += [
            self.answered.eq(chosen.any()), self.responses.valid.eq(answers | self.own.valid),
            self.own.ready.eq(self.responses.ready & ~answers),
        ]  # fmt: skip
        with m.If(answers):
            m.d.comb += self.responses.payload.eq(answer)
        with m.Else():
            m.d.comb += [self.responses.payload.eq(self.own.payload), self.responses.payload.error.eq(0)]
        with m.If(self.responses.ready):
            m.d.sync += last.eq(answers)
            with m.If(self.own.valid & ~answers):
                m.d.sync += opened.eq(~self.own.payload.tail)
        return m
