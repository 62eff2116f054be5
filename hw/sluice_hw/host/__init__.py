"""Host side of the chip: AXI4-Lite registers, AXI4 data port, interrupt."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from ..config import ChipConfig
from ..interfaces import SlicePortSignature
from ..sequencer import UcodePortSignature
from .axi import HostAxi
from .axil import CsrBusSignature, HostAxiLite
from .ports import axi4_members, axi_lite_members, forward
from .registers import Registers, control_members, unit_status_layout
from .slice_buffer import SliceBuffer

__all__ = [
    "CsrBusSignature", "Host", "HostAxi", "HostAxiLite", "Registers", "SliceBuffer", "axi4_members", "axi_lite_members",
    "control_members", "forward", "unit_status_layout",
]


class Host(wiring.Component):
    """Everything that the host talks to; none of it is reset by a soft reset.

    Parameters
    ----------
    config : ChipConfig
    id_bits : int
        Width of AXI ids.

    Members
    -------
    s_axil_* : AXI4-Lite (:func:`axi_lite_members`)
    s_axi_* : AXI4 (:func:`axi4_members`)
    hbm : Out(SlicePortSignature)
    ucode : Out(UcodePortSignature)
    and those of :func:`control_members`, with ``irq`` and ``core_reset`` among them
    """

    def __init__(self, *, config: ChipConfig, id_bits: int = 4) -> None:
        self._config = config
        self._id_bits = id_bits
        super().__init__({
            **axi_lite_members(),
            **axi4_members(id_bits),
            "hbm": Out(SlicePortSignature(config)),
            "ucode": Out(UcodePortSignature(config)),
            **control_members(config),
        })

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.axil = axil = HostAxiLite()
        m.submodules.registers = registers = Registers(config=self.config)
        m.submodules.axi = axi = HostAxi(config=self.config, id_bits=self._id_bits)
        m.submodules.slice_buffer = buffer = SliceBuffer(config=self.config)
        forward(m, self, axil, axi_lite_members())
        forward(m, self, axi, axi4_members(self._id_bits))
        connect(m, axil.bus, registers.bus)
        connect(m, axi.ucode, flipped(self.ucode))
        connect(m, buffer.hbm, flipped(self.hbm))
        for name, member in control_members(self.config).items():
            outer, inner = getattr(self, name), getattr(registers, name)
            pairs = zip(outer, inner, strict=True) if member.dimensions else [(outer, inner)]
            for o, i in pairs:
                m.d.comb += o.eq(i) if member.flow is Out else i.eq(o)
        for name in ("want", "slice", "fresh", "word", "write", "write_data", "read", "discard"):
            m.d.comb += getattr(buffer, name).eq(getattr(axi, name))
        m.d.comb += [
            axi.hit.eq(buffer.hit),
            axi.failed.eq(buffer.failed),
            axi.read_data.eq(buffer.read_data),
            buffer.flush.eq(axi.flush_buffer),
            axi.buffer_flushed.eq(buffer.flushed),
            axi.running.eq(self.running),
            axi.flush.eq(registers.flush),
            registers.flushed.eq(axi.flushed),
            buffer.hold.eq(registers.hold),
            registers.train_idle.eq(buffer.idle),
            registers.write_error.eq(buffer.write_error),
        ]
        return m
