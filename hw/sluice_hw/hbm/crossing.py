"""The slice port from one clock to another."""

from __future__ import annotations

from amaranth import Module, Value
from amaranth.lib import wiring
from amaranth.lib.fifo import AsyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from ..config import ChipConfig
from ..interfaces import SlicePortSignature
from .coded import CodedPortSignature

__all__ = ["SliceCrossing"]

#: Requests and answers on their way, and beats: enough that a stream does not stop for the pointers' synchronisers.
REQUESTS, BEATS = 4, 16


class SliceCrossing(wiring.Component):
    """Carries a slice port from the domain ``sync`` of its requesters to the domain ``memory``.

    Each of the five streams goes through a queue of its own with pointers in Gray code, each pointer through two
    registers. Constraint: the paths from one clock to the other may take up to a period of the faster clock
    (``set_max_delay -datapath_only``), bits of a pointer within a period of each other. A reset of one side needs one
    of the other.

    Parameters
    ----------
    config : ChipConfig
    coded : bool
        The port carries check bits.

    Members
    -------
    port : In(SlicePortSignature(config)), or In(CodedPortSignature(config))
        In ``sync``.
    memory : Out(of the same)
        In ``memory``.
    """

    def __init__(self, config: ChipConfig, *, coded: bool = False) -> None:
        signature = CodedPortSignature if coded else SlicePortSignature
        super().__init__({"port": In(signature(config)), "memory": Out(signature(config))})

    def elaborate(self, platform) -> Module:
        m = Module()
        for name, depth in (("read", REQUESTS), ("write", REQUESTS), ("write_data", BEATS)):
            self._carry(m, name, getattr(self.port, name), getattr(self.memory, name), depth, "sync", "memory")
        for name, depth in (("read_data", BEATS), ("write_done", REQUESTS)):
            self._carry(m, name, getattr(self.memory, name), getattr(self.port, name), depth, "memory", "sync")
        return m

    @staticmethod
    def _carry(m: Module, name: str, source, sink, depth: int, source_domain: str, sink_domain: str) -> None:
        payload = Value.cast(source.payload)
        fifo = AsyncFIFOBuffered(width=len(payload), depth=depth, w_domain=source_domain, r_domain=sink_domain)
        m.submodules[name] = fifo
        m.d.comb += [
            fifo.w_data.eq(payload),
            fifo.w_en.eq(source.valid),
            source.ready.eq(fifo.w_rdy),
            Value.cast(sink.payload).eq(fifo.r_data),
            sink.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(sink.ready),
        ]
