"""The vector unit: what stands between the accumulators and VMEM, in C lanes."""

from .unit import Vpu

__all__ = ["Vpu"]
