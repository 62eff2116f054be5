"""The operations of the graph: how many inputs each takes and the type it makes of them.

`OPS` is the only list of operations. A frontend or pass that needs another one adds an `OpSpec` there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .epilogue import Clamp, Relu, check_pool_padding, describe, epilogue_shape
from .shapes import window_output
from .tensors import GraphError, QuantParams, TensorType, check_dtype, check_shape

__all__ = ["OPS", "OpCall", "OpSpec"]


@dataclass(frozen=True)
class OpCall:
    """One use of an operation, as its type rule sees it."""

    name: str
    op: str
    attrs: Mapping[str, Any]
    types: Sequence[TensorType]
    constant: Sequence[bool]
    """Whether each input is a `constant` node."""

    @property
    def where(self) -> str:
        return f"{self.op} '{self.name}'"

    def fail(self, message: str) -> GraphError:
        return GraphError(f"{self.where}: {message}")

    def rank(self, index: int, rank: int, layout: str) -> tuple[int, ...]:
        """Shape of input `index`, which must have `rank` dimensions."""
        shape = self.types[index].shape
        if len(shape) != rank:
            raise self.fail(f"input {index} has shape {shape}; allowed: {rank} dimensions {layout}")
        return shape

    def dtype(self, index: int, *allowed: str) -> None:
        if self.types[index].dtype not in allowed:
            raise self.fail(f"input {index} has dtype {self.types[index].dtype}; allowed: {', '.join(allowed)}")

    def quant(self) -> QuantParams:
        quant = self.attrs.get("quant")
        if not isinstance(quant, QuantParams):
            raise self.fail(f"attribute quant is {quant!r}; a QuantParams is needed")
        return quant


@dataclass(frozen=True)
class OpSpec:
    """How an operation is used.

    Parameters
    ----------
    infer : callable
        `OpCall` -> `TensorType`, or raises `GraphError`.
    inputs : range
        Allowed numbers of inputs.
    attrs : tuple of str
        Names of the attributes, all required, no others allowed.
    quantised : bool
        Whether the operation belongs to quantised graphs alone.
    """

    infer: Callable[[OpCall], TensorType]
    inputs: range
    attrs: tuple[str, ...] = ()
    quantised: bool = False


def _input(call: OpCall) -> TensorType:
    shape = check_shape(call.attrs["shape"], call.where)
    if not shape:
        raise call.fail("shape () has no batch dimension; allowed: one dimension or more")
    return TensorType(shape, check_dtype(call.attrs["dtype"], call.where), call.attrs["quant"])


def _constant(call: OpCall) -> TensorType:
    value = call.attrs["value"]
    shape = check_shape(value.shape, call.where)
    quant = call.attrs["quant"]
    if quant is not None and quant.per_channel and len(quant.scale) != shape[-1]:
        raise call.fail(f"{len(quant.scale)} scales for shape {shape}; allowed: 1 or {shape[-1]} (the last axis)")
    return TensorType(shape, check_dtype(value.dtype, call.where), quant)


def _weights(call: OpCall, channels: int) -> None:
    """Bias and weights are constants; the bias has one value per output channel."""
    for index, what in ((1, "weights"), (2, "bias")):
        if not call.constant[index]:
            raise call.fail(f"{what} (input {index}) must be a constant")
    if call.types[2].shape != (channels,):
        raise call.fail(f"bias has shape {call.types[2].shape}; allowed: ({channels},), one per output channel")


def _residual(call: OpCall) -> tuple[int, ...] | None:
    return call.types[3].shape if len(call.types) == 4 else None


def _conv_shape(call: OpCall) -> tuple[int, ...]:
    n, h, w, c = call.rank(0, 4, "(N, H, W, C)")
    kh, kw, ci, co = call.rank(1, 4, "(KH, KW, C_in, C_out)")
    if ci != c:
        raise call.fail(f"weights {call.types[1].shape} take {ci} input channels, the input {(n, h, w, c)} has {c}")
    _weights(call, co)
    a = call.attrs
    oh, ow = window_output((h, w), (kh, kw), a["stride"], a["padding"], a["dilation"], call.where)
    return epilogue_shape((n, oh, ow, co), a["epilogue"], _residual(call), call.where)


def _matmul_shape(call: OpCall) -> tuple[int, ...]:
    m, k = call.rank(0, 2, "(M, K)")
    kw, n = call.rank(1, 2, "(K, N)")
    if kw != k:
        raise call.fail(f"weights {call.types[1].shape} have K = {kw}, the input {(m, k)} has K = {k}")
    _weights(call, n)
    return epilogue_shape((m, n), call.attrs["epilogue"], _residual(call), call.where)


def _float_array_op(shape: Callable[[OpCall], tuple[int, ...]]) -> Callable[[OpCall], TensorType]:
    def infer(call: OpCall) -> TensorType:
        for index in range(len(call.types)):
            call.dtype(index, "float32")
        return TensorType(shape(call), "float32")

    return infer


def _quantised_array_op(shape: Callable[[OpCall], tuple[int, ...]]) -> Callable[[OpCall], TensorType]:
    def infer(call: OpCall) -> TensorType:
        for index, dtype in enumerate(("int8", "int8", "int32", "int8")[: len(call.types)]):
            call.dtype(index, dtype)
        # Without requantisation the accumulators themselves are the result.
        narrow = any(not isinstance(stage, Relu) for stage in call.attrs["epilogue"])
        return TensorType(shape(call), "int8" if narrow else "int32", call.quant())

    return infer


def _add_shape(call: OpCall) -> tuple[int, ...]:
    a, b = call.types[0].shape, call.types[1].shape
    channel_constant = call.constant[1] and call.op == "add" and b == a[-1:]
    if a != b and not channel_constant:
        raise call.fail(f"shapes {a} and {b}; allowed: equal shapes, or a second input that is a constant {a[-1:]}")
    return a


def _add(call: OpCall) -> TensorType:
    call.dtype(0, "float32")
    call.dtype(1, "float32")
    epilogue = call.attrs["epilogue"]
    if len(epilogue) > 1 or not all(isinstance(stage, Clamp) for stage in epilogue):
        raise call.fail(f"epilogue {describe(epilogue)}; allowed: nothing or one clamp")
    return TensorType(_add_shape(call), "float32")


def _qadd(call: OpCall) -> TensorType:
    call.dtype(0, "int8")
    call.dtype(1, "int8")
    return TensorType(_add_shape(call), "int8", call.quant())


def _clamp(call: OpCall) -> TensorType:
    call.dtype(0, "float32")
    lo, hi = call.attrs["lo"], call.attrs["hi"]
    if not lo <= hi:
        raise call.fail(f"bounds lo = {lo}, hi = {hi}; allowed: lo <= hi")
    return call.types[0]


def _qclamp(call: OpCall) -> TensorType:
    call.dtype(0, "int8")
    lo, hi = call.attrs["lo"], call.attrs["hi"]
    if not -128 <= lo <= hi <= 127:
        raise call.fail(f"bounds lo = {lo}, hi = {hi}; allowed: -128 <= lo <= hi <= 127")
    return call.types[0]


def _pool_shape(call: OpCall) -> tuple[int, ...]:
    n, h, w, c = call.rank(0, 4, "(N, H, W, C)")
    a = call.attrs
    check_pool_padding(a["window"], a["padding"], call.where)
    oh, ow = window_output((h, w), a["window"], a["stride"], a["padding"], (1, 1), call.where)
    return n, oh, ow, c


def _mean_shape(call: OpCall) -> tuple[int, ...]:
    n, _, _, c = call.rank(0, 4, "(N, H, W, C)")
    return n, c


def _unary(shape: Callable[[OpCall], tuple[int, ...]], dtype: str, own_quant: bool) -> Callable[[OpCall], TensorType]:
    def infer(call: OpCall) -> TensorType:
        call.dtype(0, dtype)
        return TensorType(shape(call), dtype, call.quant() if own_quant else call.types[0].quant)

    return infer


def _reshape(call: OpCall) -> TensorType:
    source, target = call.types[0], call.attrs["shape"]
    count = int(np.prod(source.shape))
    allowed = "integers >= 1, at most one -1 (inferred), 0 for an unchanged dimension"
    if list(target).count(-1) > 1 or any(d < -1 for d in target):
        raise call.fail(f"target shape {target}; allowed: {allowed}")
    if any(d == 0 and i >= len(source.shape) for i, d in enumerate(target)):
        raise call.fail(f"target shape {target} keeps a dimension that the input {source.shape} does not have")
    dims = [source.shape[i] if d == 0 else d for i, d in enumerate(target)]
    known = int(np.prod([d for d in dims if d != -1]))
    if -1 in dims and count % known == 0:
        dims[dims.index(-1)] = count // known
    if int(np.prod(dims)) != count:
        raise call.fail(
            f"target shape {target} cannot hold the {count} elements of {source.shape}; allowed: shapes of {count}"
        )
    return TensorType(tuple(dims), source.dtype, source.quant)


def _quantise(call: OpCall) -> TensorType:
    call.dtype(0, "float32")
    return TensorType(call.types[0].shape, "int8", call.quant())


def _dequantise(call: OpCall) -> TensorType:
    call.dtype(0, "int8", "int32")
    if call.types[0].quant is None:
        raise call.fail("the input has no quantisation parameters")
    return TensorType(call.types[0].shape, "float32")


_CONV = ("stride", "padding", "dilation", "epilogue")
_POOL = ("window", "stride", "padding")

OPS: dict[str, OpSpec] = {
    "input": OpSpec(_input, range(0, 1), ("shape", "dtype", "quant")),
    "constant": OpSpec(_constant, range(0, 1), ("value", "quant")),
    "conv2d": OpSpec(_float_array_op(_conv_shape), range(3, 5), _CONV),
    "matmul": OpSpec(_float_array_op(_matmul_shape), range(3, 5), ("epilogue",)),
    "add": OpSpec(_add, range(2, 3), ("epilogue",)),
    "clamp": OpSpec(_clamp, range(1, 2), ("lo", "hi")),
    "max_pool2d": OpSpec(_unary(_pool_shape, "float32", False), range(1, 2), _POOL),
    "avg_pool2d": OpSpec(_unary(_pool_shape, "float32", False), range(1, 2), _POOL),
    "mean": OpSpec(_unary(_mean_shape, "float32", False), range(1, 2)),
    "reshape": OpSpec(_reshape, range(1, 2), ("shape",)),
    "quantise": OpSpec(_quantise, range(1, 2), ("quant",), quantised=True),
    "dequantise": OpSpec(_dequantise, range(1, 2), (), quantised=True),
    "qconv2d": OpSpec(_quantised_array_op(_conv_shape), range(3, 5), (*_CONV, "quant"), quantised=True),
    "qmatmul": OpSpec(_quantised_array_op(_matmul_shape), range(3, 5), ("epilogue", "quant"), quantised=True),
    "qadd": OpSpec(_qadd, range(2, 3), ("stage", "quant"), quantised=True),
    "qclamp": OpSpec(_qclamp, range(1, 2), ("lo", "hi"), quantised=True),
    "qmax_pool2d": OpSpec(_unary(_pool_shape, "int8", False), range(1, 2), _POOL, quantised=True),
    "qavg_pool2d": OpSpec(_unary(_pool_shape, "int8", False), range(1, 2), (*_POOL, "dialect"), quantised=True),
    "qmean": OpSpec(_unary(_mean_shape, "int8", True), range(1, 2), ("dialect", "quant"), quantised=True),
}
