"""The memory path of a chip with the device behind its pins: what its bench needs."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from sluice_hw import isa
from sluice_hw.behind import Axi4Ram, DramChannels
from sluice_hw.config import ChipConfig
from sluice_hw.hbm.back_end import BackEnd, memory_members
from sluice_hw.hbm.dram_config import DramConfig
from sluice_hw.interfaces import SlicePortSignature

__all__ = ["CONFIGS", "BackedPort"]

#: Memories of other kinds and widths than those of the system tests.
CONFIGS: dict[str, ChipConfig] = {
    "axi4": ChipConfig(memory="axi4", ecc="device", hbm_bytes=1 << 16),
    "axi4-long": ChipConfig(memory="axi4", slice_bytes=16384, hbm_bytes=1 << 19),
    "hbm3": ChipConfig(memory="hbm3", slice_bytes=8192, hbm_bytes=1 << 19),
    "channels": ChipConfig(
        memory="hbm2", dram_gigabits=8, dram_refresh="all-bank", ecc="sideband", hbm_bytes_per_cycle=64,
        slice_bytes=16384, hbm_bytes=1 << 20,
    ),
}  # fmt: skip


class BackedPort(wiring.Component):
    """A slice port, ``cut``, and ``state``."""

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        super().__init__({"port": In(SlicePortSignature(config)), "cut": In(1), "state": Out(isa.Cause)})

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        m.submodules.back = back = BackEnd(config)
        device = DramChannels(DramConfig.of(config)) if config.is_dram else Axi4Ram(config)
        m.submodules.device = device
        connect(m, flipped(self.port), back.port)
        m.d.comb += [back.cut.eq(self.cut), self.state.eq(back.state)]
        for name, member in memory_members(config).items():
            giver, taker = (back, device) if member.flow is Out else (device, back)
            m.d.comb += getattr(taker, name).eq(getattr(giver, name))
        return m
