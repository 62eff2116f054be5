"""A chip and the memory behind its pins, with the ports that every chip has: what is simulated."""

from __future__ import annotations

from amaranth.hdl import DomainRenamer, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from ..chip import Chip
from ..config import ChipConfig
from ..hbm.back_end import memory_members
from ..hbm.dram_config import DramConfig
from ..host.ports import axi4_members, axi_lite_members, forward
from .axi4 import Axi4Ram
from .dram import DramChannels

__all__ = ["ChipWithMemory"]


class ChipWithMemory(wiring.Component):
    """A chip whose memory is outside, ``chip``, and a device for it, ``memory``.

    Parameters
    ----------
    config : ChipConfig
        With any memory but ``sram``.
    emission, id_bits
        As for :class:`~..chip.Chip`.
    device : Component, optional
        In the place of :class:`.DramChannels` or :class:`.Axi4Ram`, with the same ports.

    Members
    -------
    As of the chip, without the memory's pins.

    Raises
    ------
    ValueError
        For a chip that needs none.
    """

    def __init__(
        self, config: ChipConfig, *, emission: str = "structural", id_bits: int = 4,
        device: wiring.Component | None = None,
    ) -> None:  # fmt: skip
        if config.memory == "sram":
            raise ValueError(f"memory of a chip with a device behind it must be outside, not {config.memory!r}")
        self._config = config
        self._chip = Chip(config, emission=emission, id_bits=id_bits)
        if device is None:
            device = DramChannels(DramConfig.of(config)) if config.is_dram else Axi4Ram(config)
        self._device = device
        self._host = {**axi_lite_members(), **axi4_members(id_bits), "irq": Out(1)}
        super().__init__(self._host)

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        chip, device = self._chip, self._device
        m.submodules.chip = chip
        m.submodules.memory = DomainRenamer("memory")(device) if self._config.memory_crosses else device
        forward(m, self, chip, self._host)
        for name, member in memory_members(self._config).items():
            giver, taker = (chip, device) if member.flow is Out else (device, chip)
            m.d.comb += getattr(taker, name).eq(getattr(giver, name))
        return m
