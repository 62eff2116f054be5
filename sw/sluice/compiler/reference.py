"""Executors: what a graph means, in NumPy.

`run_float` evaluates float graphs, `run_quantised` quantised ones, bit for bit as the chip must. The integer side only
arranges calls of `sluice.golden.numerics`; no rounding is defined here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sluice.golden import numerics

from .epilogue import AddResidual, Clamp, Epilogue, MaxPool, Relu, Requantise, Residual
from .graph import Graph, Node
from .ops import OPS
from .shapes import Padding
from .tensors import GraphError, QuantParams

__all__ = ["Arrays", "apply_epilogue", "dequantise_array", "quantise_array", "run_float", "run_quantised"]

Arrays = np.ndarray | Mapping[str, np.ndarray]
"""One array for a graph of one input, or arrays by input name."""

Observer = Callable[[str, int | None, np.ndarray], object]


def check_inputs(graph: Graph, inputs: Arrays, *, any_batch: bool = False) -> dict[str, np.ndarray]:
    """Arrays by input name, their shapes and dtypes those of the graph.

    Parameters
    ----------
    any_batch : bool
        Accept any dimension 0, as long as all inputs agree on it.

    Raises
    ------
    GraphError
        Naming the input, what it is and what is allowed.
    """
    nodes = graph.inputs
    if not isinstance(inputs, Mapping):
        if len(nodes) != 1:
            raise GraphError(f"graph '{graph.name}' has {len(nodes)} inputs; give arrays by name: {', '.join(nodes)}")
        inputs = {next(iter(nodes)): inputs}
    if set(inputs) != set(nodes):
        raise GraphError(f"graph '{graph.name}': inputs {sorted(inputs)}; needed: {sorted(nodes)}")
    arrays = {}
    for name, node in nodes.items():
        array, want = np.asarray(inputs[name]), node.type
        if array.dtype == np.float64 and want.dtype == "float32":
            array = array.astype(np.float32)
        if array.dtype.name != want.dtype:
            raise GraphError(f"input '{name}' has dtype {array.dtype}; allowed: {want.dtype}")
        if array.shape[1:] != want.shape[1:] or array.ndim != len(want.shape) or array.shape[:1] == (0,):
            raise GraphError(f"input '{name}' has shape {array.shape}; allowed: {_shape_text(want.shape, any_batch)}")
        if not any_batch and array.shape != want.shape:
            raise GraphError(
                f"input '{name}' has shape {array.shape}; allowed: {want.shape} (or graph.with_batch({array.shape[0]}))"
            )
        arrays[name] = array
    if len({a.shape[0] for a in arrays.values()}) > 1:
        raise GraphError(f"inputs differ in their batch: { {n: a.shape[0] for n, a in arrays.items()} }")
    return arrays


def _shape_text(shape: tuple[int, ...], any_batch: bool) -> str:
    return f"({', '.join(['batch', *map(str, shape[1:])])})" if any_batch else str(shape)


def run_float(graph: Graph, inputs: Arrays, observe: Observer | None = None) -> dict[str, np.ndarray]:
    """Evaluate a float graph, fused or not.

    Products are summed in float64 and rounded to float32 once per node, so that results do not depend on the order in
    which a BLAS adds.

    Parameters
    ----------
    inputs : array or dict of arrays
        float32, of the graph's shapes.
    observe : callable, optional
        Called as ``observe(node, stage, value)`` with every node's result (stage None) and, for a fused residual, with
        the value just before epilogue stage number ``stage``.

    Returns
    -------
    dict of float32 arrays
        By output name.
    """
    graph.validate(allow_dead=True)
    values: dict[str, np.ndarray] = {}
    arrays = check_inputs(graph, inputs)
    live = graph.live()
    for node in graph:
        if OPS[node.op].quantised:
            raise GraphError(f"{node.op} '{node.name}' belongs to a quantised graph; use run_quantised")
        if node.name not in live:
            continue
        x = [values[i] for i in node.inputs]
        value = arrays[node.name] if node.op == "input" else _float_node(node, x, observe)
        values[node.name] = value
        if observe is not None:
            observe(node.name, None, value)
    return {name: values[source] for name, source in graph.outputs.items()}


def _float_node(node: Node, x: list[np.ndarray], observe: Observer | None) -> np.ndarray:
    a = node.attrs
    match node.op:
        case "constant":
            return node.value
        case "conv2d":
            result = _conv_float(x[0], x[1], a["stride"], a["padding"], a["dilation"]) + x[2]
            return _float_epilogue(node, result, x[3:], observe)
        case "matmul":
            return _float_epilogue(node, x[0].astype(np.float64) @ x[1].astype(np.float64) + x[2], x[3:], observe)
        case "add":
            return _float_epilogue(node, x[0] + x[1], [], observe)
        case "clamp":
            return np.clip(x[0], np.float32(a["lo"]), np.float32(a["hi"]))
        case "max_pool2d":
            return _max_pool_float(x[0], a["window"], a["stride"], a["padding"])
        case "avg_pool2d":
            windows = numerics.im2col(x[0].astype(np.float64), a["window"], a["stride"], padding=a["padding"])
            count = numerics.window_count(x[0].shape[1:3], a["window"], a["stride"], a["padding"])
            return (windows.sum(axis=(3, 4)) / count[:, :, None]).astype(np.float32)
        case "mean":
            return x[0].mean(axis=(1, 2), dtype=np.float64).astype(np.float32)
        case "reshape":
            return x[0].reshape(node.type.shape)
    raise GraphError(f"{node.op} '{node.name}': the float executor does not know this operation")


def _conv_float(
    x: np.ndarray, w: np.ndarray, stride: tuple[int, int], padding: Padding, dilation: tuple[int, int]
) -> np.ndarray:
    kh, kw, ci, co = w.shape
    cols = numerics.im2col(x.astype(np.float64), (kh, kw), stride, dilation, padding)
    return (cols.reshape(-1, kh * kw * ci) @ w.reshape(-1, co).astype(np.float64)).reshape(*cols.shape[:3], co)


def _max_pool_float(x: np.ndarray, window: tuple[int, int], stride: tuple[int, int], padding: Padding) -> np.ndarray:
    return numerics.im2col(x, window, stride, padding=padding, pad_value=-np.inf).max(axis=(3, 4))


def _float_epilogue(node: Node, value: np.ndarray, residual: list[np.ndarray], observe: Observer | None) -> np.ndarray:
    value = value.astype(np.float32)
    for index, stage in enumerate(node.attrs["epilogue"]):
        match stage:
            case Clamp():
                value = np.clip(value, np.float32(stage.lo), np.float32(stage.hi))
            case Residual():
                if observe is not None:
                    observe(node.name, index, value)
                value = value + residual[0]
            case MaxPool():
                value = _max_pool_float(value, stage.window, stage.stride, stage.padding)
            case _:
                raise GraphError(f"{node.op} '{node.name}': stage '{stage}' belongs to a quantised graph")
    return value


def quantise_array(x: np.ndarray, quant: QuantParams) -> np.ndarray:
    """float to int8: round(x / scale) to nearest even, plus zero point, saturating (computed in float64)."""
    q = np.rint(np.asarray(x, np.float64) / quant.scales().astype(np.float64)) + quant.zero_point
    return np.clip(q, -128, 127).astype(np.int8)


def dequantise_array(q: np.ndarray, quant: QuantParams) -> np.ndarray:
    """int8 or int32 to float32: scale * (q - zero_point), rounded once."""
    return ((q.astype(np.int64) - quant.zero_point) * quant.scales().astype(np.float64)).astype(np.float32)


def run_quantised(graph: Graph, inputs: Arrays, observe: Observer | None = None) -> dict[str, np.ndarray]:
    """Evaluate a quantised graph as the chip must, bit for bit.

    Parameters
    ----------
    inputs : array or dict of arrays
        Of the graph's shapes and dtypes (int8, or float32 for a graph made with ``io="float32"``).
    observe : callable, optional
        Called as ``observe(node, stage, value)`` with every node's result (stage None), and with the value after every
        epilogue stage (its number).

    Returns
    -------
    dict of arrays
        By output name: int8, int32 accumulators or float32, as the graph says.
    """
    graph.validate(allow_dead=True)
    values: dict[str, np.ndarray] = {}
    arrays = check_inputs(graph, inputs)
    live = graph.live()
    for node in graph:
        if node.name not in live:
            continue
        x = [values[i] for i in node.inputs]
        value = arrays[node.name] if node.op == "input" else _integer_node(graph, node, x, observe)
        if value.shape != node.type.shape or value.dtype.name != node.type.dtype:
            raise AssertionError(f"{node}: the executor made {value.dtype}{value.shape}")
        values[node.name] = value
        if observe is not None:
            observe(node.name, None, value)
    return {name: values[source] for name, source in graph.outputs.items()}


def _integer_node(graph: Graph, node: Node, x: list[np.ndarray], observe: Observer | None) -> np.ndarray:
    a, out = node.attrs, node.type.quant
    quant = graph[node.inputs[0]].type.quant if node.inputs else None
    match node.op:
        case "constant":
            return node.value
        case "quantise":
            return quantise_array(x[0], out)
        case "dequantise":
            return dequantise_array(x[0], quant)
        case "qconv2d":
            where = {"stride": a["stride"], "dilation": a["dilation"], "padding": a["padding"]}
            acc = numerics.conv2d_int8(x[0], x[1], x[2], zero_point=quant.zero_point, **where)
            return apply_epilogue(acc, a["epilogue"], x[3] if len(x) > 3 else None, node.name, observe)
        case "qmatmul":
            acc = numerics.matmul_int8(x[0], x[1], x[2])
            return apply_epilogue(acc, a["epilogue"], x[3] if len(x) > 3 else None, node.name, observe)
        case "qadd":
            return a["stage"].apply(x[0], x[1])
        case "qclamp":
            return np.clip(x[0], np.int8(a["lo"]), np.int8(a["hi"]))
        case "qmax_pool2d":
            return numerics.max_pool_int8(x[0], a["window"], a["stride"], a["padding"])
        case "qavg_pool2d" if a["dialect"] == "fixed":
            return numerics.avg_pool_fixed(x[0], a["window"], a["stride"], a["padding"])
        case "qavg_pool2d":
            scale, zp = quant.scale[0], quant.zero_point
            same = {"input_scale": scale, "output_scale": scale, "input_zero_point": zp, "zero_point": zp}
            return numerics.avg_pool_float(x[0], a["window"], a["stride"], a["padding"], **same)
        case "qmean":
            scales, count = (quant.scale[0], out.scale[0]), x[0].shape[1] * x[0].shape[2]
            if a["dialect"] == "fixed":
                pair = numerics.mean_multiplier(*scales, count)
                return numerics.mean_fixed(x[0], (1, 2), quant.zero_point, *pair, out.zero_point)
            factor = numerics.average_scale(*scales, count)
            return numerics.mean_float(x[0], (1, 2), quant.zero_point, factor, out.zero_point)
        case "reshape":
            return x[0].reshape(node.type.shape)
    raise GraphError(f"{node.op} '{node.name}' belongs to a float graph; quantise it first")


def apply_epilogue(
    acc: np.ndarray,
    epilogue: Epilogue,
    residual: np.ndarray | None = None,
    name: str = "",
    observe: Observer | None = None,
) -> np.ndarray:
    """Run the stages of a quantised epilogue on int32 accumulators (bias included)."""
    value = acc
    for index, stage in enumerate(epilogue):
        match stage:
            case Requantise() | MaxPool():
                value = stage.apply(value)
            case Relu():
                value = np.maximum(value, np.int32(0))
            case AddResidual():
                assert residual is not None
                value = stage.apply(value, residual)
            case _:
                raise GraphError(f"'{name}': stage '{stage}' belongs to a float graph")
        if observe is not None:
            observe(name, index, value)
    return value
