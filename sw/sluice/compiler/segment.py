"""Resident segments: steps whose tensors stay in VMEM while the batch passes through in chunks.

Weights and parameters are loaded once. A chunk is a number of units. With one slot, the next chunk's inputs are loaded
as soon as the last step has read this one's, and hide behind the steps that follow; its output is stored while the
next chunk goes through the first steps. With two slots (inputs and outputs double buffered) loads and stores hide
behind everything, at the price of VMEM and of code, which stands there once for each slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sluice_hw.config import ChipConfig

from .cost import Costs
from .errors import Unsupported
from .place import Buffer, VmemMap
from .steps import ArrayStep, ElementStep, Lowered, PoolStep, Step
from .tiles import Cut, KTile, Segment, ceil_div, conv_tiles, round_up

__all__ = ["CH", "IM", "IN", "KT", "MB", "NT", "ONE", "ArrayPlan", "SegmentPlan", "plan_segment"]

#: Loop levels of a segment's program: chunks (or pairs of them), the chunk itself (a loop of one, for its END),
#: images that are cut into line blocks, blocks, strips, K tiles. Steps of the vector unit use MB, and IN for images.
CH, ONE, IM, MB, NT, KT = range(6)
IN = KT


@dataclass(frozen=True)
class ArrayPlan:
    """How an array step is cut for a chunk.

    Attributes
    ----------
    tiles
        Weight tiles along K.
    blocks
        Rows of a matmul, or images of a convolution, cut into what one accumulator region takes.
    block_rows
        Accumulator rows of one element of ``blocks``: 1, or the pixels of an image.
    lines
        Output lines of an image cut in turn, when an image is too large for a region; None otherwise. ``blocks`` then
        has single images.
    per_unit
        Elements of ``blocks`` in a unit.
    """

    step: ArrayStep
    tiles: tuple[KTile, ...]
    strips: Cut
    blocks: Cut
    block_rows: int
    per_unit: int
    word: int
    """Bytes of a VMEM word."""
    lines: Cut | None = None

    @property
    def inside(self) -> bool:
        """Whether no window of a whole image reaches above or below it."""
        if self.step.image is None:
            return True
        last = (self.step.output.height - 1) * self.step.stride[0]
        ys = [segment.y for tile in self.tiles for segment in tile.segments]
        return min(ys) >= 0 and last + max(ys) < self.step.image.height

    @property
    def groups_per_block(self) -> int:
        return self.strips.count * (self.lines.count if self.lines else 1)

    @property
    def loads(self) -> int:
        """Strips that streaming the weights loads for a chunk: each once, or for each line block."""
        return self.strips.count * (self.blocks.count * self.lines.count if self.lines else 1)

    @property
    def groups(self) -> int:
        return self.blocks.count * self.groups_per_block

    def units(self, block: int) -> tuple[int, int]:
        """First unit that a block touches, and one past the last."""
        first = block * self.blocks.step
        return first // self.per_unit, ceil_div(min(first + self.blocks.step, self.blocks.total), self.per_unit)

    def blocks_until(self, unit: int) -> int:
        """Blocks from the first that make all units below ``unit``."""
        return ceil_div(min(unit * self.per_unit, self.blocks.total), self.blocks.step)

    def cycles(self, cost: Costs) -> int:
        s = self.step
        total = 0
        window = 1 if s.path.pool is None else s.path.pool.window[0] * s.path.pool.window[1]
        results = s.pooled or s.output
        for times, size in self.blocks.runs():
            for line_times, lines in self.lines.runs() if self.lines else [(1, None)]:
                rows = size * (self.block_rows if lines is None else lines * s.output.width)
                out = rows if s.pooled is None else size * results.height * results.width
                array = sum(max(cost.tile(rows), int(rows * self.reads(t)), len(t.segments) + 6) for t in self.tiles)
                drain = cost.vector(out, window=window, wide=s.path.wide, residual=s.residual is not None) + 4
                total += times * line_times * self.strips.count * max(array, drain)
        return total

    def reads(self, tile: KTile) -> float:
        """Reads of VMEM per row of activations."""
        if self.step.image is None:
            return 1.0
        return len(tile.segments) * min(1.0, self.step.stride[1] * self.step.image.channels / self.word)

    def describe(self) -> str:
        what = "rows" if self.step.image is None else "images"
        lines = f", {self.lines.count} x {self.lines.step} lines" if self.lines else ""
        return (
            f"{self.blocks.count} blocks of {self.blocks.step} {what}{lines}, {self.strips.count} strips, "
            f"{len(self.tiles)} K tiles of up to {max(len(t.segments) for t in self.tiles)} segments"
        )


@dataclass
class SegmentPlan:
    """A segment with its chunking and memory map."""

    config: ChipConfig
    lowered: Lowered
    steps: list[Step]
    inputs: list[str]
    outputs: list[str]
    chunk: int
    slots: int
    streamed: frozenset[str] = frozenset()
    """Array steps whose weights do not stay, but pass through a ring for every chunk, a strip at a time."""
    ring: int = 0
    """Strips in that ring."""
    arrays: dict[str, ArrayPlan] = field(default_factory=dict)
    memory: VmemMap = field(init=False)

    @property
    def chunks(self) -> int:
        return ceil_div(self.lowered.units, self.chunk)

    def tensor_bytes(self, name: str) -> int:
        """Bytes of a chunk of a tensor."""
        return self.chunk * self.lowered.tensors[name].unit_bytes

    def strip_bytes(self, plan: ArrayPlan) -> int:
        return len(plan.tiles) * self.config.rows * self.config.cols

    def weight_bytes(self, plan: ArrayPlan) -> int:
        return plan.strips.count * self.strip_bytes(plan)

    def strip_slices(self, plan: ArrayPlan) -> int:
        """Slices of a strip of weights that is loaded by itself."""
        return ceil_div(self.strip_bytes(plan), self.config.slice_bytes)

    @property
    def param_strips(self) -> int:
        """Strips that have parameters, of all steps together."""
        return sum(p.strips.count for p in self.arrays.values() if p.step.path.params)

    @property
    def last_reader(self) -> int:
        """Number of the last step that reads an input."""
        return max(i for i, s in enumerate(self.steps) if set(self.inputs) & set(s.reads))

    def step_cycles(self, step: Step, cost: Costs) -> int:
        """Estimated time of a step on a chunk."""
        if isinstance(step, ArrayStep):
            return self.arrays[step.name].cycles(cost) + cost.array_latency + cost.vector_fill
        return vector_cycles(step, self.chunk, self.lowered, cost)

    def cycles(self) -> int:
        """Estimated time of the segment."""
        cost = Costs(self.config)
        works = [self.step_cycles(s, cost) for s in self.steps]
        into = sum(cost.beats(self.tensor_bytes(t)) for t in self.inputs)
        outof = sum(cost.beats(self.tensor_bytes(t)) for t in self.outputs)
        kept = [p for p in self.arrays.values() if p.step.name not in self.streamed]
        weights = sum(cost.beats(self.weight_bytes(p)) for p in kept)
        ends = cost.start + cost.load(into) + weights + outof + cost.store_fill
        again = sum(
            cost.beats(self.strip_slices(p) * self.config.slice_bytes) * p.loads for p in self.arrays.values()
            if p.step.name in self.streamed
        )  # fmt: skip
        chunk = max(sum(works), into + outof + again)
        if self.slots == 1 and self.chunks > 1:
            writer = min(i for i, s in enumerate(self.steps) if s.out in self.outputs)
            chunk += max(0, cost.load(into) - sum(works[self.last_reader + 1 :]))
            chunk += max(0, outof + cost.store_fill - sum(works[:writer]))
        return ends + self.chunks * chunk

    def describe(self) -> str:
        lines = [
            f"{self.chunks} chunks of {self.chunk} units, {self.slots} slots; in {', '.join(self.inputs)}; out "
            f"{', '.join(self.outputs)}; estimated {self.cycles()} cycles"
        ]
        for name, array in self.arrays.items():
            how = f", weights streamed through {self.ring} strips" if name in self.streamed else ""
            lines.append(f"  {name}: {array.describe()}{how}")
        return "\n".join(lines)


def vector_cycles(step: Step, chunk: int, lowered: Lowered, cost: Costs) -> int:
    """Time of a step that the vector unit does alone."""
    cols = cost.config.cols
    if isinstance(step, ElementStep):
        return cost.vector(ceil_div(chunk * lowered.tensors[step.out].unit_bytes, cols), residual=step.b is not None)
    assert isinstance(step, PoolStep)
    strips, images = ceil_div(step.image.channels, cols), chunk * step.image.per_unit
    rows = images * step.output.height * step.output.width
    return strips * (cost.vector(rows, window=step.window[0] * step.window[1]) + images * cost.vector_fill)


def plan_array(config: ChipConfig, step: ArrayStep, chunk: int) -> ArrayPlan:
    """Cut an array step.

    Raises
    ------
    Unsupported
        When one line of a convolution's output has more pixels than an accumulator region has rows.
    """
    region, word = config.acc_region_rows, config.word_bytes
    strips = Cut(step.n, config.cols)
    if step.image is None:
        rows = chunk * step.rows
        cut = Cut(step.k, config.rows)
        tiles = tuple(
            KTile(i * cut.step, cut.size(i), (Segment(0, cut.size(i), 0, 0),)) for i in range(cut.count)
        )  # fmt: skip
        if step.pooled is None:
            return ArrayPlan(step, tiles, strips, _even(rows, 1, region, config.rows), 1, step.rows, word)
        pixels, per_unit = step.output.height * step.output.width, step.output.per_unit
    else:
        (top, _), (left, _) = step.padding
        tiles = tuple(
            conv_tiles(
                step.kernel, step.image.channels, step.stride[1], step.dilation, (top, left), config.rows,
                config.feed_ports, config.word_bytes,
            )
        )
        pixels, per_unit = step.output.height * step.output.width, step.output.per_unit
    images = chunk * per_unit
    if pixels <= region:
        return ArrayPlan(step, tiles, strips, _even(images, pixels, region, config.rows), pixels, per_unit, word)
    if step.output.width > region:
        raise Unsupported(
            f"conv2d '{step.name}': an output line has {step.output.width} pixels; an accumulator region has {region} "
            "rows"
        )
    height = step.output.height
    lines = Cut(height, ceil_div(height, ceil_div(height, region // step.output.width)))
    return ArrayPlan(step, tiles, strips, Cut(images, 1), pixels, per_unit, word, lines)


def _even(count: int, rows: int, region: int, tile: int) -> Cut:
    """Cut ``count`` elements of ``rows`` accumulator rows into equal blocks that fit a region.

    Two blocks at least, where both still hide the loading of weight tiles: the vector unit then drains one while the
    array works on the other, also at the border between two steps.
    """
    blocks = ceil_div(count, region // rows)
    if blocks == 1 and count > 1 and count * rows >= 4 * tile:
        blocks = 2
    # A last block of its own size is code of its own; a few more blocks may do without.
    for more in range(blocks, 2 * blocks):
        if count % more == 0 and count // more * rows >= 2 * tile:
            return Cut(count, count // more)
    return Cut(count, ceil_div(count, blocks))


def plan_segment(
    config: ChipConfig, lowered: Lowered, steps: list[Step], inputs: list[str], outputs: list[str], chunk: int,
    slots: int, streamed: frozenset[str] = frozenset(), ring: int = 0,
) -> SegmentPlan:
    """Cut and place a segment.

    Raises
    ------
    DoesNotFit
        When VMEM is too small for a chunk of this size; the message names the step or tensor.
    """
    plan = SegmentPlan(config, lowered, steps, inputs, outputs, chunk, slots, streamed, ring)
    plan.arrays = {s.name: plan_array(config, s, chunk) for s in steps if isinstance(s, ArrayStep)}
    memory = plan.memory = VmemMap(config)
    slots = slots if plan.chunks > 1 else 1
    everything = frozenset({*inputs, *outputs, "parameters", *(f"weights {n}" for n in plan.arrays)})
    tensors = {t for s in steps for t in (*s.reads, s.out)}
    for name in inputs:
        _place(memory, name, plan.tensor_bytes(name), slots, 0, 1 << 30, everything | tensors)
    for name in outputs:
        _place(memory, name, plan.tensor_bytes(name), slots, 0, 1 << 30, everything | tensors)
    for name, array in plan.arrays.items():
        apart = frozenset({array.step.x, array.step.out})
        if name in streamed:
            _place(memory, f"weights {name}", plan.strip_bytes(array), ring, 0, 1 << 30, apart)
            continue
        _place(memory, f"weights {name}", plan.weight_bytes(array), 1, 0, 1 << 30, apart)
    if plan.param_strips:
        _place(memory, "parameters", plan.param_strips * config.param_bytes, 1, 0, 1 << 30, frozenset())
    for index, step in enumerate(steps):
        if step.out in memory.buffers:
            continue
        last = max((i for i, s in enumerate(steps) if step.out in s.reads), default=index)
        readers = {s.out for s in steps if step.out in s.reads}
        apart = frozenset({*step.reads, *readers})
        _place(memory, step.out, plan.tensor_bytes(step.out), 1, index, last, apart)
    return plan


def _place(memory: VmemMap, name: str, size: int, slots: int, born: int, dies: int, apart: frozenset[str]) -> None:
    memory.place(Buffer(name, slots * round_up(size, memory.align), slots, 1, born, dies, apart - {name}))
