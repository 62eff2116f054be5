"""What stands behind a chip's memory pins in simulation: behavioural devices, and chip and device in one piece."""

from .axi4 import Axi4Ram
from .dram import DramChannels
from .top import ChipWithMemory

__all__ = ["Axi4Ram", "ChipWithMemory", "DramChannels"]
