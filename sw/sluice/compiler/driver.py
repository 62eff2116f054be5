"""`compile`: quantised graph in, program and HBM image out."""

from __future__ import annotations

from sluice_hw.config import ChipConfig

from .compiled import Compiled, Constant, TensorSpec
from .emit import Emitter
from .graph import Graph, Node
from .lower_matmul import MatmulAddresses, emit_matmul
from .place import HbmMap
from .plan_matmul import plan_matmul
from .vector_mode import output_path, param_blocks

__all__ = ["compile"]


def compile(graph: Graph, config: ChipConfig, *, batch: int | None = None, hbm_base: int = 0) -> Compiled:
    if batch is not None:
        graph = graph.with_batch(batch)
    graph.validate(allow_dead=True)
    node = next(n for n in graph if n.op == "qmatmul")
    return _compile_matmul(graph, node, config, hbm_base)


def _compile_matmul(graph: Graph, node: Node, config: ChipConfig, base: int) -> Compiled:
    x, w, bias = (graph[i] for i in node.inputs[:3])
    (m, k), n = x.type.shape, node.type.shape[1]
    path = output_path(bias.value, node.attrs["epilogue"], f"qmatmul '{node.name}'")
    plan = plan_matmul(config, m, k, n, wide=path.wide, params=path.params, where=f"qmatmul '{node.name}'")
    hbm = HbmMap(config, base)
    size = config.slice_bytes
    weights = hbm.take(f"weights of {node.name}", plan.weights.slices)
    constants = [Constant(weights.name, weights.first, weights.count, plan.weights.pack(w.value))]
    parameters = weights
    if path.params:
        data = param_blocks(path, config.cols)
        if plan.mode == "blocked":
            step, unit = config.param_bytes, plan.param_slices * size
            data = b"".join(data[i : i + step].ljust(unit, b"\0") for i in range(0, len(data), step))
        parameters = hbm.take_bytes(f"parameters of {node.name}", len(data))
        constants.append(Constant(parameters.name, parameters.first, parameters.count, data))
    inputs, outputs = {}, {}
    layout = plan.activations((m, k))
    a = hbm.take(f"input {x.name}", layout.slices)
    inputs[x.name] = TensorSpec(x.name, (m, k), "int8", a.first, a.count, layout)
    c = hbm.take("result", plan.results.slices)
    for name in graph.outputs:
        outputs[name] = TensorSpec(name, (m, n), node.type.dtype, c.first, c.count, plan.results)
    e = Emitter(config)
    at = MatmulAddresses(a.first, weights.first, parameters.first, c.first)
    memory = emit_matmul(e, plan, path, at, f"qmatmul '{node.name}'")
    e.halt()
    texts = (("tile", plan.describe()), ("place VMEM", memory.describe()), ("place HBM", hbm.describe()))
    program = e.finish(f"graph '{graph.name}'")
    return Compiled(
        graph, config, program, tuple(constants), inputs, outputs, m * k * n, plan.cycles(), base, hbm.next, texts
    )
