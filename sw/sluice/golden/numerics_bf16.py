"""bf16 by the contract: what the array and its accumulators compute from bf16 operands.

A bf16 number is a uint16 bit pattern. A product of two of them has a significand of 16 bits, so that in fp32 it is
exact; at 2^128 and beyond it is an infinity, below 2^-126 a zero with its sign. A column of the array starts from +0
and adds row 0, row 1, ... of the tile, each sum rounded and flushed; rows behind the end of K multiply zeros. The sums
of the tiles of K are then added to the accumulator in their order. So a result depends on the rows of the array.
"""

from __future__ import annotations

import numpy as np

from sluice.golden.numerics_float import (
    FP32_NAN,
    fp32_add,
    fp32_flush,
)
from sluice.golden.numerics_float import bf16_to_fp32 as from_bf16
from sluice.golden.numerics_float import fp32_to_bf16 as to_bf16

__all__ = [
    "bf16_mul",
    "column_sum",
    "fp32_add",
    "from_bf16",
    "matmul_bf16",
    "to_bf16",
]

_TINY = np.float32(2.0**-126)
_SIGN = np.uint32(0x80000000)


def _settle(x: np.ndarray) -> np.ndarray:
    """Flush a fresh float32 array in place: as :func:`fp32_flush`, in fewer passes."""
    small = np.abs(x) < _TINY
    if small.any():
        x.view(np.uint32)[small] &= _SIGN
    nan = np.isnan(x)
    if nan.any():
        x.view(np.uint32)[nan] = FP32_NAN
    return x


def bf16_mul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply bf16 bit patterns (uint16, broadcast against each other); the products are float32."""
    with np.errstate(all="ignore"):
        return fp32_flush(np.multiply(from_bf16(a), from_bf16(b), dtype=np.float32))


def _operands(a: np.ndarray, w: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    a, w = np.asarray(a), np.asarray(w)
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 1:
        raise ValueError(f"rows must be a positive integer, not {rows!r}")
    if a.ndim != 2 or w.ndim != 2 or a.shape[1] != w.shape[0]:
        raise ValueError(f"operands must be (M, K) and (K, C), not {a.shape} and {w.shape}")
    return from_bf16(a), from_bf16(w)


def _column(x: np.ndarray, y: np.ndarray, rows: int) -> np.ndarray:
    total = np.zeros((x.shape[0], y.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for k in range(x.shape[1]):
            total = _settle(total + _settle(x[:, k, None] * y[k]))
        if x.shape[1] < rows:
            total += np.float32(0)  # what zeros do: -0 becomes +0
    return _settle(total)


def column_sum(a: np.ndarray, w: np.ndarray, *, rows: int) -> np.ndarray:
    """Rows of sums that leave the array for one weight tile.

    Parameters
    ----------
    a
        Activations (M, K), uint16 bit patterns.
    w
        Weights (K, C), uint16 bit patterns.
    rows
        Rows of the array, at least K; those from K on hold zeros.

    Returns
    -------
    numpy.ndarray
        (M, C) float32.

    Raises
    ------
    ValueError
        If shapes do not match, or the tile has more than ``rows`` rows.
    """
    x, y = _operands(a, w, rows)
    if x.shape[1] > rows:
        raise ValueError(f"a tile for an array of {rows} rows must have at most {rows} rows, not {x.shape[1]}")
    return _column(x, y, rows)


def matmul_bf16(a: np.ndarray, w: np.ndarray, *, rows: int, acc: np.ndarray | None = None) -> np.ndarray:
    """``a @ w``: the sums of tiles of ``rows`` rows of K, added in order.

    Parameters
    ----------
    a, w
        (M, K) and (K, C), uint16 bit patterns; K >= 1.
    rows
        Rows of the array.
    acc
        What the accumulators held, (M, C) float32; the first tile is added to it. Without it that one is written over
        whatever they held.

    Returns
    -------
    numpy.ndarray
        (M, C) float32.
    """
    x, y = _operands(a, w, rows)
    if x.shape[1] < 1:
        raise ValueError("K must be at least 1, not 0")
    total = None if acc is None else fp32_flush(acc)
    for k in range(0, x.shape[1], rows):
        part = _column(x[:, k : k + rows], y[k : k + rows], rows)
        total = part if total is None else fp32_add(total, part)
    return total
