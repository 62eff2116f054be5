"""Verilog of a whole chip."""

from __future__ import annotations

from amaranth.lib.wiring import Component

from ..behind.top import ChipWithMemory
from ..chip import Chip
from ..config import ChipConfig
from .verilog import to_verilog

__all__ = ["TOP", "chip_verilog"]

#: Name of the chip's Verilog module.
TOP = "sluice_top"


def chip_verilog(
    config: ChipConfig, *, emission: str = "structural", memory: Component | None = None, simulated: bool = False,
    device: Component | None = None,
) -> str:
    """One Verilog text whose top is ``sluice_top``: ``clk``, ``rst``, ``s_axil_*``, ``s_axi_*``, ``irq``, and the
    memory's pins where it is outside of the chip (:func:`~..hbm.back_end.memory_members`), with ``memory_clk`` and
    ``memory_rst`` where it has a clock of its own.

    The same arguments give the same bytes.

    Parameters
    ----------
    memory
        As for :class:`~..chip.Chip`.
    simulated
        A memory outside comes with its device: the top is :class:`~..behind.top.ChipWithMemory` and has no such pins.
    device
        As for it.

    Raises
    ------
    ValueError
        For an unknown emission.
    """
    if simulated and memory is None and config.memory != "sram":
        return to_verilog(ChipWithMemory(config, emission=emission, device=device), name=TOP)
    return to_verilog(Chip(config, emission=emission, memory=memory), name=TOP)
