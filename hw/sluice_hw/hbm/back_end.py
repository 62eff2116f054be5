"""What a chip has between its requesters and the pins of a memory outside: soft resets, ECC, the controller."""

from __future__ import annotations

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Member, Out, connect, flipped

from .. import isa
from ..config import ChipConfig
from ..host.ports import forward
from ..interfaces import SlicePortSignature
from .axi4 import Axi4Memory, axi4_manager_members
from .controller import DramController
from .crossing import SliceCrossing
from .drain import SliceDrain
from .dram import connect_pins, pin_members
from .dram_config import DramConfig
from .errors import injection_layout
from .guard import EccGuard, EccStatusSignature

__all__ = ["AXI_ADDRESS_BITS", "AXI_ID_BITS", "BackEnd", "memory_members"]

#: Of the port ``m_axi_*``.
AXI_ADDRESS_BITS, AXI_ID_BITS = 40, 4


def memory_members(config: ChipConfig) -> dict[str, Member]:
    """Ports of a chip for the memory that its configuration names: ``dram_*``, ``m_axi_*``, or none."""
    if config.is_dram:
        return pin_members(DramConfig.of(config))
    return axi4_manager_members(AXI_ADDRESS_BITS, AXI_ID_BITS) if config.memory == "axi4" else {}


class BackEnd(wiring.Component):
    """The memory path of a chip whose ``memory`` is DRAM or AXI4.

    In the order from the requesters: :class:`.SliceDrain`, the :class:`.EccGuard` that ``config.ecc`` asks for, and a
    :class:`.DramController` or an :class:`.Axi4Memory`. A soft reset drains them; after that the DRAM controller is
    reset, which ends a fault. AXI4 bursts are never cut off. With ``config.memory_crosses`` the controller's clock is
    that of domain ``memory``, behind a :class:`.SliceCrossing`; resets of both domains come together.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    port : In(SlicePortSignature(config))
    cut : In(1)
        The requesters are reset behind this cycle.
    state : Out(isa.Cause)
        Of :class:`.SliceDrain`.
    period, inject, clear, status
        Of :class:`.EccGuard`, where there is one.
    others
        Of :func:`memory_members`.
    """

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        if config.memory == "sram":
            raise ValueError("memory of a chip with a back end must be outside of the chip, not 'sram'")
        self._config = config
        ecc = {} if config.ecc == "off" else {
            "period": In(32), "inject": In(stream.Signature(injection_layout(config))), "clear": In(1),
            "status": Out(EccStatusSignature(config)),
        }  # fmt: skip
        super().__init__({
            "port": In(SlicePortSignature(config)), "cut": In(1), "state": Out(isa.Cause), **ecc,
            **memory_members(config),
        })  # fmt: skip

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        # All of the memory, check slices included.
        whole = config.replace(hbm_bytes=config.memory_slices * config.slice_bytes)
        # Long enough for a reset to reach a slower clock.
        settle = 2 * (4 + 4 * -(-config.core_clocks // config.memory_clocks))
        m.submodules.drain = drain = SliceDrain(config, settle=settle)
        connect(m, flipped(self.port), drain.port)
        m.d.comb += [drain.cut.eq(self.cut), self.state.eq(drain.state)]
        inner = drain.memory
        if config.ecc != "off":
            m.submodules.ecc = ecc = EccGuard(whole, mode=config.ecc, stored=config.ecc == "sideband")
            connect(m, inner, ecc.port)
            connect(m, flipped(self.inject), ecc.inject)
            connect(m, ecc.status, flipped(self.status))
            m.d.comb += [ecc.period.eq(self.period), ecc.clear.eq(self.clear)]
            inner = ecc.memory
        if config.memory == "axi4":
            m.submodules.axi = axi = Axi4Memory(whole, address_bits=AXI_ADDRESS_BITS, id_bits=AXI_ID_BITS)
            connect(m, inner, axi.port)
            forward(m, self, axi, memory_members(config))
        else:
            self._dram(m, inner, drain.reset)
        return m

    def _dram(self, m: Module, inner, reset: Signal) -> None:
        config = DramConfig.of(self._config)
        m.domains += ClockDomain("dram", local=True)
        outside, cut = "sync", reset
        if config.crosses:
            outside, cut = "memory", Signal()
            m.submodules.reset = FFSynchronizer(reset, cut, o_domain=outside)
            m.submodules.crossing = crossing = SliceCrossing(self._config, coded=config.coded)
            connect(m, inner, crossing.port)
            inner = crossing.memory
        m.d.comb += [ClockSignal("dram").eq(ClockSignal(outside)), ResetSignal("dram").eq(ResetSignal(outside) | cut)]
        controller = DramController(config)
        m.submodules.controller = DomainRenamer("dram")(controller)
        connect(m, inner, controller.port)
        m.d.comb += [controller.lo.eq(0), controller.hi.eq(self._config.hbm_slices)]
        connect_pins(m, self, config, controller.dram)
