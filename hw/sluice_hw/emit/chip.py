"""Verilog of a whole chip."""

from __future__ import annotations

from ..chip import Chip
from ..config import ChipConfig
from .verilog import to_verilog

__all__ = ["TOP", "chip_verilog"]

#: Name of the chip's Verilog module.
TOP = "sluice_top"


def chip_verilog(config: ChipConfig, *, emission: str = "structural") -> str:
    """One Verilog text whose top is ``sluice_top``: ``clk``, ``rst``, ``s_axil_*``, ``s_axi_*``, ``irq``.

    The same configuration and emission give the same bytes.

    Raises
    ------
    ValueError
        For an unknown emission.
    """
    return to_verilog(Chip(config, emission=emission), name=TOP)
