"""A node's table of routes, one entry per destination and order, which software writes from a plan.

The hardware's half of :class:`~.routing.RoutePlan`: ``plan.table(node, order)`` gives the codes that
:func:`route_entry` turns into entries. After reset, and for nodes that no plan reaches, an entry is 0: no route.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out, Signature

from .config import TorusConfig

__all__ = ["RouteTable", "RouteWrite", "entry_layout", "route_entry"]


def entry_layout() -> data.StructLayout:
    """A route: :meth:`.routing.Choice.code`, and ``known`` above it."""
    names = ("order", "x_down", "y_down", "x_late", "y_late", "known")
    return data.StructLayout(dict.fromkeys(names, unsigned(1)))


def route_entry(code: int | None) -> int:
    """The entry for a code of :meth:`.routing.RoutePlan.table`."""
    return 0 if code is None else code | 1 << 5


class RouteWrite(Signature):
    """Sets an entry in a cycle with ``write``: that of destination ``x``, ``y`` for packets that wish for ``order``."""

    def __init__(self, config: TorusConfig) -> None:
        self.config = config
        super().__init__(
            {
                "write": Out(1),
                "x": Out(config.x_bits),
                "y": Out(config.y_bits),
                "order": Out(1),
                "entry": Out(entry_layout()),
            }
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RouteWrite) and self.config == other.config


class RouteTable(wiring.Component):
    """Memory of routes; a write is seen by reads from the next cycle on.

    After reset entries are cleared, one per cycle; until then all read as 0 and writes are ignored.

    Members
    -------
    write : In(RouteWrite)
    ready : Out(1)
        Cleared.
    x, y, order : In, arrays with an element per reader
        Destination, and the order wished for.
    entry : Out(entry_layout()), likewise
        In the same cycle.
    """

    def __init__(self, config: TorusConfig, *, readers: int) -> None:
        self._config, self._readers = config, readers
        super().__init__(
            {
                "write": In(RouteWrite(config)),
                "ready": Out(1),
                "x": In(config.x_bits).array(readers),
                "y": In(config.y_bits).array(readers),
                "order": In(1).array(readers),
                "entry": Out(entry_layout()).array(readers),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        bits = self._config.x_bits + self._config.y_bits + 1
        m.submodules.entries = entries = memory.Memory(shape=unsigned(entry_layout().size), depth=1 << bits, init=[])
        write, w = entries.write_port(), self.write
        place = Signal(bits + 1)
        m.d.comb += self.ready.eq(place[-1])
        with m.If(self.ready):
            m.d.comb += [write.en.eq(w.write), write.addr.eq(Cat(w.x, w.y, w.order)), write.data.eq(w.entry)]
        with m.Else():
            m.d.comb += [write.en.eq(1), write.addr.eq(place)]
            m.d.sync += place.eq(place + 1)
        for k in range(self._readers):
            read = entries.read_port(domain="comb")
            m.d.comb += read.addr.eq(Cat(self.x[k], self.y[k], self.order[k]))
            with m.If(self.ready):
                m.d.comb += self.entry[k].eq(read.data)
        return m
