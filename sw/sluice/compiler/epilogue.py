"""What happens to a convolution's or matmul's result before it leaves the array's output path.

An epilogue is a tuple of stages in execution order. Float graphs use `Clamp`, `Residual` and `MaxPool`, quantised
graphs `Requantise`, `AddResidual` and `MaxPool`. Every stage prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from sluice.golden import numerics

from .shapes import Padding, resolve_padding, window_output
from .tensors import GraphError, QuantParams

__all__ = [
    "AddResidual",
    "Clamp",
    "Epilogue",
    "MaxPool",
    "Relu",
    "Requantise",
    "Residual",
    "Stage",
    "check_pool_padding",
    "describe",
    "epilogue_shape",
    "max_pool_attrs",
]


@dataclass(frozen=True)
class Clamp:
    """min(max(x, lo), hi); ReLU is (0, inf), ReLU6 is (0, 6)."""

    lo: float
    hi: float

    def __str__(self) -> str:
        if self.lo == 0 and self.hi in (6, float("inf")):
            return "relu6" if self.hi == 6 else "relu"
        return f"clamp({self.lo:g}, {self.hi:g})"

    def then(self, other: Clamp) -> Clamp:
        """One clamp that equals this one followed by `other`."""
        return Clamp(min(max(self.lo, other.lo), other.hi), min(max(self.hi, other.lo), other.hi))


@dataclass(frozen=True)
class Residual:
    """Add the node's last input, which has the result's shape."""

    def __str__(self) -> str:
        return "residual"


@dataclass(frozen=True)
class Relu:
    """max(x, 0) of int32 accumulators, which leave as int32: the only stage then."""

    def __str__(self) -> str:
        return "relu_int32"


@dataclass(frozen=True)
class MaxPool:
    """Maximum over windows; padded cells never win, so they need no value."""

    window: tuple[int, int]
    stride: tuple[int, int]
    padding: Padding = ((0, 0), (0, 0))

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Pooled int8 image."""
        return numerics.max_pool_int8(x, self.window, self.stride, self.padding)

    def __str__(self) -> str:
        return f"max_pool({self.window[0]}x{self.window[1]}, stride {self.stride}, padding {self.padding})"


@dataclass(frozen=True, eq=False)
class Requantise:
    """int32 accumulator to int8, per output channel (see `sluice.golden.numerics`).

    Parameters
    ----------
    dialect : {'fixed', 'float'}
    multiplier, shift : int32[channels] or None
        'fixed': y = (acc * multiplier + 2^(shift - 1)) >> shift.
    scale : float32[channels] or None
        'float': y = nearest even(fp32(acc) * scale).
    zero_point, lo, hi : int
        Added to y; then the bounds, which hold the activation as well as int8's range.
    """

    dialect: str
    zero_point: int
    lo: int
    hi: int
    multiplier: np.ndarray | None = None
    shift: np.ndarray | None = None
    scale: np.ndarray | None = None

    def __str__(self) -> str:
        if self.dialect == "fixed":
            how = f"m={_span(self.multiplier)}, n={_span(self.shift)}"
        else:
            how = f"scale={_span(self.scale)}"
        return f"requantise_{self.dialect}({how}, zp={self.zero_point}, [{self.lo}, {self.hi}])"

    def apply(self, acc: np.ndarray) -> np.ndarray:
        """int8 results of int32 accumulators [..., channels], as the golden model defines them."""
        if self.dialect == "fixed":
            assert self.multiplier is not None and self.shift is not None
            return numerics.requantize_fixed(acc, self.multiplier, self.shift, self.zero_point, self.lo, self.hi)
        assert self.scale is not None
        return numerics.requantize_float(acc, self.scale, self.zero_point, self.lo, self.hi)

    def data(self) -> bytes:
        return b"".join(a.tobytes() for a in (self.multiplier, self.shift, self.scale) if a is not None)


@dataclass(frozen=True)
class AddResidual:
    """int8 + int8 -> int8 with three scales, rounded on its own as TFLite's and ONNX's ADD.

    Parameters
    ----------
    dialect : {'fixed', 'float'}
    a, b, out : QuantParams
        Of the first addend (the result so far), the second (the residual) and the sum.
    lo, hi : int
        Bounds of the sum: the activation after the addition and int8's range.
    """

    dialect: str
    a: QuantParams
    b: QuantParams
    out: QuantParams
    lo: int
    hi: int

    def apply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The sum of int8 arrays, as the golden model defines it."""
        za, zb, zero_point = self.a.zero_point, self.b.zero_point, self.out.zero_point
        if self.dialect == "fixed":
            return numerics.add_fixed(a, b, za, zb, self.multipliers(), zero_point, self.lo, self.hi)
        return numerics.add_float(a, b, za, zb, *self.ratios(), zero_point, self.lo, self.hi)

    def multipliers(self) -> numerics.AddMultipliers:
        """Factors (m, n) of both addends and of the sum, dialect 'fixed'."""
        return numerics.add_multipliers(self.a.scale[0], self.b.scale[0], self.out.scale[0])

    def ratios(self) -> tuple[np.float32, np.float32]:
        """fp32 factors of the two addends, dialect 'float'."""
        return numerics.add_ratios(self.a.scale[0], self.b.scale[0], self.out.scale[0])

    def __str__(self) -> str:
        return f"add_{self.dialect}({self.a} + {self.b} -> {self.out}, [{self.lo}, {self.hi}])"


Stage = Clamp | Residual | MaxPool | Requantise | AddResidual | Relu
Epilogue = tuple[Stage, ...]

# The order the hardware has.
_LETTERS = {Clamp: "C", Residual: "R", MaxPool: "M", Requantise: "Q", AddResidual: "A", Relu: "I"}
_ORDER = re.compile("C?(RC?)?M?|QA?M?|I")


def _span(values: np.ndarray | None) -> str:
    assert values is not None
    low, high = values.min(), values.max()
    text = f"{low:.6g}" if values.dtype.kind == "f" else str(low)
    if low == high:
        return text
    return f"{text}..{high:.6g}" if values.dtype.kind == "f" else f"{text}..{high}"


def describe(epilogue: Epilogue) -> str:
    """One line: stages joined by arrows."""
    return " -> ".join(str(stage) for stage in epilogue)


def epilogue_shape(
    shape: tuple[int, ...], epilogue: Epilogue, residual: tuple[int, ...] | None, where: str
) -> tuple[int, ...]:
    """Shape after the stages.

    Parameters
    ----------
    shape : tuple of int
        Of the accumulators.
    residual : tuple of int or None
        Shape of the node's residual input, if it has one.

    Raises
    ------
    GraphError
        If the stages are in another order than the hardware has, one does not fit, or a residual input comes without
        its stage or the other way round.
    """
    letters = "".join(_LETTERS.get(type(stage), "?") for stage in epilogue)
    if not _ORDER.fullmatch(letters):
        raise GraphError(
            f"{where}: epilogue {describe(epilogue)}; allowed: [clamp] [residual [clamp]] [max pool], or quantised "
            "requantise [add residual] [max pool], or int32 relu, or nothing"
        )
    pending = residual
    for stage in epilogue:
        if isinstance(stage, Residual | AddResidual):
            if pending is None:
                raise GraphError(f"{where}: stage '{stage}' needs one residual input; the node has none left")
            if pending != shape:
                raise GraphError(f"{where}: residual has shape {pending}; allowed: the result's shape {shape}")
            pending = None
        elif isinstance(stage, MaxPool):
            if len(shape) != 4:
                raise GraphError(f"{where}: stage '{stage}' needs an NHWC result; the result has shape {shape}")
            h, w = window_output(shape[1:3], stage.window, stage.stride, stage.padding, (1, 1), where)
            shape = (shape[0], h, w, shape[3])
    if pending is not None:
        raise GraphError(f"{where}: the node has a residual input of shape {pending} but no residual stage")
    return shape


def max_pool_attrs(
    size: tuple[int, int], window: tuple[int, int], stride: tuple[int, int], padding: object, where: str
) -> MaxPool:
    """A `MaxPool` with its padding resolved and checked: a window made of padding alone has no maximum."""
    resolved = resolve_padding(padding, size, window, stride, (1, 1), where)
    check_pool_padding(window, resolved, where)
    return MaxPool(window, stride, resolved)


def check_pool_padding(window: tuple[int, int], padding: Padding, where: str) -> None:
    """Refuse pads as large as the window: some windows would hold padding alone."""
    for axis, k, pads in zip(("height", "width"), window, padding, strict=True):
        if max(pads) >= k:
            raise GraphError(f"{where}: {axis} padding {pads} of a pool with window {k}; allowed: 0..{k - 1}")
