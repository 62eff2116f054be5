"""Operations of the vector lanes on arrays of 32-bit patterns, and reductions of rows, in the contract's order.

Operands and results are uint32 bit patterns (float32 and int32 arrays are taken, too): a lane's register does not know
what it holds.
"""

from __future__ import annotations

import numpy as np

from sluice.golden.numerics_float import (
    FP32_NAN,
    fp32_add,
    fp32_bits,
    fp32_flush,
    fp32_from_bits,
    fp32_mul,
    fp32_to_bf16,
    fp32_to_int32,
    int32_to_fp32,
)
from sluice_hw.vector_ops import AluOp, Reduction

__all__ = ["AluOp", "Reduction", "alu", "as_bits", "reduce_rows", "transpose"]

_SIGN = np.uint32(1 << 31)
_NO_INDEX = 0x7FFFFFFF


def as_bits(x: np.ndarray) -> np.ndarray:
    """uint32 patterns of uint32, int32 or float32 values.

    Raises
    ------
    TypeError
        For any other type.
    """
    x = np.asarray(x)
    if x.dtype == np.int32:
        return np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)
    if x.dtype not in (np.uint32, np.float32):
        raise TypeError(f"operand must be uint32, int32 or float32, not {x.dtype}")
    return fp32_bits(x)


def _int(bits: np.ndarray) -> np.ndarray:
    return bits.astype(np.int64) - ((bits.astype(np.int64) >> 31) << 32)


def _rank(bits: np.ndarray) -> np.ndarray:
    """Integers in the order of clean fp32 values, -0 below +0."""
    magnitude = (bits & ~_SIGN).astype(np.int64)
    return np.where(bits & _SIGN, -magnitude - 1, magnitude)


def _extreme(op: AluOp, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = fp32_bits(fp32_flush(a)), fp32_bits(fp32_flush(b))
    first = _rank(a) >= _rank(b) if op is AluOp.MAX else _rank(a) <= _rank(b)
    nan = (a == FP32_NAN) | (b == FP32_NAN)
    return np.where(nan, np.uint32(FP32_NAN), np.where(first, a, b))


def alu(op: AluOp, a: np.ndarray, b: np.ndarray | int = 0, c: np.ndarray | int = 0) -> np.ndarray:
    """One operation on every element; see :data:`sluice_hw.vector_ops.MEANING`.

    Parameters
    ----------
    a, b, c
        uint32, int32 or float32 arrays that broadcast; b and c may be left out where the operation has none.
    """
    op = AluOp(op)
    a, b, c = np.broadcast_arrays(*(as_bits(np.uint32(x) if isinstance(x, int) else x) for x in (a, b, c)))
    with np.errstate(all="ignore"):
        result = _OPERATIONS[op](a, b, c)
    if result.dtype == np.float32:
        return fp32_bits(result)
    return (result.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)


_OPERATIONS = {
    AluOp.PASS: lambda a, b, c: a,
    AluOp.SELECT: lambda a, b, c: np.where(c != 0, a, b),
    AluOp.AND: lambda a, b, c: a & b,
    AluOp.OR: lambda a, b, c: a | b,
    AluOp.XOR: lambda a, b, c: a ^ b,
    AluOp.ADD: lambda a, b, c: fp32_add(a, b),
    AluOp.SUB: lambda a, b, c: fp32_add(a, b ^ _SIGN),
    AluOp.MUL: lambda a, b, c: fp32_mul(a, b),
    AluOp.MUL_ADD: lambda a, b, c: fp32_add(fp32_mul(a, b), fp32_from_bits(c)),
    AluOp.MUL_SUB: lambda a, b, c: fp32_add(fp32_mul(a, b), fp32_from_bits(c ^ _SIGN)),
    AluOp.MIN: lambda a, b, c: _extreme(AluOp.MIN, a, b),
    AluOp.MAX: lambda a, b, c: _extreme(AluOp.MAX, a, b),
    AluOp.ABS: lambda a, b, c: fp32_flush(a & ~_SIGN),
    AluOp.NEG: lambda a, b, c: fp32_flush(a ^ _SIGN),
    AluOp.LT: lambda a, b, c: fp32_flush(a) < fp32_flush(b),
    AluOp.LE: lambda a, b, c: fp32_flush(a) <= fp32_flush(b),
    AluOp.EQ: lambda a, b, c: fp32_flush(a) == fp32_flush(b),
    AluOp.CLEAN: lambda a, b, c: fp32_flush(a),
    AluOp.TO_BF16: lambda a, b, c: fp32_to_bf16(a).astype(np.uint32) << np.uint32(16),
    AluOp.TO_INT32: lambda a, b, c: fp32_to_int32(a),
    AluOp.IADD: lambda a, b, c: _int(a) + _int(b),
    AluOp.ISUB: lambda a, b, c: _int(a) - _int(b),
    AluOp.IMUL: lambda a, b, c: _int(a) * _int(b),
    AluOp.IMIN: lambda a, b, c: np.minimum(_int(a), _int(b)),
    AluOp.IMAX: lambda a, b, c: np.maximum(_int(a), _int(b)),
    AluOp.IABS: lambda a, b, c: np.abs(_int(a)),
    AluOp.ILT: lambda a, b, c: _int(a) < _int(b),
    AluOp.ILE: lambda a, b, c: _int(a) <= _int(b),
    AluOp.IEQ: lambda a, b, c: a == b,
    AluOp.I_TO_FP32: lambda a, b, c: int32_to_fp32(_int(a)),
    AluOp.I_TO_INT8: lambda a, b, c: np.clip(_int(a), -128, 127),
    AluOp.INT8_TO_I: lambda a, b, c: ((a.astype(np.int64) & 0xFF) ^ 0x80) - 0x80,
}


def _check_lanes(lanes: int) -> int:
    if isinstance(lanes, bool) or not isinstance(lanes, int) or lanes < 1:
        raise ValueError(f"lanes must be a positive integer, not {lanes!r}")
    return lanes


def reduce_rows(op: Reduction, x: np.ndarray, *, lanes: int, mask: np.ndarray | None = None) -> np.ndarray:
    """Reduce the last axis of fp32 values in the contract's order.

    Blocks of ``lanes`` values are combined left to right, lane by lane, beginning with the identity (+0; -inf); then
    lane 2j with lane 2j + 1, again until one is left, with identities behind the last lane of an uneven number. A lane
    that is masked, or behind the end of the row, holds the identity.

    Parameters
    ----------
    x
        float32 or uint32 patterns (..., N), N >= 0.
    lanes
        Lanes of the unit: the result depends on it (except for MAX and ARGMAX).
    mask
        Broadcasts against ``x``; what is false does not count.

    Returns
    -------
    numpy.ndarray
        uint32 patterns (...). ARGMAX: the lowest index of the largest value; NaN counts as larger than all, zeros are
        equal; 0x7FFFFFFF if nothing counts.
    """
    op, lanes = Reduction(op), _check_lanes(lanes)
    x = as_bits(x)
    keep = np.ones(x.shape, bool) if mask is None else np.broadcast_to(np.asarray(mask, bool), x.shape)
    if op is Reduction.ARGMAX:
        return _argmax(fp32_bits(fp32_flush(x)), keep)
    count = x.shape[-1]
    blocks = -(-count // lanes)
    pad = [(0, 0)] * (x.ndim - 1) + [(0, blocks * lanes - count)]
    shape = (*x.shape[:-1], blocks, lanes)
    x, keep = np.pad(x, pad).reshape(shape), np.pad(keep, pad).reshape(shape)
    if op is Reduction.SUM_OF_SQUARES:
        x = fp32_bits(fp32_mul(x, x))
    if op in (Reduction.SUM, Reduction.SUM_OF_SQUARES):
        identity, combine = np.uint32(0), lambda a, b: fp32_bits(fp32_add(a, b))
    else:
        identity, combine = np.uint32(0xFF800000), lambda a, b: _extreme(AluOp.MAX, a, b)
    x = np.where(keep, x, identity)
    partial = np.full((*x.shape[:-2], lanes), identity)
    for block in range(blocks):
        partial = combine(partial, x[..., block, :])
    while partial.shape[-1] > 1:
        if partial.shape[-1] % 2:
            partial = np.concatenate([partial, np.full((*partial.shape[:-1], 1), identity)], axis=-1)
        partial = combine(partial[..., 0::2], partial[..., 1::2])
    return partial[..., 0]


def _argmax(x: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """The order does not matter: a total order has one largest element."""
    magnitude = (x & ~_SIGN).astype(np.int64)
    key = np.where(x == FP32_NAN, 1 << 32, np.where(x & _SIGN, -magnitude, magnitude))
    key = np.where(keep, key, -(1 << 33))
    if not x.shape[-1]:
        return np.full(x.shape[:-1], _NO_INDEX, np.uint32)
    return np.where(keep.any(axis=-1), key.argmax(axis=-1), _NO_INDEX).astype(np.uint32)


def transpose(rows: np.ndarray, size: int) -> np.ndarray:
    """The transposer's block: (k, n) with k, n <= ``size`` becomes ``n`` rows of ``size``, zero from column k on."""
    rows = np.asarray(rows)
    if rows.ndim != 2 or max(rows.shape, default=0) > size:
        raise ValueError(f"a block must have at most {size} x {size} elements, not {rows.shape}")
    out = np.zeros((rows.shape[1], size), rows.dtype)
    out[:, : rows.shape[0]] = rows.T
    return out
