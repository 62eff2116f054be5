"""Passes over float graphs, and how passes are run.

A pass is a function from graph to graph; it never changes its argument. A user's pass is as good as these:

>>> def shout(graph: Graph) -> Graph:
...     return Graph.from_nodes(graph.name.upper(), graph, graph.outputs)
>>> graph = run_passes(graph, [canonicalise, shout, fuse], dump=lambda name, g: print(name, g, sep="\\n"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from .epilogue import Clamp, Epilogue, MaxPool, Residual
from .graph import Graph, Node, NodeSpec
from .tensors import GraphError

__all__ = ["Pass", "canonicalise", "fuse", "run_passes"]

Pass = Callable[[Graph], Graph]


def run_passes(graph: Graph, passes: Iterable[Pass], dump: Callable[[str, Graph], object] | None = None) -> Graph:
    """Apply passes in order; each result is validated.

    Parameters
    ----------
    dump : callable, optional
        Called as ``dump(name, graph)`` with the graph as given (name ``"input"``) and after every pass.

    Raises
    ------
    GraphError
        A pass returned no `Graph`, or one that `Graph.validate` refuses (dead nodes are fine between passes); the
        message names the pass.
    """
    graph.validate(allow_dead=True)
    if dump is not None:
        dump("input", graph)
    for each in passes:
        name = getattr(each, "__name__", type(each).__name__)
        result = each(graph)
        if not isinstance(result, Graph):
            raise GraphError(f"pass {name} returned {type(result).__name__}; a pass returns a Graph")
        try:
            result.validate(allow_dead=True)
        except GraphError as error:
            raise GraphError(f"after pass {name}: {error}") from error
        graph = result
        if dump is not None:
            dump(name, graph)
    return graph


class _Rewriter:
    """Nodes of a graph in the making: replace, drop and redirect by name, then `build`."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.specs: dict[str, NodeSpec] = {n.name: NodeSpec(n.name, n.op, n.inputs, n.attrs) for n in graph}
        self.alias: dict[str, str] = {}
        self.place = {name: float(index) for index, name in enumerate(self.specs)}

    def put(self, spec: NodeSpec, place: float) -> None:
        """Add or replace a node; `place` orders the printed graph (as far as the data flow allows)."""
        self.specs[spec.name] = spec
        self.place[spec.name] = place

    def resolve(self, name: str) -> str:
        while name in self.alias:
            name = self.alias[name]
        return name

    def redirect(self, old: str, new: str) -> None:
        """Let readers of `old` read `new`; `old` goes."""
        self.alias[old] = new
        del self.specs[old]

    def build(self) -> Graph:
        specs = [replace(s, inputs=tuple(self.resolve(i) for i in s.inputs)) for s in self.specs.values()]
        specs.sort(key=lambda s: self.place[s.name])
        outputs = {name: self.resolve(source) for name, source in self.graph.outputs.items()}
        return Graph.from_nodes(self.graph.name, specs, outputs)


def _drop_dead(graph: Graph) -> Graph:
    live = graph.live() | set(graph.inputs)
    return Graph.from_nodes(graph.name, (n for n in graph if n.name in live), graph.outputs)


def canonicalise(graph: Graph) -> Graph:
    """Drop dead nodes, reshapes that change nothing and clamps that clamp nothing; fold reshape of reshape and clamp of
    clamp."""
    graph.validate(allow_dead=True)
    graph = _drop_dead(graph)
    edit = _Rewriter(graph)
    for node in graph:
        if node.op == "reshape":
            chain = [edit.resolve(node.inputs[0])]
            while edit.specs[chain[-1]].op == "reshape":
                chain.append(edit.resolve(edit.specs[chain[-1]].inputs[0]))
            after = node.type.shape
            same = next((name for name in chain if graph[name].type.shape == after), None)
            if same is not None:
                edit.redirect(node.name, same)
                continue
            root = chain[-1]
            before = graph[root].type.shape
            # 0 for a batch that stays, otherwise -1: the folded graph holds for other batches as the two did.
            shape = (0 if after[0] == before[0] else -1, *after[1:])
            edit.specs[node.name] = NodeSpec(node.name, "reshape", (root,), {"shape": shape})
        elif node.op == "clamp":
            source = edit.resolve(node.inputs[0])
            clamp = Clamp(node.attrs["lo"], node.attrs["hi"])
            if clamp == Clamp(float("-inf"), float("inf")):
                edit.redirect(node.name, source)
            elif edit.specs[source].op == "clamp":
                inner = edit.specs[source]
                both = Clamp(inner.attrs["lo"], inner.attrs["hi"]).then(clamp)
                edit.specs[node.name] = NodeSpec(node.name, "clamp", inner.inputs, {"lo": both.lo, "hi": both.hi})
    return _drop_dead(edit.build())


def _append(epilogue: Epilogue, stage: Clamp | Residual | MaxPool) -> Epilogue | None:
    """The epilogue with one more stage, or None where the output path cannot do it in one go.

    The order the hardware has is: clamp, residual, clamp, max pool.
    """
    pooled = bool(epilogue) and isinstance(epilogue[-1], MaxPool)
    if isinstance(stage, Clamp):
        # A maximum commutes with every monotone function, so a clamp after the pool moves before it.
        head, tail = (epilogue[:-1], epilogue[-1:]) if pooled else (epilogue, ())
        if head and isinstance(head[-1], Clamp):
            return (*head[:-1], head[-1].then(stage), *tail)
        return (*head, stage, *tail)
    if pooled or (isinstance(stage, Residual) and Residual() in epilogue):
        return None
    return (*epilogue, stage)


def fuse(graph: Graph) -> Graph:
    """Let convolutions and matmuls take the element-wise work that follows them into their epilogues.

    Taken are: a constant per channel that is added directly (into the bias), clamps (ReLU, ReLU6), one residual
    addition, and a max pool at the end. An addition that finds no such node takes a clamp that follows it. Only results
    that nothing else reads are fused. Of two candidates for a residual addition the later one takes it. The fused node
    keeps the name of the convolution or matmul.
    """
    graph.validate(allow_dead=True)
    edit = _Rewriter(graph)
    readers = {name: len(users) for name, users in graph.users().items()}
    for source in graph.outputs.values():
        readers[source] += 1

    def candidate(name: str, *ops: str) -> NodeSpec | None:
        """The convolution or matmul (or other of `ops`) behind `name`, if `name` has one reader."""
        spec = edit.specs[edit.resolve(name)]
        return spec if spec.op in ("conv2d", "matmul", *ops) and readers[name] == 1 else None

    def take(node: Node, into: NodeSpec, stage: Clamp | Residual | MaxPool, extra: tuple[str, ...] = ()) -> bool:
        epilogue = _append(into.attrs["epilogue"], stage)
        if epilogue is None:
            return False
        # The fused node stands where its last part stood: its residual may have been made in between.
        merged = NodeSpec(into.name, into.op, (*into.inputs, *extra), {**into.attrs, "epilogue": epilogue})
        edit.redirect(node.name, into.name)
        edit.put(merged, edit.place[node.name])
        return True

    for node in graph:
        if node.op == "clamp":
            if into := candidate(node.inputs[0], "add"):
                take(node, into, Clamp(node.attrs["lo"], node.attrs["hi"]))
        elif node.op == "max_pool2d":
            if into := candidate(node.inputs[0]):
                take(node, into, MaxPool(node.attrs["window"], node.attrs["stride"], node.attrs["padding"]))
        elif node.op == "add":
            if _take_bias(graph, edit, node, candidate(node.inputs[0])):
                continue
            if graph[node.inputs[0]].type.shape != graph[node.inputs[1]].type.shape:
                continue
            sides = sorted(node.inputs, key=edit.place.__getitem__, reverse=True)
            for main in sides:
                other = node.inputs[1] if main == node.inputs[0] else node.inputs[0]
                if (into := candidate(main)) and take(node, into, Residual(), (other,)):
                    break
    return _drop_dead(edit.build())


def _take_bias(graph: Graph, edit: _Rewriter, node: Node, into: NodeSpec | None) -> bool:
    """Add a constant per channel to the bias of the node that made the sum's first input."""
    extra = graph[node.inputs[1]]
    if into is None or into.attrs["epilogue"] or extra.op != "constant" or len(extra.type.shape) != 1:
        return False
    bias = f"{node.name}.b"
    while bias in edit.specs:
        bias += "_"
    value = edit.specs[into.inputs[2]].attrs["value"] + extra.value
    value.setflags(write=False)
    edit.put(NodeSpec(bias, "constant", (), {"value": value, "quant": None}), edit.place[into.name] - 0.5)
    edit.put(replace(into, inputs=(*into.inputs[:2], bias)), edit.place[into.name])
    edit.redirect(node.name, into.name)
    return True
