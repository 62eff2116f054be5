"""Errors of the functions against float64, and the inputs they are measured on.

The reference is the float64 value, rounded to nearest even and flushed by the contract. An error is counted in ULP of
the format at the reference: the distance from the result to the float64 value, and 0.5 at most where the result is the
reference itself (flushed and overflowing values have no other measure). So 0.5 means: correctly rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sluice.golden.functions import Function, apply
from sluice.golden.numerics_float import bf16_to_fp32, fp32_bits, fp32_flush

__all__ = ["FP32_INPUTS", "Worst", "bf16_inputs", "exact", "fp32_inputs", "reference", "worst"]

#: How many fp32 inputs the figures are of.
FP32_INPUTS = 1_000_000

_TINY_TIE = 2.0**-126 - 2.0**-150


@dataclass(frozen=True)
class Worst:
    """The largest error: in ULP, and the bit pattern of the input; how many results are not the reference."""

    ulp: float
    at: int
    differing: int


def bf16_inputs() -> np.ndarray:
    """All 65,536 bf16 values as float32."""
    return bf16_to_fp32(np.arange(1 << 16).astype(np.uint16))


def fp32_inputs(function: Function, count: int = FP32_INPUTS, seed: int = 1) -> np.ndarray:
    """``count`` float32 values: half are any bit patterns, half lie where the function is neither constant nor x.

    The edges that matter are among them: zeros, infinities, NaN, the ends of the normal range, neighbours of powers of
    two.
    """
    rng = np.random.default_rng([seed, int(function)])
    powers = (np.arange(1, 255, dtype=np.int64)[:, None] << 23) + np.arange(-2, 3)
    edges = np.concatenate([powers.reshape(-1), [0, 1, 0x7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000]])
    edges = np.concatenate([edges, edges | 1 << 31]).astype(np.uint32).view(np.float32)[:count]
    count -= len(edges)
    anything = rng.integers(0, 1 << 32, count // 2, dtype=np.uint32).view(np.float32)
    count -= len(anything)
    reach = {Function.EXP: 88.8, Function.SIGMOID: 89.0, Function.SILU: 92.0, Function.GELU: 14.0, Function.TANH: 9.5,
             Function.ERF: 4.2}.get(function, 4.0)  # fmt: skip
    linear = rng.uniform(-reach, reach, count // 2)
    count -= len(linear)
    octaves = np.exp2(rng.uniform(-14, math.log2(reach), count)) * rng.choice([-1.0, 1.0], count)
    if function in (Function.LOG, Function.RSQRT, Function.SQRT):
        linear, octaves = np.abs(linear), np.abs(octaves)
    return np.concatenate([edges, anything, linear.astype(np.float32), octaves.astype(np.float32)])


def exact(function: Function, x: np.ndarray) -> np.ndarray:
    """The function of fp32 values in float64; limits at the infinities."""
    x = fp32_flush(x).astype(np.float64)
    with np.errstate(all="ignore"):
        return _EXACT[Function(function)](x)


def _map(function, x: np.ndarray) -> np.ndarray:
    return np.fromiter(map(function, x.reshape(-1).tolist()), np.float64, x.size).reshape(x.shape)


def _gelu(x: np.ndarray) -> np.ndarray:
    tail = _map(math.erfc, np.where(np.isfinite(x), -x, 0.0) / math.sqrt(2))
    return np.where(np.isneginf(x), -0.0, np.where(np.isfinite(x), x * 0.5 * tail, x))


_EXACT = {
    Function.EXP: np.exp,
    Function.LOG: np.log,
    Function.TANH: np.tanh,
    Function.SIGMOID: lambda x: np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x))),
    Function.ERF: lambda x: _map(math.erf, x),
    Function.GELU: _gelu,
    Function.SILU: lambda x: np.where(
        np.isneginf(x), -0.0, np.where(x < 0, x * (np.exp(x) / (1 + np.exp(x))), x / (1 + np.exp(-x)))
    ),
    Function.RECIPROCAL: lambda x: 1 / x,
    Function.RSQRT: lambda x: 1 / np.sqrt(x),
    Function.SQRT: np.sqrt,
}


def reference(value: np.ndarray, *, bf16: bool = False) -> np.ndarray:
    """float64 rounded to nearest even once, to fp32 or bf16, and flushed: float32."""
    keep = 8 if bf16 else 24
    with np.errstate(all="ignore"):
        man, exp = np.frexp(value)
        rounded = np.ldexp(np.rint(np.ldexp(man, keep)), exp - keep)
        magnitude = np.where(np.abs(value) < _TINY_TIE, 0.0, np.maximum(np.abs(rounded), 2.0**-126))
        magnitude = np.where(np.isnan(value), value, magnitude)
        return fp32_flush(np.copysign(magnitude, value).astype(np.float32))


def worst(function: Function, x: np.ndarray, *, bf16: bool = False, result: np.ndarray | None = None) -> Worst:
    """The largest error over ``x``.

    Parameters
    ----------
    result
        What is judged; by default golden's.
    """
    got = apply(function, x, bf16=bf16) if result is None else result
    value = exact(function, x)
    wanted = reference(value, bf16=bf16)
    same = fp32_bits(got) == fp32_bits(wanted)
    with np.errstate(all="ignore"):
        measured = np.where(np.isfinite(wanted) & (wanted != 0), wanted, np.float32(2.0**-126))
        ulp = np.ldexp(1.0, np.frexp(measured)[1] - (8 if bf16 else 24))
        error = np.abs(got.astype(np.float64) - value) / ulp
    error = np.where(same, np.minimum(np.nan_to_num(error, nan=0.0), 0.5), np.nan_to_num(error, nan=np.inf))
    at = int(np.argmax(error))
    return Worst(float(error[at]), int(fp32_bits(np.asarray(x, np.float32))[at]), int((~same).sum()))
