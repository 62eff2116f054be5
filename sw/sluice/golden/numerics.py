"""The numerics contract of the chip, bit for bit, in NumPy.

Hardware (``sluice_hw.arith``), compiler and tests all import from here; the files behind it have one subject each.

Integers
    int8 x int8 -> int32, two's complement. uint8 tensors enter as ``x - 128``. An accumulator that overflows wraps.
Requantise, two dialects
    ``fixed``: int32 multiplier and shift, ONE rounding (TFLite's single-rounding reference kernels).
    ``float``: int32 -> fp32, times an fp32 scale, to integer, each nearest even (ONNX QLinear*, XNNPACK).
    Then zero point, then clamp. A rescaled value saturates to int32; nothing after the accumulator wraps.
fp32 and bf16
    A subnormal operand reads as zero with its sign. A result is the IEEE 754 nearest-even result; if that is subnormal
    it becomes zero with its sign. Every NaN result is 0x7FC00000 (bf16: 0x7FC0).
"""

from sluice.golden.numerics_fixed import (
    avg_multiplier,
    mean_multiplier,
    quantize_multiplier,
    requantize_fixed,
    rescale_fixed,
)
from sluice.golden.numerics_float import (
    BF16_NAN,
    FP32_NAN,
    bf16_to_fp32,
    fp32_add,
    fp32_bits,
    fp32_flush,
    fp32_from_bits,
    fp32_mul,
    fp32_to_bf16,
    fp32_to_int32,
    int32_to_fp32,
    requantize_float,
    rescale_float,
)
from sluice.golden.numerics_int import (
    apply_zero_points,
    clamp_int8,
    conv2d_int8,
    conv_output_size,
    fold_zero_point,
    im2col,
    matmul_int8,
    uint8_to_int8,
    wrap_int32,
)
from sluice.golden.numerics_ops import (
    ADD_LEFT_SHIFT,
    AddMultipliers,
    activation_bounds,
    add_fixed,
    add_float,
    add_multipliers,
    add_ratios,
    average_scale,
    avg_pool_fixed,
    avg_pool_float,
    max_pool_int8,
    mean_fixed,
    mean_float,
    mul_fixed,
    mul_float,
    window_count,
    window_sum,
)

__all__ = [
    "ADD_LEFT_SHIFT",
    "BF16_NAN",
    "FP32_NAN",
    "AddMultipliers",
    "activation_bounds",
    "add_fixed",
    "add_float",
    "add_multipliers",
    "add_ratios",
    "apply_zero_points",
    "average_scale",
    "avg_multiplier",
    "avg_pool_fixed",
    "avg_pool_float",
    "bf16_to_fp32",
    "clamp_int8",
    "conv2d_int8",
    "conv_output_size",
    "fold_zero_point",
    "fp32_add",
    "fp32_bits",
    "fp32_flush",
    "fp32_from_bits",
    "fp32_mul",
    "fp32_to_bf16",
    "fp32_to_int32",
    "im2col",
    "int32_to_fp32",
    "matmul_int8",
    "max_pool_int8",
    "mean_fixed",
    "mean_float",
    "mean_multiplier",
    "mul_fixed",
    "mul_float",
    "quantize_multiplier",
    "requantize_fixed",
    "requantize_float",
    "rescale_fixed",
    "rescale_float",
    "uint8_to_int8",
    "window_count",
    "window_sum",
    "wrap_int32",
]
