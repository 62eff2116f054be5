"""Microcode of a resident segment.

Tokens:

- LD -> MXU, VPU: the inputs of a chunk, and once the weights of each step and the parameters, in the order of loading.
- MXU -> VPU: a group's sums are complete. VPU -> MXU: a region is drained; two are free at the start. So when a group
  starts, the VECTORs of all groups but the last are known to have ended, and a step whose input they made needs nothing
  more. Where that is not enough, a *barrier* takes all tokens and renews them.
- MXU -> LD: a slot of the ring of streamed weights is free.
- VPU -> LD: the inputs of a chunk have been read. VPU -> ST, ST -> VPU: an output is complete, its slot is free.

What else shares memory is ordered by that: only VECTORs overwrite tensors, in order, and each waits for its group,
which ended behind all groups before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sluice_hw.isa import Op, Unit

from .emit import FAR, Emitter
from .errors import Unsupported
from .lower_array import emit_array
from .lower_vector import emit_element, emit_pool
from .segment import CH, NT, ONE, ArrayPlan, SegmentPlan
from .steps import ArrayStep, ElementStep, Step
from .tiles import ceil_div

__all__ = ["SegmentAddresses", "SegmentEmitter"]


@dataclass(frozen=True)
class SegmentAddresses:
    """First slices in HBM: tensors of the segment's border, weights by step, parameters of all steps."""

    tensors: Mapping[str, int]
    weights: Mapping[str, int]
    parameters: int


@dataclass
class SegmentEmitter:
    """Writes one segment.

    Parameters
    ----------
    peel
        Emit the last chunk on its own, without the load of a next one. Otherwise that load repeats the first chunk,
        which nobody reads.
    more
        Another segment follows.
    """

    e: Emitter
    plan: SegmentPlan
    at: SegmentAddresses
    peel: bool
    more: bool = False
    #: Slot of the chunk that is being emitted.
    slot: int = 0
    #: Whether its first iteration is the segment's first chunk (the loads of constants have tokens of their own).
    first: bool = True
    params_ready: bool = False
    #: Groups of this chunk so far; what made each tensor: its cut and the number of its first group, or for a step of
    #: the vector unit the number of the group that follows.
    group: int = 0
    made: dict[str, tuple[ArrayPlan, int] | int] = field(default_factory=dict)
    #: A step of the vector unit alone stands behind the last group.
    alone: bool = False

    # -- pointers ------------------------------------------------------------------------------------------------
    def point(self, role: str, tensor: str, strides: Mapping[int, int], offset: int = 0) -> int:
        """Register of a pointer into this chunk of a tensor, set anew here; ``strides`` are its steps at ENDs."""
        return self.fixed(role, self._address(tensor, self.slot) + offset, strides)

    def fixed(self, role: str, base: int, strides: Mapping[int, int], ring: int = FAR) -> int:
        """Register of a pointer that is set anew here; pointers of one role share it."""
        return self.e.pointer(role, base, strides, ring=ring, where="segment")

    def _address(self, tensor: str, slot: int) -> int:
        buffer = self.plan.memory[tensor]
        return buffer.address + (slot % buffer.slots) * buffer.slot

    # -- whole segment -------------------------------------------------------------------------------------------
    def run(self) -> None:
        e, plan = self.e, self.plan
        chunks = plan.chunks
        double = chunks > 1 and plan.slots > 1
        credits = len(plan.outputs) * (2 if double else 1)
        e.note(plan.describe())
        e.forget()
        for name in plan.inputs:
            slices = self._slices(name)
            e.pointer(f"ld {name}", self.at.tensors[name], {ONE: slices}, ring=slices * (chunks + self.peel))
        with e.loop(ONE, 1):
            self._load_inputs(0)
        self._load_constants()
        for _ in range(2):
            e.sync("vpu", signal="mxu")
        for _ in range(credits):
            e.sync("st", signal="vpu")
        if double:
            e.sync("vpu", signal="ld")
        region = plan.config.acc_region_rows
        e.pointer("acc", 0, {NT: region}, ring=2 * region)
        for name in plan.outputs:
            slices = self._slices(name)
            e.pointer(f"st {name}", self.at.tensors[name], {ONE: slices}, ring=slices * (chunks + 1))
        loads = 0
        for times, bodies in self._schedule():
            with e.loop(CH, times):
                for slot, load in bodies:
                    self._chunk(slot, load)
                    self.first = False
                    loads += times * load
        if self.more:
            self._drain(double, credits, loads)
        e.release(*e.names)

    def _schedule(self) -> list[tuple[int, list[tuple[int, bool]]]]:
        """(iterations of CH, [(slot, whether the next chunk is loaded)])."""
        chunks = self.plan.chunks
        if self.plan.slots == 1 or chunks == 1:
            if chunks > 1 and not self.peel:
                return [(chunks, [(0, True)])]
            return [(n, [(0, load)]) for n, load in ((chunks - 1, True), (1, False)) if n]
        pairs, odd = divmod(chunks, 2)
        both = [(0, True), (1, True)]
        if odd:
            return [(pairs, both), (1, [(0, False)])]
        if not self.peel:
            return [(pairs, both)]
        return [(n, b) for n, b in ((pairs - 1, both), (1, [(0, True), (1, False)])) if n]

    def _slices(self, name: str) -> int:
        return ceil_div(self.plan.tensor_bytes(name), self.plan.config.slice_bytes)

    # -- loads ---------------------------------------------------------------------------------------------------
    def _readers(self) -> list[str]:
        """Units that take a token per chunk of inputs."""
        vector = False
        for s in self.plan.steps:
            reads = set(s.reads) - ({s.x} if isinstance(s, ArrayStep) else set())
            vector |= bool(reads & set(self.plan.inputs))
        array = any(isinstance(s, ArrayStep) for s in self.plan.steps)
        return (["mxu"] if array else []) + (["vpu"] if vector else [])

    def _load_inputs(self, slot: int, wait: str = "") -> None:
        """Load the next chunk of every input."""
        e, plan = self.e, self.plan
        for index, name in enumerate(plan.inputs):
            last = index == len(plan.inputs) - 1
            vmem = self.fixed("load", self._address(name, slot), {})
            e.setup(Op.DMA_SHAPE, unit=Unit.LD, row_bytes=plan.tensor_bytes(name), rows=1)
            count = self._train(name, self._slices(name))
            e.op(
                Op.HBM_READ_SLICE, hbm=e[f"ld {name}"], vmem=vmem, count=count,
                signal=self._readers() if last else [], wait=wait if index == 0 else "",
            )  # fmt: skip

    @staticmethod
    def _train(name: str, slices: int) -> int:
        if slices >= 1 << 16:
            raise Unsupported(f"'{name}': a transfer of {slices} slices; a train has at most 65535")
        return slices

    def _load_constants(self) -> None:
        """Weights in the order of use; parameters behind the first step's."""
        e, plan = self.e, self.plan
        size = plan.config.slice_bytes

        def load(what: str, first: int, buffer: str, total: int, signal: str) -> None:
            hbm, vmem = self.fixed("hbm", first, {}), self.fixed("load", plan.memory[buffer].address, {})
            e.setup(Op.DMA_SHAPE, unit=Unit.LD, row_bytes=total, rows=1)
            e.op(Op.HBM_READ_SLICE, hbm=hbm, vmem=vmem, count=self._train(what, ceil_div(total, size)), signal=signal)

        params = plan.param_strips * plan.config.param_bytes
        for name, array in plan.arrays.items():
            if name not in plan.streamed:
                load(name, self.at.weights[name], f"weights {name}", plan.weight_bytes(array), "mxu")
            if params:
                load("parameters", self.at.parameters, "parameters", params, "vpu")
                params = 0
        e.release("hbm")
        if plan.streamed:
            # Strips give tokens as well, later ones than all of these: take them in the order of loading, right away.
            self._take_inputs()
            for _ in range(len(plan.arrays) - len(plan.streamed)):
                e.sync("mxu", wait="ld")
            if plan.param_strips:
                e.sync("vpu", wait="ld")
            for _ in range(plan.ring):
                e.sync("mxu", signal="ld")

    def _take_inputs(self) -> None:
        for unit in self._readers():
            self.e.sync(unit, wait="ld")

    # -- one chunk -----------------------------------------------------------------------------------------------
    def _chunk(self, slot: int, load: bool) -> None:
        e, plan = self.e, self.plan
        self.slot = slot
        self.group, self.made, self.alone = 0, {}, False
        self.params_ready = not self.first or bool(plan.streamed)
        with e.loop(ONE, 1):
            if load and plan.slots > 1:
                self._load_next(1 - slot)
            if not plan.streamed:
                self._take_inputs()
            self._steps(load)

    def _load_next(self, slot: int) -> None:
        self._load_inputs(slot, wait="vpu")
        if self.plan.streamed:
            self._take_inputs()

    def _steps(self, load: bool) -> None:
        e, plan = self.e, self.plan
        param_strip = 0
        for index, step in enumerate(plan.steps):
            e.note(f"step {step.name}")
            out = step.out in plan.outputs
            if out:
                e.sync("vpu", wait="st")
            try:
                self._step(step, param_strip)
            except ValueError as error:  # a field of a microcode word is too narrow
                raise Unsupported(f"step '{step.name}': {error}") from error
            if isinstance(step, ArrayStep) and step.path.params:
                param_strip += plan.arrays[step.name].strips.count
            if index == plan.last_reader and load:
                e.sync("vpu", signal="ld")
                if plan.slots == 1:
                    self._load_next(0)
            if out:
                self._store(step.out)

    def _step(self, step: Step, param_strip: int) -> None:
        if isinstance(step, ArrayStep):
            self._before_array(step)
            emit_array(self, step, param_strip)
            return
        (emit_element if isinstance(step, ElementStep) else emit_pool)(self, step)
        self.made[step.out] = self.group
        self.alone = True

    def _store(self, name: str) -> None:
        e, plan = self.e, self.plan
        e.sync("vpu", signal="st")
        e.setup(Op.DMA_SHAPE, unit=Unit.ST, row_bytes=plan.tensor_bytes(name), rows=1)
        vmem = self.point("store", name, {})
        count = self._train(name, self._slices(name))
        e.op(Op.HBM_WRITE_SLICE, hbm=e[f"st {name}"], vmem=vmem, count=count, wait="vpu", signal="vpu")

    # -- order between array steps -------------------------------------------------------------------------------
    def _before_array(self, step: ArrayStep) -> None:
        """Wait for the step's weights, and for its input where the tokens of the groups do not tell."""
        e = self.e
        if self.first and not self.plan.streamed:
            e.sync("mxu", wait={"ld": (CH,)})
        if not self._input_known(step):
            count = 3 if self.alone else 2
            for _ in range(count):
                e.sync("vpu", signal="mxu")
            for _ in range(count):
                e.sync("mxu", wait="vpu")
            self.alone = False

    def _input_known(self, step: ArrayStep) -> bool:
        """Whether each block's first group starts two groups or more behind the one that completes its input."""
        made = self.made.get(step.x)
        if made is None:
            return True
        array = self.plan.arrays[step.name]
        for block in range(array.blocks.count):
            mine = self.group + block * array.groups_per_block
            if isinstance(made, int):
                ended = made  # a step of the vector unit alone has ended when the group behind it has
            else:
                maker, first = made
                ended = first + maker.blocks_until(array.units(block)[1]) * maker.groups_per_block - 1
            if mine < ended + 2:
                return False
        return True

    def count_groups(self, step: ArrayStep) -> None:
        """The groups of a step have been emitted."""
        array = self.plan.arrays[step.name]
        self.made[step.out] = (array, self.group)
        self.group += array.groups
        self.alone = False

    # -- end -----------------------------------------------------------------------------------------------------
    def _drain(self, double: bool, credits: int, loads: int) -> None:
        """Take all tokens that are left, and let the next segment's loads wait for everything."""
        e = self.e
        if double:
            e.sync("ld", wait="vpu")
        if loads == self.plan.chunks and not self.plan.streamed:  # the last load was of a chunk that there is not
            self._take_inputs()
        for _ in range(self.plan.ring):
            e.sync("ld", wait="mxu")
        for _ in range(credits):
            e.sync("vpu", wait="st")
        for _ in range(2):
            e.sync("mxu", wait="vpu")
        e.sync("vpu", signal="ld")
        e.sync("st", signal="ld")
        e.sync("ld", wait=["vpu", "st"])
