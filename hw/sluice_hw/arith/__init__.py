"""Arithmetic units of the numerics contract, as lanes: fixed-latency pipelines that accept an input every cycle.

A lane is a pure function of its inputs, so one module serves every lane of a vector unit.
"""

from .add import Fp32Add
from .bf16 import Bf16Mul
from .clamp import ZeroPointClamp
from .fixed import RequantFixed, Rounding
from .format import BF16, FP32, FloatFormat
from .fp32 import Fp32Mul, Fp32ToInt, IntToFp32
from .lane import Lane

__all__ = [
    "BF16",
    "FP32",
    "Bf16Mul",
    "FloatFormat",
    "Fp32Add",
    "Fp32Mul",
    "Fp32ToInt",
    "IntToFp32",
    "Lane",
    "RequantFixed",
    "Rounding",
    "ZeroPointClamp",
]
