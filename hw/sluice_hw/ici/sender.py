"""Packets of a node into the network: route, and lane of the link that the route begins with."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import TorusConfig
from .flit import Message, flit_layout, header_layout, header_of, order_of, vc_number
from .interface import Port
from .lane import LaneQueue
from .route_table import entry_layout
from .routing import turn

__all__ = ["Sender"]


class Sender(wiring.Component):
    """One message class of a node. Of a head flit it reads the destination and, from ``vc``, the order that is wished
    for, and writes the source, the route and the channel. An error answer (``error`` in its head) keeps its source.

    A packet whose destination has no route is put on a lane that its first link does not belong to: the router cannot
    follow it and gives it back by that lane, like any other that strands (:mod:`.returns`).

    Members
    -------
    x, y : In
        Of this node.
    i : In(stream of flits)
    dst_x, dst_y, wish : Out
        What to look up in the table...
    route : In(entry_layout())
        ... and what it says, in the same cycle.
    o : Out(stream of flits), array of 4
        By port. A change of routes may put what is offered on another lane.
    """

    def __init__(self, config: TorusConfig, message: Message) -> None:
        self._config, self._message = config, message
        lane = stream.Signature(flit_layout(config))
        super().__init__(
            {
                "x": In(config.x_bits),
                "y": In(config.y_bits),
                "i": In(lane),
                "dst_x": Out(config.x_bits),
                "dst_y": Out(config.y_bits),
                "wish": Out(1),
                "route": In(entry_layout()),
                "o": Out(lane).array(len(Port)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        m.submodules.queue = queue = LaneQueue(config)
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        flit = queue.o.payload
        # Low bits of the data of a head flit.
        header = header_of(config, flit)
        order, go = Signal(), [Signal(name="go_x"), Signal(name="go_y")]
        m.d.comb += [
            self.dst_x.eq(header.dst_x), self.dst_y.eq(header.dst_y),
            self.wish.eq(order_of(config, flit.vc)),
            order.eq(Mux(self.route.known, self.route.order, self.wish) if config.orders == 2 else 0),
        ]  # fmt: skip
        for bit, value in zip(go, turn(order, header.dst_x != self.x, header.dst_y != self.y), strict=True):
            m.d.comb += bit.eq(value)
        # Both are kept from the head to the tail.
        by_y, lane = Signal(), Signal(range(len(Port)))
        m.d.comb += [
            by_y.eq(go[1] ^ (~self.route.known & (go[0] | go[1]))),
            lane.eq(Cat(Mux(by_y, self.route.y_down, self.route.x_down), by_y)),
        ]
        opened, kept_order, kept_lane = Signal(), Signal(), Signal.like(lane)
        order_now, lane_now = Signal(), Signal.like(lane)
        m.d.comb += [order_now.eq(Mux(opened, kept_order, order)), lane_now.eq(Mux(opened, kept_lane, lane))]
        m.d.sync += [kept_order.eq(order_now), kept_lane.eq(lane_now)]

        routed, out = Signal(header_layout(config)), Signal(flit_layout(config))
        first = vc_number(config, message=self._message, order=0, late=0)
        m.d.comb += [
            routed.eq(header), routed.src_x.eq(Mux(flit.error, header.src_x, self.x)),
            routed.src_y.eq(Mux(flit.error, header.src_y, self.y)),
            *(routed[name].eq(self.route[name]) for name in ("x_down", "y_down", "x_late", "y_late")),
            out.data.eq(Mux(flit.head, Cat(routed, flit.data[config.header_bits :]), flit.data)),
            out.vc.eq(first | order_now << 1 if config.orders == 2 else first),
            out.head.eq(flit.head), out.tail.eq(flit.tail), out.error.eq(flit.error),
        ]  # fmt: skip
        for port in Port:
            m.d.comb += [self.o[port].valid.eq(queue.o.valid & (lane_now == port)), self.o[port].payload.eq(out)]
            with m.If(lane_now == port):
                m.d.comb += queue.o.ready.eq(self.o[port].ready)
        with m.If(queue.o.valid & queue.o.ready):
            m.d.sync += opened.eq(~flit.tail)
        return m
