"""A quantised graph as a list of steps: what the array or the vector unit does in one go.

Reshapes vanish (tensors are packed bytes in row-major order), conversions from and to float32 become the host's, and
epilogues that one VECTOR cannot do are split. Along the batch everything is cut into *units*: the largest number of
equal, independent parts that every tensor's first dimension has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd

import numpy as np

from .epilogue import AddResidual, MaxPool
from .errors import Unsupported
from .graph import Graph, Node
from .ops import OPS
from .shapes import Padding, window_output
from .tensors import QuantParams
from .vector_mode import OutputPath, output_path

__all__ = ["ArrayStep", "ElementStep", "Image", "Lowered", "PoolStep", "Step", "StepTensor", "lower_graph"]


@dataclass(frozen=True)
class StepTensor:
    """A tensor between steps.

    Attributes
    ----------
    shape, dtype
        Of the whole batch.
    unit_bytes
        Bytes of one unit.
    value
        Its contents, when they are known now.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    unit_bytes: int
    value: np.ndarray | None = None


@dataclass(frozen=True)
class Image:
    """Height, width, channels of an NHWC tensor, and images in a unit."""

    height: int
    width: int
    channels: int
    per_unit: int

    @property
    def line(self) -> int:
        """Bytes of a line."""
        return self.width * self.channels

    @property
    def size(self) -> int:
        return self.height * self.line


@dataclass(frozen=True)
class ArrayStep:
    """Matmul or convolution, and the way out of the accumulators.

    Attributes
    ----------
    x, out, residual
        Names of tensors.
    rows
        Accumulator rows of a unit.
    weights
        int8[K, N], K in the order (ky, kx, channel).
    image, kernel, stride, padding, dilation
        Of a convolution; ``image`` is None for a matmul, whose input rows are K contiguous bytes.
    output
        Image of the result before a pool.
    pooled
        Image of the result behind the pool on the accumulators, None without one.
    """

    name: str
    x: str
    out: str
    residual: str | None
    rows: int
    weights: np.ndarray
    path: OutputPath
    image: Image | None = None
    output: Image | None = None
    pooled: Image | None = None
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: Padding = ((0, 0), (0, 0))
    dilation: tuple[int, int] = (1, 1)
    zero_point: int = 0

    @property
    def k(self) -> int:
        return self.weights.shape[0]

    @property
    def n(self) -> int:
        return self.weights.shape[1]

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.x,) if self.residual is None else (self.x, self.residual)


@dataclass(frozen=True)
class ElementStep:
    """Byte by byte: a clamp, or an addition of two tensors.

    ``a`` passes through the vector unit, ``b`` is its residual operand.
    """

    name: str
    a: str
    b: str | None
    out: str
    lo: int
    hi: int
    stage: AddResidual | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.a,) if self.b is None else (self.a, self.b)


@dataclass(frozen=True)
class PoolStep:
    """Windows over images: ``how`` is ``"max"``, ``"average"`` or ``"mean"`` (of whole images)."""

    name: str
    x: str
    out: str
    how: str
    image: Image
    output: Image
    window: tuple[int, int]
    stride: tuple[int, int]
    padding: Padding = ((0, 0), (0, 0))
    dialect: str = "fixed"
    scales: tuple[QuantParams, QuantParams] | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.x,)


Step = ArrayStep | ElementStep | PoolStep


@dataclass
class Lowered:
    """A graph as steps.

    Attributes
    ----------
    units
        Independent parts of the batch.
    inputs
        Graph input name -> (tensor, conversion by the host).
    outputs
        Graph output name -> (tensor, conversion by the host, shape that the host sees).
    """

    graph: Graph
    units: int
    tensors: dict[str, StepTensor] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    inputs: dict[str, tuple[str, QuantParams | None]] = field(default_factory=dict)
    outputs: dict[str, tuple[str, QuantParams | None, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def macs(self) -> int:
        """Multiply-adds of all array steps, padding included."""
        return sum(s.rows * s.k * s.n for s in self.steps if isinstance(s, ArrayStep)) * self.units

    def describe(self) -> str:
        lines = [f"{self.units} units"]
        for s in self.steps:
            kind = {ArrayStep: "array", ElementStep: "element", PoolStep: "pool"}[type(s)]
            more = ""
            if isinstance(s, ArrayStep):
                more = f", {s.rows} rows per unit x K {s.k} x N {s.n}"
                more += ", residual" if s.residual else ""
                more += f", {s.path.pool}" if s.path.pool else ""
            elif isinstance(s, PoolStep):
                more = f", {s.how} {s.window[0]}x{s.window[1]}, stride {s.stride}, padding {s.padding}"
            lines.append(f"  {kind:7} {s.name}: {', '.join(s.reads)} -> {s.out}{more}")
        return "\n".join(lines)


def lower_graph(graph: Graph, region: int) -> Lowered:
    """Steps of a quantised graph, for accumulator regions of ``region`` rows.

    Raises
    ------
    Unsupported
        For operations of float graphs, conversions in the middle of the graph, and uses that the hardware has no way
        for; the message names the node.
    """
    graph.validate(allow_dead=True)
    return _Lowering(graph, region).run()


class _Lowering:
    def __init__(self, graph: Graph, region: int) -> None:
        self.graph, self.region = graph, region
        self.live = graph.live()
        self.root: dict[str, str] = {}
        weights = {n.inputs[i] for n in graph for i in (1, 2) if n.op in ("qconv2d", "qmatmul")}
        sizes = [
            n.type.shape[0]
            for n in graph
            if n.name in self.live and not (n.op == "constant" and n.name in weights)
        ]  # fmt: skip
        self.units = 0
        for size in sizes:
            self.units = gcd(self.units, size)
        self.out = Lowered(graph, max(self.units, 1))

    def run(self) -> Lowered:
        for node in self.graph:
            if node.name in self.live and not (OPS[node.op].quantised or node.op in ("input", "constant", "reshape")):
                raise Unsupported(f"{node.op} '{node.name}' belongs to a float graph; quantise it first")
        for node in self.graph:
            if node.name in self.live:
                self.node(node)
        for name, source in self.graph.outputs.items():
            self.output(name, source)
        return self.out

    # -- tensors -------------------------------------------------------------------------------------------------
    def tensor(self, name: str, shape: tuple[int, ...], dtype: str, value: np.ndarray | None = None) -> str:
        size = int(np.prod(shape)) * (4 if dtype == "int32" else 1)
        self.out.tensors[name] = StepTensor(name, shape, dtype, size // self.out.units, value)
        return name

    def result(self, node: Node) -> str:
        self.root[node.name] = node.name
        return self.tensor(node.name, node.type.shape, node.type.dtype)

    def source(self, node: Node, index: int) -> str:
        """Tensor that input ``index`` of a node is."""
        name = node.inputs[index]
        if name not in self.root:
            constant = self.graph[name]
            if constant.op != "constant" or constant.type.dtype != "int8":
                raise Unsupported(f"{node.op} '{node.name}': input {index} is {constant}; allowed: int8 tensors")
            self.root[name] = self.tensor(name, constant.type.shape, "int8", constant.value)
        return self.root[name]

    def image(self, node: Node, shape: tuple[int, ...]) -> Image:
        return Image(*shape[1:], shape[0] // self.out.units)

    def fresh(self, stem: str) -> str:
        while stem in self.out.tensors or stem in self.graph.nodes:
            stem += "_"
        return stem

    # -- nodes ---------------------------------------------------------------------------------------------------
    def node(self, node: Node) -> None:
        match node.op:
            case "constant":
                return
            case "input":
                users = [self.graph[u] for u in self.graph.users()[node.name] if u in self.live]
                if node.type.dtype == "int8":
                    self.out.inputs[node.name] = (self.result(node), None)
                elif not (node.type.dtype == "float32" and users and all(u.op == "quantise" for u in users)):
                    raise Unsupported(
                        f"input '{node.name}' is {node.type.dtype}; allowed: int8, or float32 that is quantised first"
                    )
                return
            case "quantise":
                where = self.graph[node.inputs[0]]
                if where.op != "input" or where.name in self.out.inputs:
                    raise Unsupported(
                        f"quantise '{node.name}' of {where.op} '{where.name}'; allowed: once for each input"
                    )
                self.root[node.name] = self.tensor(node.name, node.type.shape, "int8")
                self.out.inputs[where.name] = (node.name, node.type.quant)
                return
            case "dequantise":
                if any(u in self.live for u in self.graph.users()[node.name]):
                    raise Unsupported(f"dequantise '{node.name}' is read by other nodes; allowed: as an output only")
                return
            case "reshape":
                self.root[node.name] = self.source(node, 0)
                return
            case "qconv2d" | "qmatmul":
                self.weighted(node)
            case "qadd":
                a, b, stage = self.source(node, 0), self.source(node, 1), node.attrs["stage"]
                self.out.steps.append(ElementStep(node.name, a, b, self.result(node), stage.lo, stage.hi, stage))
            case "qclamp":
                lo, hi = node.attrs["lo"], node.attrs["hi"]
                self.out.steps.append(ElementStep(node.name, self.source(node, 0), None, self.result(node), lo, hi))
            case "qmax_pool2d" | "qavg_pool2d" | "qmean":
                self.pool(node)
            case _:
                raise Unsupported(
                    f"{node.op} '{node.name}' has no lowering; allowed: qconv2d, qmatmul, qadd, qclamp, qmax_pool2d, "
                    "qavg_pool2d, qmean, reshape, and quantise and dequantise at the ends"
                )

    def weighted(self, node: Node) -> None:
        where = f"{node.op} '{node.name}'"
        w, bias = (self.graph[i].value for i in node.inputs[1:3])
        x = self.source(node, 0)
        shape, units = self.graph[node.inputs[0]].type.shape, self.out.units
        geometry: dict[str, object] = {}
        output: Image | None = None
        if node.op == "qconv2d":
            a = node.attrs
            n, h, wide, _ = shape
            oh, ow = window_output((h, wide), w.shape[:2], a["stride"], a["padding"], a["dilation"], where)
            output = self.image(node, (n, oh, ow, w.shape[-1]))
            rows = oh * ow * output.per_unit
            pointwise = w.shape[:2] == (1, 1) and a["stride"] == (1, 1) and a["padding"] == ((0, 0), (0, 0))
            if not pointwise:
                geometry = {
                    "image": self.image(node, shape), "kernel": w.shape[:2], "stride": a["stride"],
                    "padding": a["padding"], "dilation": a["dilation"],
                    "zero_point": self.graph[node.inputs[0]].type.quant.zero_point,
                }  # fmt: skip
        else:
            rows = shape[0] // units
        fusable = output is not None and self._pool_fits(node, output)
        path = output_path(bias, node.attrs["epilogue"], where, pool_on_accumulators=fusable)
        flat = np.ascontiguousarray(w.reshape(-1, w.shape[-1]))
        residual = self.source(node, 3) if len(node.inputs) > 3 else None
        rest = list(path.rest)
        final = self.result(node)
        pooled = None
        if path.pool is not None:
            pooled = self.image(node, node.type.shape)
        out = final
        if rest:
            out = self.fresh(f"{node.name}.acc")
            before = node.type.shape
            if output is not None:
                before = (output.per_unit * units, output.height, output.width, output.channels)
            self.tensor(out, before, "int8")
        own = residual if path.residual is not None else None
        self.out.steps.append(
            ArrayStep(node.name, x, out, own, rows, flat, path, output=output, pooled=pooled, **geometry)
        )
        while rest:
            stage = rest.pop(0)
            target = final if not rest else self.fresh(f"{node.name}.sum")
            if target != final:
                self.tensor(target, self.out.tensors[out].shape, "int8")
            if isinstance(stage, AddResidual):
                self.out.steps.append(ElementStep(f"{node.name}.add", out, residual, target, stage.lo, stage.hi, stage))
            else:
                step = PoolStep(
                    f"{node.name}.pool", out, target, "max", output, self.image(node, node.type.shape), stage.window,
                    stage.stride, stage.padding,
                )  # fmt: skip
                self.out.steps.append(step)
            out = target

    def _pool_fits(self, node: Node, output: Image) -> bool:
        """Whether a max pool can walk the accumulators in one go: no padding, windows that tile the lines, and whole
        images in a region.

        Then the windows of successive images follow each other at a constant step.
        """
        pool = next((s for s in node.attrs["epilogue"] if isinstance(s, MaxPool)), None)
        if pool is None or pool.padding != ((0, 0), (0, 0)):
            return False
        return output.height == node.type.shape[1] * pool.stride[0] and output.height * output.width <= self.region

    def pool(self, node: Node) -> None:
        x, out = self.source(node, 0), self.result(node)
        image = self.image(node, self.graph[node.inputs[0]].type.shape)
        a = node.attrs
        if node.op == "qmean":
            scales = (self.graph[node.inputs[0]].type.quant, node.type.quant)
            output = Image(1, 1, image.channels, image.per_unit)
            window = (image.height, image.width)
            step = PoolStep(
                node.name, x, out, "mean", image, output, window, window, dialect=a["dialect"], scales=scales
            )
        else:
            output = self.image(node, node.type.shape)
            how = "max" if node.op == "qmax_pool2d" else "average"
            quant = node.type.quant
            scales = None if quant is None else (quant, quant)
            step = PoolStep(
                node.name, x, out, how, image, output, a["window"], a["stride"], a["padding"],
                a.get("dialect", "fixed"), scales,
            )  # fmt: skip
        for size in step.window:
            if size > 1023:
                raise Unsupported(
                    f"{node.op} '{node.name}': window {step.window}; the vector unit walks at most 1023 a side"
                )
        self.out.steps.append(step)

    # -- outputs -------------------------------------------------------------------------------------------------
    def output(self, name: str, source: str) -> None:
        node, convert = self.graph[source], None
        if node.op == "dequantise":
            convert = self.graph[node.inputs[0]].type.quant
            source = node.inputs[0]
        if source not in self.root:
            constant = self.graph[source]
            if constant.op != "constant" or constant.type.dtype != "int8":
                raise Unsupported(f"output '{name}' is {constant}; allowed: int8 or int32 tensors, or dequantised ones")
            self.root[source] = self.tensor(source, constant.type.shape, "int8", constant.value)
        tensor = self.root[source]
        made = {s.out for s in self.out.steps}
        if tensor not in made:  # an input or constant goes out as it is: copy it
            copy = self.fresh(f"{name}.copy")
            old = self.out.tensors[tensor]
            self.tensor(copy, old.shape, old.dtype)
            self.out.steps.append(ElementStep(copy, tensor, None, copy, -128, 127))
            tensor = copy
        self.out.outputs[name] = (tensor, convert, node.type.shape)
