"""HBM behind the slice port: the arbiter of its requesters, and back ends."""

from .arbiter import SliceArbiter
from .sram import SliceMemory

__all__ = ["SliceArbiter", "SliceMemory"]
