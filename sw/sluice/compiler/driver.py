"""`compile`: quantised graph in, program and HBM image out."""

from __future__ import annotations

from sluice.estimate import EstimateError, estimate
from sluice_hw.config import ChipConfig

from .compiled import Compiled, Constant, TensorSpec
from .emit import Emitter, OutOfRegisters
from .errors import CompileError, DoesNotFit, ProgramTooLong, Unsupported
from .graph import Graph
from .layout import Chunks, Layout
from .lower_matmul import MatmulAddresses, emit_matmul
from .lower_segment import SegmentAddresses, SegmentEmitter
from .partition import choose_partition
from .place import HbmMap
from .plan_matmul import MatmulPlan, plan_matmul
from .segment import SegmentPlan
from .steps import ArrayStep, Lowered, lower_graph
from .tiles import pack_tiles
from .vector_mode import param_blocks

__all__ = ["compile"]


def compile(graph: Graph, config: ChipConfig, *, batch: int | None = None, hbm_base: int = 0) -> Compiled:
    """Compile a quantised graph.

    Parameters
    ----------
    graph
        Result of `quantise`, or of `matmul_graph`.
    batch
        Batch size, when not the graph's.
    hbm_base
        First slice of HBM that the program may use.

    Returns
    -------
    Compiled
        ``describe()`` prints what every pass decided.

    Raises
    ------
    Unsupported
        For what the hardware cannot do; the message names the node.
    DoesNotFit
        When VMEM or HBM are too small: needed, free, and the largest hole.
    ProgramTooLong
        When the microcode store is too small.
    """
    if config.is_float:
        raise Unsupported(f"the compiler lowers int8 graphs, and chip '{config.name}' multiplies {config.dtype}")
    if batch is not None:
        graph = graph.with_batch(batch)
    lowered = lower_graph(graph, config.acc_region_rows)
    _check_tokens(lowered, config)
    if _is_matmul(lowered):
        return _Matmul(lowered, config, hbm_base).run()
    return _Segments(lowered, config, hbm_base).run()


def _check_tokens(lowered: Lowered, config: ChipConfig) -> None:
    """Refuse a chip whose token counters may overflow.

    LD gives the MXU most tokens ahead of their use: for ops that stand in its queue, for loads a few pieces ahead in
    program order, and at the start of a segment for the weights of every step.
    """
    needed = max(config.mxu_queue + 16, sum(isinstance(s, ArrayStep) for s in lowered.steps) + 2)
    if config.token_max < needed:
        raise Unsupported(f"config '{config.name}': token_max is {config.token_max}; allowed: at least {needed}")


def _is_matmul(lowered: Lowered) -> bool:
    """Whether the graph is one matmul of an input's rows, which need not fit in VMEM."""
    if len(lowered.steps) != 1 or not isinstance(lowered.steps[0], ArrayStep):
        return False
    step = lowered.steps[0]
    x = lowered.tensors[step.x]
    plain = step.image is None and step.pooled is None and step.residual is None and x.value is None
    return plain and x.shape[0] == step.rows * lowered.units


def _padded(data: bytes, size: int, unit: int) -> bytes:
    """Pieces of ``size`` bytes, each filled up to ``unit``."""
    return b"".join(data[i : i + size].ljust(unit, b"\0") for i in range(0, len(data), size))


class _Compilation:
    """What both ways to compile share: HBM and the host's view of it."""

    def __init__(self, lowered: Lowered, config: ChipConfig, base: int) -> None:
        self.lowered, self.config, self.base = lowered, config, base
        self.hbm = HbmMap(config, base)
        self.constants: list[Constant] = []

    def constant(self, name: str, data: bytes) -> int:
        part = self.hbm.take_bytes(name, len(data))
        self.constants.append(Constant(name, part.first, part.count, data))
        return part.first

    def finish(
        self, e: Emitter, layouts: dict[str, tuple[int, Layout]], cycles: int, texts: list[tuple[str, str]]
    ) -> Compiled:
        """Put everything together; ``layouts`` has slice and layout of the tensors in HBM."""
        graph, config = self.lowered.graph, self.config
        e.halt()
        program = e.finish(f"graph '{graph.name}'")
        inputs, outputs = {}, {}
        for name, (tensor, convert) in self.lowered.inputs.items():
            first, layout = layouts[tensor]
            dtype = "int8" if convert is None else "float32"
            shape = graph[name].type.shape
            inputs[name] = TensorSpec(name, shape, dtype, first, layout.slices, layout, convert)
        for name, (tensor, convert, shape) in self.lowered.outputs.items():
            first, layout = layouts[tensor]
            dtype = self.lowered.tensors[tensor].dtype if convert is None else "float32"
            outputs[name] = TensorSpec(name, shape, dtype, first, layout.slices, layout, convert)
        ends = "\n".join(f"  {kind} {t}" for kind, ts in (("in ", inputs), ("out", outputs)) for t in ts.values())
        texts = [
            ("steps", self.lowered.describe()), *texts, ("HBM", f"{self.hbm.describe()}\n{ends}"),
            ("program", f"  {len(program)} of {config.microcode_words} words; estimated {cycles} cycles"),
        ]  # fmt: skip
        return Compiled(
            graph, config, program, tuple(self.constants), inputs, outputs, self.lowered.macs, cycles, self.base,
            self.hbm.next, tuple(texts),
        )  # fmt: skip


class _Matmul(_Compilation):
    def run(self) -> Compiled:
        config, step = self.config, self.lowered.steps[0]
        assert isinstance(step, ArrayStep)
        where, path = f"matmul '{step.name}'", step.path
        m = step.rows * self.lowered.units

        def judge(plan: MatmulPlan) -> int:
            """Cycles by the cost model, from the plan's program; where its operands lie makes no difference."""
            e = Emitter(config)
            try:
                emit_matmul(e, plan, path, MatmulAddresses(0, 0, 0, 0), where)
                e.halt()
                return estimate(e.finish(where), config).cycles
            except (CompileError, EstimateError):
                return plan.cycles

        plan = plan_matmul(config, m, step.k, step.n, wide=path.wide, params=path.params, where=where, judge=judge)
        weights = self.constant(f"weights {step.name}", plan.weights.pack(step.weights))
        parameters = 0
        if path.params:
            data = param_blocks(path, config.cols)
            if plan.mode == "blocked":
                data = _padded(data, config.param_bytes, plan.param_slices * config.slice_bytes)
            parameters = self.constant(f"parameters {step.name}", data)
        x = plan.activations(self.lowered.tensors[step.x].shape)
        a = self.hbm.take(step.x, x.slices).first
        c = self.hbm.take(step.out, plan.results.slices).first
        e = Emitter(config)
        emit_matmul(e, plan, path, MatmulAddresses(a, weights, parameters, c), where)
        texts = [("tile", plan.describe()), ("VMEM", plan.memory.map.describe())]
        return self.finish(e, {step.x: (a, x), step.out: (c, plan.results)}, plan.cycles, texts)


class _Segments(_Compilation):
    def run(self) -> Compiled:
        choices: list[list[SegmentPlan]] = []
        reason: CompileError | None = None
        for slots in (1, 2):
            try:
                choices.append(choose_partition(self.config, self.lowered, slots))
            except DoesNotFit as error:
                reason = reason or error
        # The faster plan first; where microcode or address registers do not suffice, one with less code. Peeling saves
        # a load and repeats the code of a chunk.
        for plans in sorted(choices, key=lambda plans: sum(p.cycles() for p in plans)):
            for peel in (True, False):
                try:
                    return self._emit(plans, peel)
                except OutOfRegisters as error:
                    reason = Unsupported(f"graph '{self.lowered.graph.name}': {error}")
                except ProgramTooLong as error:
                    if not isinstance(reason, ProgramTooLong) or error.needed < reason.needed:
                        reason = error
                self.hbm, self.constants = HbmMap(self.config, self.base), []
        assert reason is not None
        raise reason

    def _emit(self, plans: list[SegmentPlan], peel: bool) -> Compiled:
        config, lowered = self.config, self.lowered
        addresses = [self._constants(plan) for plan in plans]
        layouts: dict[str, tuple[int, Layout]] = {}
        for name in dict.fromkeys(t for p in plans for t in (*p.inputs, *p.outputs)):
            t = lowered.tensors[name]
            layout = Chunks(t.shape, t.dtype, lowered.units, plans[0].chunk, config.slice_bytes)
            if t.value is not None:
                layouts[name] = (self.constant(name, layout.pack(t.value)), layout)
            else:
                layouts[name] = (self.hbm.take(name, layout.slices).first, layout)
        tensors = {name: first for name, (first, _) in layouts.items()}
        e = Emitter(config)
        for index, (plan, (weights, parameters)) in enumerate(zip(plans, addresses, strict=True)):
            at = SegmentAddresses(tensors, weights, parameters)
            SegmentEmitter(e, plan, at, peel, more=index < len(plans) - 1).run()
        texts = [(f"segment {i}", f"{p.describe()}\n{p.memory.describe()}") for i, p in enumerate(plans)]
        return self.finish(e, layouts, sum(p.cycles() for p in plans), texts)

    def _constants(self, plan: SegmentPlan) -> tuple[dict[str, int], int]:
        """Weights by step and parameters of a segment."""
        config, weights, params = self.config, {}, b""
        for name, array in plan.arrays.items():
            tiles = [(t.start, t.k) for t in array.tiles]
            data = pack_tiles(array.step.weights, tiles, config.rows, config.cols)
            if name in plan.streamed:
                data = _padded(data, plan.strip_bytes(array), plan.strip_slices(array) * config.slice_bytes)
            weights[name] = self.constant(f"weights {name}", data)
            if array.step.path.params:
                params += param_blocks(array.step.path, config.cols)
        return weights, self.constant("parameters", params) if params else 0
