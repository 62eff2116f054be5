"""Between a node and its router: routes for what the node sends, error answers for what does not arrive."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import TorusConfig
from .flit import Message, flit_layout
from .interface import Port
from .returns import Returns
from .route_table import RouteTable, RouteWrite
from .sender import Sender

__all__ = ["NetworkInterface"]


def interface_counters_layout() -> data.StructLayout:
    """32-bit counters, which wrap around: ``answered``, error answers made here; ``dropped``, responses that stranded
    here and were dropped."""
    return data.StructLayout({"answered": unsigned(32), "dropped": unsigned(32)})


class NetworkInterface(wiring.Component):
    """A node sees one stream of packets per message class into the network and four, by link, out of it.

    Of what it sends, the first flit says destination and, in ``vc``, the wished order; source, route and channel are
    filled in. Every request of which no more is heard by then was delivered whole, or lost in a link that died: all
    others come back as error answers (:mod:`.returns`), those without a route at once.

    Members
    -------
    x, y : In
        Place of the node, constant.
    route : In(RouteWrite)
        Changes the table of routes; ignored until ``ready``.
    ready : Out(1)
        The table has been cleared after reset. Before, nothing has a route.
    send : In(stream of flits), array of 2
        By message. ``error`` is ignored.
    receive : Out(stream of flits), array of 4 x 2
        By port and message. The node must always take responses in the end, whatever becomes of requests, and must
        take the rest of a packet of which it has taken the first flit.
    inject : Out, eject : In, arrays of 4 x 2
        The router's.
    counters : Out(interface_counters_layout())

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
                "route": In(RouteWrite(config)),
                "ready": Out(1),
                "send": In(lane).array(messages),
                "receive": Out(lane).array(ports, messages),
                "inject": Out(lane).array(ports, messages),
                "eject": In(lane).array(ports, messages),
                "counters": Out(interface_counters_layout()),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        x, y = Signal.like(self.x, name="here_x"), Signal.like(self.y, name="here_y")
        m.d.sync += [x.eq(self.x), y.eq(self.y)]
        m.submodules.table = table = RouteTable(config, readers=len(Message))
        wiring.connect(m, wiring.flipped(self.route), table.write)
        m.submodules.returns = returns = Returns(config)
        m.d.comb += [self.ready.eq(table.ready), returns.x.eq(x), returns.y.eq(y)]
        for message in Message:
            m.submodules[f"sender{message}"] = sender = Sender(config, message)
            m.d.comb += [
                sender.x.eq(x), sender.y.eq(y), table.x[message].eq(sender.dst_x), table.y[message].eq(sender.dst_y),
                table.order[message].eq(sender.wish), sender.route.eq(table.entry[message]),
            ]  # fmt: skip
            if message == Message.RESPONSE:
                wiring.connect(m, wiring.flipped(self.send[message]), returns.own)
                wiring.connect(m, returns.responses, sender.i)
            else:
                own = self.send[message]
                m.d.comb += [
                    sender.i.valid.eq(own.valid), own.ready.eq(sender.i.ready), sender.i.payload.eq(own.payload),
                    sender.i.payload.error.eq(0),
                ]  # fmt: skip
            for port in Port:
                wiring.connect(m, sender.o[port], wiring.flipped(self.inject[port][message]))
                wiring.connect(m, wiring.flipped(self.eject[port][message]), returns.eject[port][message])
                wiring.connect(m, returns.receive[port][message], wiring.flipped(self.receive[port][message]))
        counts = self.counters
        m.d.sync += [
            counts.answered.eq(counts.answered + returns.answered),
            counts.dropped.eq(counts.dropped + returns.dropped),
        ]
        return m
