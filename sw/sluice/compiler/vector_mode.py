"""What a node's arithmetic behind the accumulators is in the vector unit's terms."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sluice_hw.isa import Requant, Residual

from .epilogue import AddResidual, Epilogue, MaxPool, Relu, Requantise
from .errors import Unsupported

__all__ = ["OutputPath", "float_bits", "output_path", "param_blocks", "residual_fields"]

FULL = (-128, 127)


def float_bits(values: np.ndarray | float) -> np.ndarray:
    """Bit patterns of fp32 values, uint32."""
    return np.atleast_1d(np.asarray(values, np.float32)).view(np.uint32)


@dataclass(frozen=True)
class OutputPath:
    """The way from accumulators to VMEM in one VECTOR.

    Attributes
    ----------
    mode
        Fields of VECTOR_MODE, without source, reduction, columns and ``d3``.
    params
        Whether a block of LOAD_PARAMS is needed; it is made of ``bias``, ``multiplier``, ``shift``, per column.
    residual
        The addition that takes place on the way, or None.
    pool
        The max pool that is taken on the accumulators, or None.
    """

    mode: dict[str, int]
    params: bool
    bias: np.ndarray
    multiplier: np.ndarray
    shift: np.ndarray
    residual: AddResidual | None = None
    pool: MaxPool | None = None
    rest: tuple[AddResidual | MaxPool, ...] = field(default=())
    """Stages that do not fit into the VECTOR and need their own."""

    @property
    def wide(self) -> bool:
        return bool(self.mode["wide"])


def output_path(bias: np.ndarray, epilogue: Epilogue, where: str, *, pool_on_accumulators: bool = True) -> OutputPath:
    """Split an epilogue into what one VECTOR from the accumulators does, and the rest.

    A residual addition rides along unless the requantised result has bounds of its own before the addition (the
    hardware clamps only behind it). A max pool commutes with requantisation, which is monotone, but not with an
    addition.

    Raises
    ------
    Unsupported
        For an epilogue of float graphs.
    """
    n = bias.size
    zeros = np.zeros(n, np.int32)
    biased = bool(bias.any())
    stages = list(epilogue)
    if not stages or isinstance(stages[0], Relu):
        mode = {"wide": 1, "relu": int(bool(stages)), "bias": int(biased)}
        return OutputPath(mode, biased, bias, zeros, zeros)
    first = stages.pop(0)
    if not isinstance(first, Requantise):
        raise Unsupported(f"{where}: epilogue stage '{first}' belongs to a float graph; quantise it first")
    if first.dialect == "fixed":
        requant, multiplier, shift = Requant.FIXED, first.multiplier.view(np.uint32), first.shift
    else:
        requant, multiplier, shift = Requant.FLOAT, float_bits(first.scale), zeros
    uniform = bool((multiplier == multiplier[0]).all() and (shift == shift[0]).all())
    mode = {"wide": 0, "bias": int(biased), "requant": int(requant), "zero_point": first.zero_point}
    mode |= {"per_channel": int(not uniform), "multiplier": 0, "shift": 0, "lo": first.lo, "hi": first.hi}
    if uniform:
        mode |= {"multiplier": int(multiplier[0]), "shift": int(shift[0])}
    residual = pool = None
    if stages and isinstance(stages[0], AddResidual) and (first.lo, first.hi) == FULL:
        residual = stages.pop(0)
        mode |= {"lo": residual.lo, "hi": residual.hi, "residual": int(residual_kind(residual))}
    elif stages and isinstance(stages[0], MaxPool) and pool_on_accumulators:
        pool = stages.pop(0)
    params = biased or not uniform
    return OutputPath(mode, params, bias, multiplier, shift, residual, pool, tuple(stages))


def residual_kind(stage: AddResidual) -> Residual:
    return Residual.FIXED if stage.dialect == "fixed" else Residual.FLOAT


def residual_fields(stage: AddResidual) -> dict[str, int]:
    """Fields of VECTOR_RESIDUAL without the strides."""
    out = {"zero_point2": stage.b.zero_point, "zero_point_out": stage.out.zero_point}
    if stage.dialect == "fixed":
        (m1, n1), (m2, n2), (mo, no) = stage.multipliers()
        return out | {"m1": m1, "shift1": n1, "m2": m2, "shift2": n2, "mo": mo, "shifto": no}
    m1, m2 = (int(float_bits(r)[0]) for r in stage.ratios())
    return out | {"m1": m1, "m2": m2}


def param_blocks(path: OutputPath, cols: int) -> bytes:
    """Blocks of LOAD_PARAMS, one per strip of ``cols`` columns, packed."""
    out = b""
    for at in range(0, path.bias.size, cols):
        parts = []
        for values, dtype in ((path.bias, "<i4"), (path.multiplier, "<u4"), (path.shift, np.uint8)):
            block = np.zeros(cols, dtype)
            piece = values[at : at + cols]
            block[: piece.size] = piece
            parts.append(block.tobytes())
        out += b"".join(parts)
    return out
