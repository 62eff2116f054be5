"""The router of a node: four links, a lane for each link into and out of the node.

::

    link in, 8 channels --> 8 queues --\\            /--> link out   (credits)
         x 4                            > crossbar <
    lane in, 2 messages --> 2 queues --/            \\--> lane out, 2 messages
         x 4                                             x 4

Every queue is an input of the crossbar by itself, so that there is one decision per output and cycle and nothing to
match: each output takes the earliest flit (:mod:`.fair`) of those that want it and have a credit. A flit that comes in
at one edge leaves at the next if nothing is before it: one cycle per hop with the link's register.

A lane belongs to a link. Packets into the network are put on the lane of the link they leave by
(:meth:`.routing.RoutePlan.path`); packets to the node itself on any. Packets that arrive come out on the lane of the
link they came by.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.data import View
from amaranth.lib.wiring import In, Out

from .buffer import InputBuffer
from .config import TorusConfig
from .deadlock import check_deadlock_free
from .fair import EarliestArbiter, LaneStamp
from .flit import Message, Order, flit_layout, header_of, order_of, vc_fields, vc_number
from .interface import FlitPort, Port
from .lane import LaneQueue
from .routing import next_late, turn

__all__ = ["Router"]

_LOCAL = len(Port)


@dataclass
class _Input:
    """A queue at the crossbar, as the outputs see it."""

    #: Lane it ejects to.
    lane: Port
    message: Message
    #: Order as a constant where the channel fixes it.
    order: Value | int
    #: Where it can go at all.
    ways: tuple[int, ...]
    valid: Value
    flit: View
    pop: Signal
    #: Signals: inside a packet; output wanted (one bit each); late bit there; stamp; goes out with an error.
    open: Signal
    to: Signal
    late: Signal
    stamp: Signal
    error: Signal
    #: What takes its flit: outputs that grant it; links that are dead, which drop what is left of a packet.
    grants: list[Value] = field(default_factory=list)
    drops: list[Value] = field(default_factory=list)


class Router(wiring.Component):
    """The router; one component for every node of a torus, its place is an input.

    Packets are never split up or mixed within a channel (wormhole): the first flit takes the output's channel, the last
    gives it back. A packet whose link is dead, or whose header cannot be followed here, leaves by the lane out of this
    node with ``error`` set in each flit; a packet cut short by a dead link is closed by an empty tail with ``error``;
    what is left of a packet whose link dies while it passes is dropped.

    Members
    -------
    x, y, last_x, last_y : In
        Place of the node, and that of the last node in each dimension; constant. The torus may be smaller than the
        config's.
    link_in : In(FlitPort), array of 4
        From the neighbours, by :class:`~.interface.Port`.
    link_out : Out(FlitPort), array of 4
    inject : In(stream of flits), array of 4 x 2
        Lanes into the network by port and message. The header must be complete but for the stamp; ``vc`` gives the
        order.
        ``ready`` does not depend on ``valid``.
    eject : Out(stream of flits), array of 4 x 2
        Lanes out. Whoever reads must always take responses in the end, whatever becomes of requests.
    passed : Out(4)
        A flit leaves by that link in this cycle; for counters.

    Raises
    ------
    TypeError
        If ``config`` is not a :class:`TorusConfig`.
    DeadlockError
        When elaborated, if the routing of the config's torus has a cycle.
    """

    def __init__(self, config: TorusConfig) -> None:
        if not isinstance(config, TorusConfig):
            raise TypeError(f"config must be a TorusConfig, not {config!r}")
        self._config = config
        lane = stream.Signature(flit_layout(config))
        ports, messages = len(Port), len(Message)
        super().__init__({
            "x": In(config.x_bits),
            "y": In(config.y_bits),
            "last_x": In(config.x_bits),
            "last_y": In(config.y_bits),
            "link_in": In(FlitPort(config)).array(ports),
            "link_out": Out(FlitPort(config)).array(ports),
            "inject": In(lane).array(ports, messages),
            "eject": Out(lane).array(ports, messages),
            "passed": Out(ports),
        })

    @property
    def config(self) -> TorusConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        check_deadlock_free(config, late_rule=next_late)
        # Everything from outside goes into a register first: no path leads through a router in one cycle.
        self._place = [Signal.like(self.x, name="place_x"), Signal.like(self.y, name="place_y")]
        self._edges = {}
        for name, here, pin, end in zip("xy", self._place, (self.x, self.y), (self.last_x, self.last_y), strict=True):
            first, last = Signal(name=f"{name}_first"), Signal(name=f"{name}_last")
            m.d.sync += [here.eq(pin), first.eq(pin == 0), last.eq(pin == end)]
            self._edges[name] = first, last

        self._dead = [Signal(name=f"dead{p}") for p in Port]
        self._ended = [Signal(name=f"ended{p}") for p in Port]
        for port in Port:
            m.d.sync += [
                self._dead[port].eq(self.link_out[port].dead), self._ended[port].eq(self.link_in[port].ended),
            ]  # fmt: skip
        # Stamp of the packet that last started on each link.
        link_stamp = [Signal(config.stamp_bits, name=f"link_stamp{p}") for p in Port]
        inputs: list[_Input] = []
        for port in Port:
            m.submodules[f"buffer{port}"] = buffer = InputBuffer(config)
            wiring.connect(m, wiring.flipped(self.link_in[port]), buffer.port)
            for vc in range(config.vcs):
                inputs.append(self._channel(m, port, vc, buffer))
        for port in Port:
            for message in Message:
                inputs.append(self._lane(m, port, message, link_stamp[port]))
        self._links(m, inputs, link_stamp)
        self._ejects(m, inputs)
        return m

    def _channel(self, m: Module, port: Port, vc: int, buffer: InputBuffer) -> _Input:
        """A virtual channel of a link."""
        name = f"in{port}_{vc}"
        message, order, late = vc_fields(self.config, vc)
        # A link of the second dimension of its order goes straight on or out.
        in_x = port in (Port.XP, Port.XM)
        turns = in_x == (order == Order.XY)
        ways = (port.opposite, *((Port.YP, Port.YM) if in_x else (Port.XP, Port.XM))) if turns else (port.opposite,)
        flit = Signal(flit_layout(self.config), name=f"{name}_flit")
        valid, pop = Signal(name=f"{name}_valid"), Signal(name=f"{name}_pop")
        stored, opened = buffer.flits[vc], Signal(name=f"{name}_open")
        # No tail will come any more: make one.
        cut = Signal(name=f"{name}_cut")
        m.d.comb += [
            cut.eq(self._ended[port] & opened & ~buffer.valid[vc]), valid.eq(buffer.valid[vc] | cut),
            buffer.pop[vc].eq(pop & ~cut), flit.data.eq(stored.data), flit.vc.eq(vc),
            flit.head.eq(stored.head & ~cut), flit.tail.eq(stored.tail | cut), flit.error.eq(stored.error | cut),
        ]  # fmt: skip
        header = header_of(self.config, flit)
        return self._track(
            m, name, header.stamp, lane=port, came=port, message=message, order=int(order), late=late, ways=ways,
            valid=valid, flit=flit, pop=pop, opened=opened,
        )  # fmt: skip

    def _lane(self, m: Module, port: Port, message: Message, link_stamp: Signal) -> _Input:
        """A lane from the node."""
        name = f"lane{port}_{message}"
        config = self.config
        m.submodules[f"{name}_queue"] = queue = LaneQueue(config)
        wiring.connect(m, wiring.flipped(self.inject[port][message]), queue.i)
        m.submodules[f"{name}_stamp"] = stamp = LaneStamp(config.stamp_bits)
        pop, opened = Signal(name=f"{name}_pop"), Signal(name=f"{name}_open")
        flit = Signal(flit_layout(config), name=f"{name}_flit")
        low = config.header_bits - config.stamp_bits
        data = queue.o.payload.data
        stamped = Cat(data[:low], stamp.stamp, data[config.header_bits :])
        m.d.comb += [
            queue.o.ready.eq(pop), flit.eq(queue.o.payload), flit.data.eq(Mux(queue.o.payload.head, stamped, data)),
            stamp.link.eq(link_stamp), stamp.sent.eq(pop), stamp.idle.eq(~queue.o.valid & ~opened),
        ]  # fmt: skip
        order = order_of(config, flit.vc)
        return self._track(
            m, name, stamp.stamp, lane=port, came=None, message=message, order=order, late=0, ways=(port,),
            valid=queue.o.valid, flit=flit, pop=pop, opened=opened,
        )  # fmt: skip

    def _track(self, m: Module, name: str, stamp: Value, *, lane: Port, came: Port | None, message: Message,
               order: Value | int, late: int, ways: tuple[int, ...], valid: Value, flit: View, pop: Signal,
               opened: Signal) -> _Input:  # fmt: skip
        """Route of the packet at the head of a queue, kept from its first flit to its last."""
        config = self.config
        header = header_of(config, flit)

        def signal(what: str, shape=1) -> Signal:
            return Signal(shape, name=f"{name}_{what}")

        go = [signal("go_x"), signal("go_y")]
        off = [header.dst_x != self._place[0], header.dst_y != self._place[1]]
        for bit, value in zip(go, turn(order, *off), strict=True):
            m.d.comb += bit.eq(value)
        first_to, first_late, first_error = signal("first_to", _LOCAL + 1), signal("first_late"), signal("first_error")
        lates = []
        for dim, (here, there, down, start) in enumerate((
            (self._place[0], header.dst_x, header.x_down, header.x_late),
            (self._place[1], header.dst_y, header.y_down, header.y_late),
        )):  # fmt: skip
            first, last = self._edges["xy"[dim]]
            ports = [port for port in ways if port // 2 == dim]
            if not ports:
                lates.append(0)
                continue
            there_after, there_before = there > here, there < here
            if len(ports) == 1:
                # Straight on, or a lane's own link: no need to look at the header.
                down = ports[0] & 1
                crossed, wrap, ahead = (last, first, there_after) if down else (first, last, there_before)
            else:
                crossed, wrap = Mux(down, last, first), Mux(down, first, last)
                ahead = Mux(down, there_after, there_before)
            same = int(came is not None and came // 2 == dim)
            value = next_late(same=same, crossed=crossed, wrap=wrap, ahead=ahead, late=late, start=start)
            lates.append(value[0])
            for port in ports:
                that_way = go[dim] if len(ports) == 1 else go[dim] & (down if port & 1 else ~down)
                m.d.comb += first_to[port].eq(that_way & ~self._dead[port])
        m.d.comb += [
            first_to[_LOCAL].eq(~first_to[:_LOCAL].any()), first_error.eq(first_to[_LOCAL] & (go[0] | go[1])),
            first_late.eq(Mux(go[0], lates[0], lates[1])),
        ]  # fmt: skip

        entry = _Input(
            lane=lane, message=message, order=order, ways=ways, valid=valid, flit=flit, pop=pop, open=opened,
            to=signal("to", _LOCAL + 1), late=signal("late"), stamp=signal("stamp", unsigned(config.stamp_bits)),
            error=signal("error"),
        )  # fmt: skip
        firsts = (first_to, first_late, stamp, first_error)
        for now, first in zip((entry.to, entry.late, entry.stamp, entry.error), firsts, strict=True):
            kept = Signal.like(now, name=f"{now.name}_kept", reset_less=True)
            m.d.comb += now.eq(Mux(opened, kept, first))
            with m.If(~opened):
                m.d.sync += kept.eq(now)
        with m.If(pop):
            m.d.sync += opened.eq(~flit.tail)
        return entry

    def _links(self, m: Module, inputs: list[_Input], link_stamp: list[Signal]) -> None:
        config = self.config
        for port in Port:
            out = self.link_out[port]
            name = f"out{port}"
            ours = [i for i, entry in enumerate(inputs) if port in entry.ways]
            m.submodules[f"{name}_arbiter"] = arbiter = EarliestArbiter(
                len(ours), bits=config.stamp_bits, patience_bits=config.patience_bits
            )
            busy, credit = Signal(config.vcs, name=f"{name}_busy"), Signal(config.vcs, name=f"{name}_credit")
            free, taken = Signal(config.vcs, name=f"{name}_free"), Signal(config.vcs, name=f"{name}_taken")
            counts = [Signal(range(config.vc_depth + 1), name=f"{name}_credits{vc}") for vc in range(config.vcs)]
            for vc in range(config.vcs):
                m.d.comb += credit[vc].eq(counts[vc] != 0)
                m.d.sync += counts[vc].eq(counts[vc] + out.credit[vc] - taken[vc])
            m.d.comb += free.eq(credit & ~busy)
            channels = []
            for place, i in enumerate(ours):
                entry = inputs[i]
                orders = [entry.order] if isinstance(entry.order, int) else list(range(config.orders))
                early = [vc_number(config, message=entry.message, order=order, late=0) for order in orders]
                late_bit, opened = entry.late, entry.open

                def pick(bits: Value, early=early, entry=entry, late_bit=late_bit) -> Value:
                    per_order = [Mux(late_bit, bits[vc + 1], bits[vc]) for vc in early]
                    return per_order[0] if len(per_order) == 1 else Mux(entry.order, per_order[1], per_order[0])

                channel = Signal(config.vc_bits, name=f"{name}_channel{place}")
                base = early[0] if len(early) == 1 else Mux(entry.order, early[1], early[0])
                m.d.comb += [
                    channel.eq(base | late_bit),
                    arbiter.want[place].eq(entry.valid & entry.to[port] & ~self._dead[port]),
                    arbiter.stamps[place].eq(entry.stamp),
                ]
                usable = pick(Mux(opened, credit, free))
                m.d.comb += arbiter.can[place].eq(arbiter.want[place] & usable)
                channels.append(channel)
                entry.grants.append(arbiter.grant[place])
                entry.drops.append(entry.valid & entry.open & entry.to[port] & self._dead[port])
            flit, channel = Signal.like(inputs[0].flit, name=f"{name}_flit"), Signal(config.vc_bits, name=f"{name}_vc")
            m.d.comb += [
                flit.eq(Array(Value.cast(inputs[i].flit) for i in ours)[arbiter.index]),
                channel.eq(Array(channels)[arbiter.index]), taken.eq(arbiter.any << channel),
                out.valid.eq(arbiter.any), out.flit.eq(flit), out.flit.vc.eq(channel),
                self.passed[port].eq(arbiter.any),
            ]  # fmt: skip
            with m.If(arbiter.any):
                m.d.sync += busy.eq(Mux(flit.tail, busy & ~taken, busy | taken))
                with m.If(flit.head):
                    m.d.sync += link_stamp[port].eq(Array(inputs[i].stamp for i in ours)[arbiter.index])

    def _ejects(self, m: Module, inputs: list[_Input]) -> None:
        config = self.config
        for port in Port:
            for message in Message:
                lane = self.eject[port][message]
                name = f"eject{port}_{message}"
                ours = [i for i, entry in enumerate(inputs) if entry.lane == port and entry.message == message]
                m.submodules[f"{name}_arbiter"] = arbiter = EarliestArbiter(
                    len(ours), bits=config.stamp_bits, patience_bits=config.patience_bits
                )
                m.submodules[f"{name}_queue"] = queue = LaneQueue(config)
                wiring.connect(m, queue.o, wiring.flipped(lane))
                busy, free = Signal(name=f"{name}_busy"), queue.i.ready
                flits = []
                for place, i in enumerate(ours):
                    entry = inputs[i]
                    m.d.comb += [
                        arbiter.want[place].eq(entry.valid & entry.to[_LOCAL]),
                        arbiter.can[place].eq(arbiter.want[place] & free & (entry.open | ~busy)),
                        arbiter.stamps[place].eq(entry.stamp),
                    ]
                    entry.grants.append(arbiter.grant[place])
                    flit = Signal.like(entry.flit, name=f"{name}_flit{place}")
                    m.d.comb += [flit.eq(entry.flit), flit.error.eq(entry.flit.error | entry.error)]
                    flits.append(Value.cast(flit))
                flit = Signal.like(lane.payload, name=f"{name}_flit")
                m.d.comb += [
                    flit.eq(Array(flits)[arbiter.index]), queue.i.valid.eq(arbiter.any), queue.i.payload.eq(flit),
                ]  # fmt: skip
                with m.If(arbiter.any):
                    m.d.sync += busy.eq(~flit.tail)
        for entry in inputs:
            m.d.comb += entry.pop.eq(Cat(*entry.grants).any() | reduce(or_, entry.drops))
