"""Verilog of a whole chip."""

from __future__ import annotations

from amaranth.lib.wiring import Component

from ..chip import Chip
from ..config import ChipConfig
from .verilog import to_verilog

__all__ = ["TOP", "chip_verilog"]

#: Name of the chip's Verilog module.
TOP = "sluice_top"


def chip_verilog(config: ChipConfig, *, emission: str = "structural", memory: Component | None = None) -> str:
    """One Verilog text whose top is ``sluice_top``: ``clk``, ``rst``, ``s_axil_*``, ``s_axi_*``, ``irq``.

    The same configuration, emission and memory (see :class:`~..chip.Chip`) give the same bytes.

    Raises
    ------
    ValueError
        For an unknown emission.
    """
    return to_verilog(Chip(config, emission=emission, memory=memory), name=TOP)
