"""What a tensor is to the compiler: shape, element type and, when quantised, scale and zero point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["DTYPES", "GraphError", "QuantParams", "TensorType", "check_dtype", "check_shape"]

DTYPES = {"float32": "f32", "int8": "i8", "uint8": "u8", "int32": "i32"}
"""Element types a tensor may have, and how they print."""


class GraphError(ValueError):
    """A graph that cannot be: names the node, the value and what is allowed."""


def check_dtype(dtype: object, where: str) -> str:
    """Return `dtype` as one of the names in `DTYPES`.

    Raises
    ------
    GraphError
        If it is any other type.
    """
    try:
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name  # type: ignore[arg-type]
    except TypeError:
        name = repr(dtype)
    if name not in DTYPES:
        raise GraphError(f"{where}: unknown dtype {name!r}; allowed: {', '.join(DTYPES)}")
    return name


def check_shape(shape: object, where: str) -> tuple[int, ...]:
    """Return `shape` as a tuple of positive integers, or raise `GraphError`."""
    try:
        dims = tuple(int(d) for d in shape)  # type: ignore[union-attr]
        exact = all(d == original for d, original in zip(dims, shape, strict=True))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise GraphError(f"{where}: shape {shape!r} is not a sequence of integers >= 1") from None
    if not exact or any(d < 1 for d in dims):
        raise GraphError(f"{where}: shape {shape!r}; every dimension must be an integer >= 1")
    return dims


@dataclass(frozen=True)
class QuantParams:
    """real = scale * (q - zero_point).

    Parameters
    ----------
    scale : tuple of float
        One value (per tensor) or one per index of the last axis (per channel). Each is exactly a float32.
    zero_point : int
        0 for int32 accumulators and for weights.
    """

    scale: tuple[float, ...]
    zero_point: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", tuple(float(np.float32(s)) for s in np.atleast_1d(self.scale)))
        if not self.scale or not all(np.isfinite(s) and s > 0 for s in self.scale):
            raise GraphError(f"quantisation scale {self.scale}; every scale must be a finite float32 > 0")
        object.__setattr__(self, "zero_point", int(self.zero_point))

    @property
    def per_channel(self) -> bool:
        return len(self.scale) > 1

    def scales(self) -> np.ndarray:
        """Scales as float32[1] or float32[channels]."""
        return np.asarray(self.scale, np.float32)

    def __str__(self) -> str:
        if self.per_channel:
            return f"q({min(self.scale):.4g}..{max(self.scale):.4g} per channel, {self.zero_point})"
        return f"q({self.scale[0]:.6g}, {self.zero_point})"


@dataclass(frozen=True)
class TensorType:
    """Shape (NHWC or [M, K]), element type and quantisation of one tensor."""

    shape: tuple[int, ...]
    dtype: str
    quant: QuantParams | None = None

    def __str__(self) -> str:
        text = f"{DTYPES[self.dtype]}[{','.join(map(str, self.shape))}]"
        return text if self.quant is None else f"{text} {self.quant}"
