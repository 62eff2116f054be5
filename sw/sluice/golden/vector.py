"""Arithmetic of the vector unit, column by column: what VECTOR does with a block of int32 rows.

Steps and their order are those of the architecture page; the rescales are the contract's (``numerics``), which are
extended here by what a microcode word can say beyond it: shift 0, scales that are not finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sluice_hw.isa import Reduce, Requant, Residual

from . import numerics
from .faults import UndefinedError
from .numerics_int import INT32_MAX, INT32_MIN

__all__ = ["Params", "narrow", "reduce_windows", "widen"]


@dataclass(frozen=True)
class Params:
    """What LOAD_PARAMS reads: ``bias`` int32, ``multiplier`` uint32, ``shift`` uint8, one per array column."""

    bias: np.ndarray
    multiplier: np.ndarray
    shift: np.ndarray

    @classmethod
    def from_bytes(cls, block: np.ndarray) -> Params:
        """Take apart the packed block of 9 bytes per column; the upper two bits of a shift are not used."""
        cols = block.size // 9
        raw = np.ascontiguousarray(block).tobytes()
        return cls(
            np.frombuffer(raw, "<i4", cols).astype(np.int32),
            np.frombuffer(raw, "<u4", cols, 4 * cols).astype(np.uint32),
            np.frombuffer(raw, np.uint8, cols, 8 * cols) & 0x3F,
        )


def _rescale_fixed(x: np.ndarray, multiplier: np.ndarray, shift: np.ndarray, rounding: str) -> np.ndarray:
    """:func:`numerics.rescale_fixed`, where shift 0 gives 0."""
    shift = np.asarray(shift, dtype=np.int64)
    if shift.size and shift.max() > 62:
        raise UndefinedError(f"shift must be 0 to 62, not {shift.max()}")
    m = np.asarray(multiplier, dtype=np.uint32).view(np.int32)
    y = numerics.rescale_fixed(x, m, np.maximum(shift, 1), rounding)
    return np.where(shift == 0, np.int32(0), y)


def _product_fp32(x: np.ndarray, scale: np.ndarray | int) -> np.ndarray:
    return numerics.fp32_mul(numerics.int32_to_fp32(x), np.asarray(scale, dtype=np.uint32))


def reduce_windows(windows: np.ndarray, how: Reduce) -> np.ndarray:
    """Combine the rows of every window.

    Parameters
    ----------
    windows
        Integers, shape ``(outputs.., n1, n0, cols)``.

    Returns
    -------
    numpy.ndarray
        int32, shape ``(outputs.., cols)``; sums wrap.
    """
    if how == Reduce.SUM:
        return numerics.wrap_int32(windows.sum(axis=(-3, -2), dtype=np.int64))
    if how == Reduce.MAX:
        return windows.max(axis=(-3, -2)).astype(np.int32)
    if windows.shape[-3:-1] != (1, 1):
        n1, n0 = windows.shape[-3:-1]
        raise UndefinedError(f"a VECTOR without a reduction needs n0 = n1 = 1, not {n0} and {n1}")
    return windows[..., 0, 0, :].astype(np.int32)


def widen(x: np.ndarray, mode: Mapping[str, int], params: Params | None) -> np.ndarray:
    """Bias, and ReLU where the result stays int32: steps 1 and 2."""
    if mode["bias"]:
        if params is None:
            raise UndefinedError("bias needs a LOAD_PARAMS before it")
        x = numerics.wrap_int32(x.astype(np.int64) + params.bias[: x.shape[-1]])
    return np.maximum(x, 0) if mode["wide"] and mode["relu"] else x


def narrow(
    x: np.ndarray,
    mode: Mapping[str, int],
    params: Params | None,
    residual: np.ndarray | None = None,
    residual_setup: Mapping[str, int] | None = None,
) -> np.ndarray:
    """int32 to int8: steps 3 to 6.

    Parameters
    ----------
    x
        int32, shape ``(.., cols)``.
    mode, residual_setup
        Fields of VECTOR_MODE and VECTOR_RESIDUAL.
    residual
        int8 operand of the residual add, shaped as ``x``.
    """
    cols = x.shape[-1]
    multiplier: np.ndarray | int = mode["multiplier"]
    shift: np.ndarray | int = mode["shift"]
    if mode["per_channel"]:
        if params is None:
            raise UndefinedError("per_channel needs a LOAD_PARAMS before it")
        multiplier, shift = params.multiplier[:cols], params.shift[:cols]
    requant = Requant(mode["requant"])
    if requant == Requant.FLOAT:
        x = numerics.fp32_to_int32(_product_fp32(x, multiplier))
    elif requant != Requant.BYPASS:
        x = _rescale_fixed(x, multiplier, shift, "half_up" if requant == Requant.FIXED else "away")
    x = np.clip(x.astype(np.int64) + mode["zero_point"], -128, 127)
    if mode["residual"]:
        x = _add_residual(x, mode, residual, residual_setup)
    return np.minimum(np.maximum(x, mode["lo"]), mode["hi"]).astype(np.int8)


def _add_residual(
    x: np.ndarray, mode: Mapping[str, int], residual: np.ndarray | None, setup: Mapping[str, int] | None
) -> np.ndarray:
    if residual is None or setup is None:
        raise UndefinedError("a residual needs VECTOR_RESIDUAL before it")
    a = x - mode["zero_point"]
    b = residual.astype(np.int64) - setup["zero_point2"]
    if Residual(mode["residual"]) == Residual.FLOAT:
        total = numerics.fp32_add(_product_fp32(a, setup["m1"]), _product_fp32(b, setup["m2"]))
        return numerics.fp32_to_int32(total).astype(np.int64) + setup["zero_point_out"]
    up = numerics.ADD_LEFT_SHIFT
    s = _rescale_fixed(a << up, setup["m1"], setup["shift1"], "half_up").astype(np.int64)
    s = s + _rescale_fixed(b << up, setup["m2"], setup["shift2"], "half_up")
    s = np.clip(s, INT32_MIN, INT32_MAX)
    return _rescale_fixed(s, setup["mo"], setup["shifto"], "half_up").astype(np.int64) + setup["zero_point_out"]
