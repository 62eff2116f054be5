"""The graph: SSA nodes with one result each, built by methods, read by passes, printed by `str`.

Images are NHWC, convolution weights HWIO, matrices [M, K] x [K, N]. Dimension 0 of every input is the batch.

>>> g = Graph("tiny")
>>> x = g.input("x", (1, 4))
>>> g.output(g.relu(g.matmul(x, np.ones((4, 2), np.float32))), "y")
>>> print(g)
graph tiny {
  %x = input() : f32[1,4]
  %matmul.w = constant() : f32[4,2]
  %matmul.b = constant() : f32[2]
  %matmul = matmul(%x, %matmul.w, %matmul.b) : f32[1,2]
  %clamp = clamp(%matmul) relu : f32[1,2]
  output y = %clamp
}
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from .epilogue import Clamp, MaxPool, Requantise, describe, max_pool_attrs
from .ops import OPS, OpCall
from .shapes import pair, resolve_padding
from .tensors import GraphError, QuantParams, TensorType, check_dtype, check_shape

__all__ = ["Graph", "Node", "NodeSpec", "Tensor"]


@dataclass(frozen=True)
class NodeSpec:
    """A node before its type is known: what `Graph.from_nodes` takes."""

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Node(NodeSpec):
    """A node of a graph. Its name is also the name of its result."""

    type: TensorType = TensorType((1,), "float32")

    @property
    def value(self) -> np.ndarray:
        """The array of a constant (read-only)."""
        if self.op != "constant":
            raise GraphError(f"{self.op} '{self.name}' has no value; only constants do")
        return self.attrs["value"]

    def __str__(self) -> str:
        text = f"%{self.name} = {self.op}({', '.join('%' + i for i in self.inputs)})"
        if self.op == "clamp":
            text += f" {Clamp(self.attrs['lo'], self.attrs['hi'])}"
        else:
            shown = {k: v for k, v in self.attrs.items() if k not in ("epilogue", "quant", "value", "dtype")}
            if self.op == "input":
                shown = {}
            if shown:
                text += " {" + ", ".join(f"{k}={v}" for k, v in shown.items()) + "}"
        if self.attrs.get("epilogue"):
            text += f" -> {describe(self.attrs['epilogue'])}"
        return f"{text} : {self.type}"


@dataclass(frozen=True, eq=False)
class Tensor:
    """Handle of a node's result, returned by the builder methods."""

    graph: Graph
    name: str

    @property
    def type(self) -> TensorType:
        return self.graph[self.name].type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def quant(self) -> QuantParams | None:
        return self.type.quant

    def __repr__(self) -> str:
        return f"Tensor(%{self.name} : {self.type})"


class Graph:
    """A directed acyclic graph of tensor operations.

    Builder methods append one node, infer its type and return a `Tensor`; whatever is wrong raises `GraphError` there
    and leaves the graph unchanged. Nodes never change: a pass builds a new graph (`from_nodes`).

    Parameters
    ----------
    name : str
        For printing and reports.
    """

    def __init__(self, name: str) -> None:
        _check_name(name, "graph name")
        self.name = name
        self._nodes: dict[str, Node] = {}
        self._outputs: dict[str, str] = {}

    # ---- reading -----------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Nodes by name, every node after its inputs."""
        return MappingProxyType(self._nodes)

    @property
    def outputs(self) -> Mapping[str, str]:
        """Node name by output name, in order."""
        return MappingProxyType(self._outputs)

    @property
    def inputs(self) -> dict[str, Node]:
        """Input nodes by name, in order."""
        return {n.name: n for n in self if n.op == "input"}

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, name: str) -> Node:
        try:
            return self._nodes[name]
        except KeyError:
            raise GraphError(f"graph '{self.name}' has no node '{name}'; it has: {', '.join(self._nodes)}") from None

    def users(self) -> dict[str, list[str]]:
        """Names of the nodes that read each node, one entry per operand (so x + x lists its reader twice)."""
        result: dict[str, list[str]] = {name: [] for name in self._nodes}
        for node in self:
            for source in node.inputs:
                result[source].append(node.name)
        return result

    def live(self) -> set[str]:
        """Names of the nodes that some output depends on."""
        found: set[str] = set()
        stack = list(self._outputs.values())
        while stack:
            name = stack.pop()
            if name not in found:
                found.add(name)
                stack.extend(self._nodes[name].inputs)
        return found

    def __str__(self) -> str:
        lines = [f"graph {self.name} {{", *(f"  {node}" for node in self)]
        lines += [f"  output {name} = %{source}" for name, source in self._outputs.items()]
        return "\n".join([*lines, "}"])

    def fingerprint(self) -> str:
        """SHA-256 over everything that decides the results (names of nodes and of the graph included), in hex."""
        digest = hashlib.sha256(str(self).encode())
        for node in self:
            # repr keeps every digit of the scales and bounds, where the printed text rounds them.
            attrs = [(k, v) for k, v in node.attrs.items() if k != "value"]
            digest.update(repr((node.name, node.type, attrs)).encode())
            if node.op == "constant":
                digest.update(np.ascontiguousarray(node.value).tobytes())
            for stage in node.attrs.get("epilogue", ()):
                digest.update(stage.data() if isinstance(stage, Requantise) else repr(stage).encode())
        return digest.hexdigest()

    # ---- building ----------------------------------------------------------------------------------------------------

    def add_node(
        self, op: str, inputs: Iterable[Tensor | str], attrs: Mapping[str, Any], name: str | None = None
    ) -> Tensor:
        """Append a node of any operation in `sluice.compiler.ops.OPS`; what the other builder methods end in.

        Raises
        ------
        GraphError
            Unknown operation, wrong number of inputs, unknown or missing attribute, an input of another graph, a name
            in use, or types that the operation refuses.
        """
        if op not in OPS:
            raise GraphError(f"unknown operation {op!r}; allowed: {', '.join(OPS)}")
        spec = OPS[op]
        name = self._fresh(op) if name is None else name
        _check_name(name, "node name")
        if name in self._nodes:
            raise GraphError(f"{op} '{name}': the name is already taken by {self._nodes[name].op} '{name}'")
        where = f"{op} '{name}'"
        sources = tuple(self._source(value, where) for value in inputs)
        if len(sources) not in spec.inputs:
            allowed = " or ".join(str(n) for n in spec.inputs)
            raise GraphError(f"{where}: {len(sources)} inputs; allowed: {allowed}")
        if set(attrs) != set(spec.attrs):
            raise GraphError(f"{where}: attributes {sorted(attrs)}; needed: {sorted(spec.attrs)}")
        call = OpCall(
            name, op, attrs, [self._nodes[s].type for s in sources], [self._nodes[s].op == "constant" for s in sources]
        )
        self._nodes[name] = Node(name, op, sources, MappingProxyType(dict(attrs)), spec.infer(call))
        return Tensor(self, name)

    def input(
        self, name: str, shape: Iterable[int], dtype: str = "float32", quant: QuantParams | None = None
    ) -> Tensor:
        """A tensor given at run time; dimension 0 is the batch."""
        where = f"input '{name}'"
        attrs = {"shape": check_shape(shape, where), "dtype": check_dtype(dtype, where), "quant": quant}
        return self.add_node("input", (), attrs, name)

    def constant(self, value: object, name: str | None = None, quant: QuantParams | None = None) -> Tensor:
        """A tensor known now. float64 becomes float32 and int64 int32 where that loses nothing but precision."""
        array = np.array(value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        elif array.dtype == np.int64 and np.array_equal(array.astype(np.int32), array):
            array = array.astype(np.int32)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise GraphError(f"constant '{name or 'constant'}': holds NaN or infinity; allowed: finite values")
        array.setflags(write=False)
        return self.add_node("constant", (), {"value": array, "quant": quant}, name)

    def conv2d(
        self,
        x: Tensor,
        w: Tensor | np.ndarray,
        bias: Tensor | np.ndarray | None = None,
        *,
        stride: int | tuple[int, int] = 1,
        padding: str | tuple[tuple[int, int], tuple[int, int]] = "same",
        dilation: int | tuple[int, int] = 1,
        name: str | None = None,
    ) -> Tensor:
        """2-D convolution (cross-correlation) of x[N, H, W, C_in] with constant w[KH, KW, C_in, C_out].

        Parameters
        ----------
        bias : [C_out], optional
            Zero if left out.
        stride, dilation : int or (height, width)
        padding : 'same', 'valid' or ((top, bottom), (left, right))
            'same' pads as TensorFlow does, the larger half at the end.
        """
        name = self._fresh("conv2d") if name is None else name
        where = f"conv2d '{name}'"
        stride, dilation = pair(stride, "stride", where), pair(dilation, "dilation", where)
        xs, ws = self[self._source(x, where)].type.shape, _shape_of(w)
        if len(xs) != 4 or len(ws) != 4:
            raise GraphError(f"{where}: input {xs} and weights {ws}; allowed: (N, H, W, C) and (KH, KW, C_in, C_out)")
        pads = resolve_padding(padding, xs[1:3], ws[:2], stride, dilation, where)
        attrs = {"stride": stride, "padding": pads, "dilation": dilation, "epilogue": ()}
        return self._weighted("conv2d", name, x, w, bias, attrs)

    def matmul(
        self, x: Tensor, w: Tensor | np.ndarray, bias: Tensor | np.ndarray | None = None, *, name: str | None = None
    ) -> Tensor:
        """x[M, K] times constant w[K, N], plus bias[N] (zero if left out)."""
        name = self._fresh("matmul") if name is None else name
        if len(_shape_of(w)) != 2:
            raise GraphError(f"matmul '{name}': weights {_shape_of(w)}; allowed: (K, N)")
        return self._weighted("matmul", name, x, w, bias, {"epilogue": ()})

    def add(self, a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
        """Element-wise sum of equal shapes; b may be a constant with one value per channel (last axis)."""
        return self.add_node("add", (a, b), {"epilogue": ()}, name)

    def clamp(self, x: Tensor, lo: float, hi: float, *, name: str | None = None) -> Tensor:
        """min(max(x, lo), hi)."""
        return self.add_node("clamp", (x,), {"lo": float(lo), "hi": float(hi)}, name)

    def relu(self, x: Tensor, *, name: str | None = None) -> Tensor:
        return self.clamp(x, 0.0, float("inf"), name=name)

    def relu6(self, x: Tensor, *, name: str | None = None) -> Tensor:
        return self.clamp(x, 0.0, 6.0, name=name)

    def max_pool2d(
        self,
        x: Tensor,
        window: int | tuple[int, int],
        *,
        stride: int | tuple[int, int] | None = None,
        padding: str | tuple[tuple[int, int], tuple[int, int]] = "valid",
        name: str | None = None,
    ) -> Tensor:
        """Maximum over windows of x[N, H, W, C]; the stride defaults to the window; padded cells never win."""
        return self._pool("max_pool2d", x, window, stride, padding, name)

    def avg_pool2d(
        self,
        x: Tensor,
        window: int | tuple[int, int],
        *,
        stride: int | tuple[int, int] | None = None,
        padding: str | tuple[tuple[int, int], tuple[int, int]] = "valid",
        name: str | None = None,
    ) -> Tensor:
        """Mean over windows of x[N, H, W, C]; the stride defaults to the window; padded cells are not counted."""
        return self._pool("avg_pool2d", x, window, stride, padding, name)

    def mean(self, x: Tensor, *, name: str | None = None) -> Tensor:
        """Global average: x[N, H, W, C] to [N, C]."""
        return self.add_node("mean", (x,), {}, name)

    def reshape(self, x: Tensor, shape: Iterable[int], *, name: str | None = None) -> Tensor:
        """The same elements in row-major order; -1 is inferred, 0 keeps the dimension (as in ONNX)."""
        dims = tuple(int(d) for d in shape)
        source = self[self._source(x, "reshape")].type.shape
        # A leading dimension that stays is the batch: written as 0, so that the graph holds for other batches.
        if dims and dims[0] == source[0]:
            dims = (0, *dims[1:])
        return self.add_node("reshape", (x,), {"shape": dims}, name)

    def flatten(self, x: Tensor, *, name: str | None = None) -> Tensor:
        """[N, ...] to [N, elements per image]."""
        return self.reshape(x, (0, -1), name=name)

    def output(self, x: Tensor, name: str | None = None) -> None:
        """Make `x` a result of the graph, called `name` (default: the node's own name)."""
        source = self._source(x, "output")
        name = source if name is None else name
        _check_name(name, "output name")
        if name in self._outputs:
            raise GraphError(f"output '{name}': the name is already taken by %{self._outputs[name]}")
        self._outputs[name] = source

    # ---- whole graphs ------------------------------------------------------------------------------------------------

    @classmethod
    def from_nodes(cls, name: str, nodes: Iterable[NodeSpec], outputs: Mapping[str, str]) -> Graph:
        """A graph of these nodes, in any order; types are inferred anew.

        Raises
        ------
        GraphError
            Duplicate names, inputs that do not exist, cycles, and everything `add_node` refuses.
        """
        specs: dict[str, NodeSpec] = {}
        for spec in nodes:
            if spec.name in specs:
                raise GraphError(f"{spec.op} '{spec.name}': the name is already taken by {specs[spec.name].op}")
            specs[spec.name] = spec
        graph = cls(name)
        for spec in _in_order(specs):
            graph.add_node(spec.op, spec.inputs, spec.attrs, spec.name)
        for output, source in outputs.items():
            graph.output(source, output)  # type: ignore[arg-type]  # names are accepted as handles
        return graph

    def with_batch(self, batch: int) -> Graph:
        """The same graph for another batch size (dimension 0 of every input)."""
        if not isinstance(batch, int | np.integer) or batch < 1:
            raise GraphError(f"graph '{self.name}': batch {batch!r}; allowed: an integer >= 1")
        specs = []
        for node in self:
            attrs = dict(node.attrs)
            if node.op == "input":
                attrs["shape"] = (int(batch), *attrs["shape"][1:])
            specs.append(NodeSpec(node.name, node.op, node.inputs, attrs))
        return Graph.from_nodes(self.name, specs, self._outputs)

    def validate(self, *, allow_dead: bool = False) -> None:
        """Refuse a graph that cannot be compiled.

        Parameters
        ----------
        allow_dead : bool
            Accept nodes that no output depends on (between passes; `canonicalise` drops them).

        Raises
        ------
        GraphError
            No outputs; inputs that nothing reads; dead nodes.
        """
        if not self._outputs:
            raise GraphError(f"graph '{self.name}' has no outputs; call output(tensor)")
        live = self.live()
        unused = [n for n in self.inputs if n not in live]
        if unused:
            raise GraphError(f"graph '{self.name}': no output depends on the inputs {', '.join(unused)}")
        dead = [f"{n.op} '{n.name}'" for n in self if n.name not in live]
        if dead and not allow_dead:
            raise GraphError(
                f"graph '{self.name}': no output depends on {', '.join(dead)}; the pass canonicalise drops them"
            )

    # ---- helpers -----------------------------------------------------------------------------------------------------

    def _source(self, value: Tensor | str, where: str) -> str:
        if isinstance(value, str):
            if value not in self._nodes:
                raise GraphError(f"{where}: input %{value} is undefined in graph '{self.name}'")
            return value
        if not isinstance(value, Tensor):
            raise GraphError(f"{where}: input {value!r} is not a Tensor; arrays enter through constant()")
        if value.graph is not self:
            raise GraphError(f"{where}: %{value.name} belongs to graph '{value.graph.name}', not to '{self.name}'")
        return value.name

    def _fresh(self, stem: str) -> str:
        name, count = stem, 0
        while name in self._nodes:
            count += 1
            name = f"{stem}_{count}"
        return name

    def _weighted(self, op: str, name: str, x: Tensor, w: object, bias: object, attrs: Mapping[str, Any]) -> Tensor:
        before = dict(self._nodes)
        try:
            wt = w if isinstance(w, Tensor) else self.constant(w, f"{name}.w")
            if bias is None:
                bias = np.zeros(_shape_of(w)[-1], np.float32)
            bt = bias if isinstance(bias, Tensor) else self.constant(bias, f"{name}.b")
            return self.add_node(op, (x, wt, bt), attrs, name)
        except GraphError:
            self._nodes = before
            raise

    def _pool(self, op: str, x: Tensor, window: Any, stride: Any, padding: Any, name: str | None) -> Tensor:
        name = self._fresh(op) if name is None else name
        where = f"{op} '{name}'"
        shape = self[self._source(x, where)].type.shape
        if len(shape) != 4:
            raise GraphError(f"{where}: input 0 has shape {shape}; allowed: 4 dimensions (N, H, W, C)")
        window = pair(window, "window", where)
        stride = window if stride is None else pair(stride, "stride", where)
        pool: MaxPool = max_pool_attrs(shape[1:3], window, stride, padding, where)
        attrs = {"window": pool.window, "stride": pool.stride, "padding": pool.padding}
        return self.add_node(op, (x,), attrs, name)


def _check_name(name: object, what: str) -> None:
    """Names print and parse: no spaces, no characters that the text form uses."""
    if not isinstance(name, str) or not name or any(c.isspace() or c in "%(){}=," for c in name):
        raise GraphError(f"{what} {name!r}; allowed: a non-empty string without spaces and without any of %(){{}}=,")


def _shape_of(value: object) -> tuple[int, ...]:
    return value.shape if isinstance(value, Tensor) else np.shape(value)


def _in_order(specs: Mapping[str, NodeSpec]) -> Iterator[NodeSpec]:
    """Every node after its inputs, otherwise as given (depth first, without recursion: graphs can be deep)."""
    done: set[str] = set()
    for root in specs:
        path: dict[str, Iterator[str]] = {root: iter(specs[root].inputs)} if root not in done else {}
        while path:
            name = next(reversed(path))
            source = next(path[name], None)
            if source is None:
                del path[name]
                done.add(name)
                yield specs[name]
            elif source not in specs:
                raise GraphError(f"{specs[name].op} '{name}': input %{source} is undefined")
            elif source in path:
                loop = list(path)[list(path).index(source) :]
                raise GraphError(f"cycle through {' <- '.join('%' + n for n in [*loop, source])}")
            elif source not in done:
                path[source] = iter(specs[source].inputs)
