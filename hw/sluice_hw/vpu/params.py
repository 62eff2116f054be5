"""Per-channel parameters: double-buffered bias, multiplier and shift registers, loaded from VMEM."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from ..config import ChipConfig
from ..interfaces import ADDR_BITS, VmemReadSignature

__all__ = ["PARAM_READS", "ParamRegisters", "param_layout"]

#: VMEM reads of ``cols`` bytes that make up a parameter block of 9 bytes a column.
PARAM_READS = 9


def param_layout(cols: int) -> data.StructLayout:
    """A parameter block as it lies in VMEM: bias int32, multiplier (int32 or fp32 bits), shift, each of all columns."""
    return data.StructLayout({
        "bias": data.ArrayLayout(signed(32), cols),
        "multiplier": data.ArrayLayout(32, cols),
        "shift": data.ArrayLayout(8, cols),
    })


class ParamRegisters(Component):
    """Loads a parameter block into the next registers while the active ones are in use.

    ``load`` (with ``base``) starts when not ``busy``; ``loaded`` is high while the next registers hold a block that was
    not taken over yet; ``take`` moves it into ``active``.

    Members
    -------
    load, take : In(1)
    base : In(32)
    busy, done, loaded, waiting : Out(1)
        ``done`` pulses when a load ends; ``waiting`` is high in a cycle whose request VMEM refuses.
    active : Out(param_layout(cols))
    vmem : VMEM read port
    """

    def __init__(self, *, config: ChipConfig) -> None:
        self._config = config
        super().__init__({
            "load": In(1), "take": In(1), "base": In(ADDR_BITS),
            "busy": Out(1), "done": Out(1), "loaded": Out(1), "waiting": Out(1),
            "active": Out(param_layout(config.cols)),
            "vmem": Out(VmemReadSignature(config.word_bytes)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        cols = self._config.cols
        chunk = data.ArrayLayout(8 * cols, PARAM_READS)
        following = Signal(chunk, reset_less=True)
        asked = Signal(range(PARAM_READS + 1), init=PARAM_READS)
        got = Signal(range(PARAM_READS + 1), init=PARAM_READS)
        addr = Signal(ADDR_BITS, reset_less=True)
        m.d.comb += [
            self.vmem.req.valid.eq(asked != PARAM_READS),
            self.vmem.req.payload.addr.eq(addr),
            self.busy.eq(got != PARAM_READS),
            self.waiting.eq(self.vmem.req.valid & ~self.vmem.req.ready),
        ]
        m.d.sync += self.done.eq(0)
        with m.If(self.load & ~self.busy):
            m.d.sync += [asked.eq(0), got.eq(0), addr.eq(self.base)]
        with m.If(self.vmem.req.valid & self.vmem.req.ready):
            m.d.sync += [asked.eq(asked + 1), addr.eq(addr + cols)]
        with m.If(self.busy & self.vmem.rsp_valid):
            m.d.sync += got.eq(got + 1)
            for i in range(PARAM_READS):
                with m.If(got == i):
                    m.d.sync += following[i].eq(Cat(self.vmem.rsp_data[j] for j in range(cols)))
            with m.If(got == PARAM_READS - 1):
                m.d.sync += [self.loaded.eq(1), self.done.eq(1)]
        with m.If(self.take):
            m.d.sync += [self.active.as_value().eq(following.as_value()), self.loaded.eq(0)]
        return m
