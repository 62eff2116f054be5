"""DMA engines between HBM slices and VMEM rows: one loads, one stores."""

from .load import DmaLoad
from .store import DmaStore

__all__ = ["DmaLoad", "DmaStore"]
