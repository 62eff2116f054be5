"""The vector unit: what stands between the accumulators and VMEM, in C lanes."""

from .float_unit import FloatUnit
from .unit import Vpu

__all__ = ["FloatUnit", "Vpu"]
