"""Post-training quantisation: a float graph and example inputs in, an int8 graph out.

Activations are int8 per tensor, weights int8 per output channel and symmetric (-127..127), biases int32 with the scale
of the accumulators. The zero point of the activations is folded into the bias, so the array multiplies raw int8 values:
``sum((x - z) * w) + b = sum(x * w) + (b - z * sum(w))``, where padding reads z. Sources: Jacob et al. 2018
(arXiv 1712.05877) and TFLite's quantisation specification.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluice.golden import numerics

from .epilogue import AddResidual, Clamp, MaxPool, Requantise, Residual, Stage, describe
from .graph import Graph, Node, Tensor
from .ops import OPS
from .passes_front import canonicalise, fuse
from .reference import Arrays, check_inputs, quantise_array, run_float
from .tensors import GraphError, QuantParams

__all__ = ["activation_params", "clamp_bounds", "quantise", "weight_scales"]

DIALECTS = ("fixed", "float")
IO = ("int8", "float32")
LOGITS = ("int8", "int32")


def activation_params(lo: float, hi: float, symmetric: bool = False) -> QuantParams:
    """Scale and zero point that hold [lo, hi], widened to contain 0 (which gets an exact code).

    Asymmetric: (hi - lo) / 255 and the zero point nearest to -128 - lo / scale. Symmetric: max(|lo|, |hi|) / 127 and 0.
    """
    lo, hi = min(float(lo), 0.0), max(float(hi), 0.0)
    if symmetric:
        return QuantParams((_scale(max(-lo, hi) / 127),), 0)
    scale = _scale((hi - lo) / 255)
    return QuantParams((scale,), int(np.clip(np.rint(-128 - lo / scale), -128, 127)))


def _scale(value: float) -> float:
    """A float32 > 0: a tensor that is 0 throughout can have any scale, and smaller than normal helps nobody."""
    scale = float(np.float32(value))
    return scale if scale >= float(np.finfo(np.float32).tiny) else 1.0


def weight_scales(w: np.ndarray) -> np.ndarray:
    """float32[channels]: max |w| / 127 over all axes but the last.

    A channel far smaller than the largest (by 2^16) takes a larger scale than its own: its multiplier would leave the
    range that requantisation can express, and its weights contribute nothing that int8 results can show.
    """
    peak = np.abs(w.reshape(-1, w.shape[-1]).astype(np.float64)).max(axis=0)
    floor = peak.max() * 2.0**-16
    return np.array([_scale(max(p, floor) / 127) for p in peak], np.float32)


def clamp_bounds(clamps: list[Clamp], quant: QuantParams) -> tuple[int, int]:
    """Codes of a clamp's bounds, cut to int8: zero point + bound / scale, rounded half away (as TFLite does)."""
    lo, hi = -128, 127
    for clamp in clamps:

        def code(bound: float) -> int:
            with np.errstate(over="ignore"):
                ratio = float(np.clip(np.float32(bound) / np.float32(quant.scale[0]), -512, 512))
            return quant.zero_point + int(np.copysign(np.floor(abs(ratio) + 0.5), ratio))

        low, high = (int(np.clip(code(b), -128, 127)) for b in (clamp.lo, clamp.hi))
        lo, hi = min(max(lo, low), high), max(min(hi, high), low)
    return lo, hi


def quantise(
    graph: Graph,
    calibration: Arrays,
    *,
    dialect: str = "fixed",
    symmetric: bool = False,
    io: str = "int8",
    logits: str = "int8",
    percentile: float = 100.0,
) -> Graph:
    """Quantise a float graph after training.

    The graph is canonicalised and fused first, so that what the array's epilogue computes in one go is rounded as it is
    there. Pools and reshapes keep the scale of their input; the executor (`run_quantised`) defines the result.

    Parameters
    ----------
    graph : Graph
        Of float operations.
    calibration : array or dict of arrays
        Example inputs, float32, any batch size; their ranges fix the scales.
    dialect : {'fixed', 'float'}
        How accumulators become int8, see `sluice.golden.numerics`.
    symmetric : bool
        Zero points 0 for all activations.
    io : {'int8', 'float32'}
        Type of the graph's inputs and outputs; with 'float32' it begins with `quantise` and ends with `dequantise`
        nodes.
    logits : {'int8', 'int32'}
        With 'int32' outputs are the accumulators (bias included), per-channel scales; every output must then come
        straight from a convolution or matmul.
    percentile : float
        Share of the calibration values, in percent, that the range of an activation covers: 100 is min to max, 99.9
        cuts 0.05 % at each end.

    Returns
    -------
    Graph
        Node names are kept; `quant` of its tensors tells scales and zero points.

    Raises
    ------
    GraphError
        Unknown options, calibration data that do not fit or are not finite, an operation without integer counterpart,
        weights whose accumulators could overflow int32.
    """
    for name, value, allowed in (("dialect", dialect, DIALECTS), ("io", io, IO), ("logits", logits, LOGITS)):
        if value not in allowed:
            raise GraphError(f"{name} is {value!r}; allowed: {', '.join(allowed)}")
    if not 50 < percentile <= 100:
        raise GraphError(f"percentile is {percentile!r}; allowed: above 50, at most 100")
    for node in graph:
        if OPS[node.op].quantised or (node.op == "input" and node.type.dtype != "float32"):
            raise GraphError(f"{node.op} '{node.name}' : {node.type} is no part of a float graph; nothing to quantise")
    graph = fuse(canonicalise(graph))
    ranges = _calibrate(graph, calibration, percentile)
    return _Quantiser(graph, ranges, dialect, symmetric, io, logits).run()


Range = tuple[float, float]


def _calibrate(graph: Graph, calibration: Arrays, percentile: float) -> dict[tuple[str, int | None], Range]:
    arrays = check_inputs(graph, calibration, any_batch=True)
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise GraphError(f"calibration data of input '{name}' hold NaN or infinity; allowed: finite values")
    ranges: dict[tuple[str, int | None], Range] = {}

    def observe(node: str, stage: int | None, value: np.ndarray) -> None:
        if percentile == 100:
            ranges[node, stage] = float(value.min()), float(value.max())
        else:
            cut = (100 - percentile) / 2
            low, high = np.percentile(value.astype(np.float64), (cut, 100 - cut))
            ranges[node, stage] = float(low), float(high)

    run_float(graph.with_batch(next(iter(arrays.values())).shape[0]), arrays, observe)
    return ranges


@dataclass
class _Quantiser:
    """Walks a fused float graph and builds the quantised one."""

    graph: Graph
    ranges: dict[tuple[str, int | None], Range]
    dialect: str
    symmetric: bool
    io: str
    logits: str

    def run(self) -> Graph:
        self.made = Graph(self.graph.name)
        self.tensors: dict[str, Tensor] = {}
        for node in self.graph:
            tensor = self.node(node)
            if tensor is not None:
                self.tensors[node.name] = tensor
        for name, source in self.graph.outputs.items():
            tensor = self.operand(source)
            if self.logits == "int32" and tensor.dtype != "int32":
                raise GraphError(
                    f"output '{name}' comes from {self.graph[source].op} '{source}'; int32 logits come straight from a "
                    "convolution or matmul"
                )
            if self.io == "float32":
                tensor = self.made.add_node("dequantise", (tensor,), {}, self.fresh(f"{source}.dequantised"))
            self.made.output(tensor, name)
        self.made.validate()
        return self.made

    def fresh(self, name: str) -> str:
        """`name`, with underscores until neither graph has it."""
        while name in self.made.nodes or name in self.graph.nodes:
            name += "_"
        return name

    def params(self, name: str, stage: int | None = None) -> QuantParams:
        return activation_params(*self.ranges[name, stage], self.symmetric)

    def operand(self, name: str) -> Tensor:
        """The quantised tensor; a float constant becomes int8 when something adds it or outputs it."""
        if name not in self.tensors:
            value = self.graph[name].value
            if value.dtype != np.float32:
                raise GraphError(f"constant '{name}' has dtype {value.dtype}; allowed in a float graph: float32")
            quant = activation_params(value.min(), value.max(), self.symmetric)
            self.tensors[name] = self.made.constant(quantise_array(value, quant), name, quant)
        return self.tensors[name]

    def node(self, node: Node) -> Tensor | None:
        a = node.attrs
        match node.op:
            case "constant":
                return None  # made by whoever reads it
            case "input":
                quant = self.params(node.name)
                if self.io == "int8":
                    return self.made.input(node.name, node.type.shape, "int8", quant)
                x = self.made.input(node.name, node.type.shape)
                return self.made.add_node("quantise", (x,), {"quant": quant}, self.fresh(f"{node.name}.quantised"))
            case "conv2d" | "matmul":
                return self.weighted(node)
            case "add":
                return self.add(node)
            case "clamp":
                x = self.operand(node.inputs[0])
                lo, hi = clamp_bounds([Clamp(a["lo"], a["hi"])], x.quant)
                return self.made.add_node("qclamp", (x,), {"lo": lo, "hi": hi}, node.name)
            case "max_pool2d":
                return self.made.add_node("qmax_pool2d", (self.operand(node.inputs[0]),), a, node.name)
            case "avg_pool2d":
                attrs = {**a, "dialect": self.dialect}
                return self.made.add_node("qavg_pool2d", (self.operand(node.inputs[0]),), attrs, node.name)
            case "mean":
                attrs = {"dialect": self.dialect, "quant": self.params(node.name)}
                return self.made.add_node("qmean", (self.operand(node.inputs[0]),), attrs, node.name)
            case "reshape":
                return self.made.add_node("reshape", (self.operand(node.inputs[0]),), a, node.name)
        raise GraphError(f"{node.op} '{node.name}' has no integer counterpart")

    def add(self, node: Node) -> Tensor:
        a, b = (self.operand(i) for i in node.inputs)
        if a.shape != b.shape:
            raise GraphError(
                f"add '{node.name}': a constant {b.shape} per channel is added to {a.shape}; allowed only right behind "
                "a convolution or matmul that nothing else reads, whose bias takes it"
            )
        stage = self.sum(a.quant, b.quant, self.params(node.name), list(node.attrs["epilogue"]))
        return self.made.add_node("qadd", (a, b), {"stage": stage, "quant": stage.out}, node.name)

    def sum(self, a: QuantParams, b: QuantParams, out: QuantParams, clamps: list[Clamp]) -> AddResidual:
        # TFLite's ADD wants an output scale that the shifted inputs can reach: far smaller ones only occur when the
        # addends cancel to nothing, and then any scale does.
        floor = max(a.scale[0], b.scale[0]) * 2.0**-16
        if out.scale[0] < floor:
            out = QuantParams((floor,), out.zero_point)
        return AddResidual(self.dialect, a, b, out, *clamp_bounds(clamps, out))

    def weighted(self, node: Node) -> Tensor:
        """A convolution or matmul with everything that its epilogue does."""
        where = f"{node.op} '{node.name}'"
        x = self.operand(node.inputs[0])
        w, bias = (self.graph[i].value.astype(np.float64) for i in node.inputs[1:3])
        sa, sw = float(x.quant.scale[0]), weight_scales(w)
        scale = sa * sw.astype(np.float64)
        wq = np.clip(np.rint(w / sw.astype(np.float64)), -127, 127).astype(np.int8)
        bq = self.bias(where, bias, scale, wq, x.quant.zero_point)
        weights = self.made.constant(wq, self.fresh(f"{node.name}.wq"), QuantParams(tuple(sw)))
        accumulators = QuantParams(tuple(np.float32(scale)))
        bias_tensor = self.made.constant(bq, self.fresh(f"{node.name}.bq"), accumulators)
        inputs = [x, weights, bias_tensor, *(self.operand(i) for i in node.inputs[3:])]
        attrs = dict(node.attrs)
        if self.logits == "int32" and node.name in self.graph.outputs.values():
            if node.attrs["epilogue"]:
                raise GraphError(f"{where}: int32 logits cannot be followed by {describe(node.attrs['epilogue'])}")
            if self.graph.users()[node.name]:
                raise GraphError(f"{where}: int32 logits cannot be read by other nodes as well")
            attrs |= {"epilogue": (), "quant": accumulators}
        else:
            residual = inputs[3].quant if len(inputs) > 3 else None
            stages, quant = self.stages(node, scale, residual)
            attrs |= {"epilogue": stages, "quant": quant}
        return self.made.add_node(f"q{node.op}", inputs, attrs, node.name)

    def bias(self, where: str, bias: np.ndarray, scale: np.ndarray, wq: np.ndarray, zero_point: int) -> np.ndarray:
        """int32 bias with the zero point folded in; refuses what could leave int32."""
        columns = wq.reshape(-1, wq.shape[-1]).astype(np.int64)
        real = np.rint(bias / scale)
        # Exact bound: every product is at most 128 * |w|.
        peak = np.abs(real) + np.abs(columns).sum(axis=0) * 256.0
        if peak.max() >= 2.0**31:
            channel = int(peak.argmax())
            raise GraphError(
                f"{where}: output channel {channel} can reach {peak[channel]:.4g} in its accumulator (bias "
                f"{bias[channel]:.4g}, scale {scale[channel]:.4g}); allowed: below 2^31"
            )
        return numerics.fold_zero_point(real.astype(np.int64).astype(np.int32), wq, zero_point)

    def stages(
        self, node: Node, scale: np.ndarray, residual: QuantParams | None
    ) -> tuple[tuple[Stage, ...], QuantParams]:
        """The float epilogue in integers: requantise [-> add residual] [-> max pool]."""
        epilogue = list(node.attrs["epilogue"])
        out = self.params(node.name)
        at = next((i for i, s in enumerate(epilogue) if isinstance(s, Residual)), None)
        before = epilogue if at is None else epilogue[:at]
        mid = out if at is None else self.params(node.name, at)
        made: list[Stage] = [self.requantise(scale, mid, [s for s in before if isinstance(s, Clamp)])]
        if at is not None:
            assert residual is not None
            after = [s for s in epilogue[at:] if isinstance(s, Clamp)]
            made.append(self.sum(mid, residual, out, after))
            out = made[-1].out
        made += [s for s in epilogue if isinstance(s, MaxPool)]
        return tuple(made), out

    def requantise(self, scale: np.ndarray, out: QuantParams, clamps: list[Clamp]) -> Requantise:
        lo, hi = clamp_bounds(clamps, out)
        real = scale / out.scale[0]
        if self.dialect == "float":
            return Requantise("float", out.zero_point, lo, hi, scale=real.astype(np.float32))
        pairs = np.array([numerics.quantize_multiplier(r) for r in real], np.int32)
        multiplier, shift = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
        return Requantise("fixed", out.zero_point, lo, hi, multiplier=multiplier, shift=shift)
