"""Input buffers of a router: a queue for each virtual channel of a link."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from .config import TorusConfig
from .interface import FlitPort

__all__ = ["InputBuffer", "stored_layout"]


def stored_layout(config: TorusConfig) -> data.StructLayout:
    """A flit without its channel, which is where it is stored."""
    return data.StructLayout({"data": unsigned(config.data_bits), "head": 1, "tail": 1, "error": 1})


class InputBuffer(wiring.Component):
    """The receiving end of a :class:`~.interface.FlitPort`: every channel's first flit at once.

    A flit can leave in the cycle behind the one it came in. Credits are given for all places in the first cycles after
    reset, in which no flit leaves, then one for every flit that leaves.

    Members
    -------
    port : In(FlitPort)
    valid : Out(vcs)
        Channels that have a flit.
    flits : Out(ArrayLayout(stored_layout, vcs))
        Their first flits.
    pop : In(vcs)
        Take these flits away; only where ``valid``.
    """

    def __init__(self, config: TorusConfig) -> None:
        if not isinstance(config, TorusConfig):
            raise TypeError(f"config must be a TorusConfig, not {config!r}")
        self._config = config
        # Here, so that proofs can name them. One bit more than an address needs: equal means empty, and credits see to
        # it that they are never further apart than the depth.
        bits = config.vc_depth.bit_length()
        self._firsts = [Signal(bits, name=f"first{vc}") for vc in range(config.vcs)]
        self._lasts = [Signal(bits, name=f"last{vc}") for vc in range(config.vcs)]
        self._granted = Signal(range(config.vc_depth + 1))
        super().__init__({
            "port": In(FlitPort(config)),
            "valid": Out(config.vcs),
            "flits": Out(data.ArrayLayout(stored_layout(config), config.vcs)),
            "pop": In(config.vcs),
        })

    @property
    def config(self) -> TorusConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        depth, port = self.config.vc_depth, self.port
        granted, ready = self._granted, Signal()
        m.d.comb += ready.eq(granted == depth)
        with m.If(~ready):
            m.d.sync += granted.eq(granted + 1)
        for vc in range(self.config.vcs):
            push, pop = Signal(name=f"push{vc}"), self.pop[vc]
            m.d.comb += [push.eq(port.valid & (port.flit.vc == vc)), port.credit[vc].eq(pop | ~ready)]
            store = memory.Memory(shape=stored_layout(self.config), depth=depth, init=[])
            m.submodules[f"store{vc}"] = store
            write, read = store.write_port(), store.read_port(domain="comb")
            first, last = self._firsts[vc], self._lasts[vc]
            m.d.comb += [
                write.en.eq(push), write.addr.eq(last), read.addr.eq(first),
                write.data.data.eq(port.flit.data), write.data.head.eq(port.flit.head),
                write.data.tail.eq(port.flit.tail), write.data.error.eq(port.flit.error),
                self.valid[vc].eq(ready & (first != last)), self.flits[vc].eq(read.data),
            ]  # fmt: skip
            for here, move in ((last, push), (first, pop)):
                with m.If(move):
                    m.d.sync += here.eq(here + 1)
        return m
