"""Array steps of a resident segment: matmuls on rows in VMEM, convolutions through the feeder's segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice_hw.isa import AccMode, Op, Reduce

from .segment import CH, IM, KT, MB, NT, ArrayPlan
from .steps import ArrayStep
from .tiles import KTile
from .vector_mode import residual_fields

if TYPE_CHECKING:
    from .lower_segment import SegmentEmitter

__all__ = ["emit_array"]


#: An image height that no line number reaches, for blocks that need no look at lines.
ANY_HEIGHT = (1 << 16) - 1


@dataclass(frozen=True)
class _Part:
    """A block, or a line block: its rows, images or lines; the first line; whether its windows see no line outside."""

    size: int
    first: int
    inside: bool


def emit_array(s: SegmentEmitter, step: ArrayStep, param_strip: int) -> None:
    """Emit all groups of an array step; its parameters begin with block number ``param_strip``."""
    _Array(s, step, param_strip).run()
    s.count_groups(step)


class _Array:
    def __init__(self, s: SegmentEmitter, step: ArrayStep, param_strip: int) -> None:
        self.s, self.e, self.step = s, s.e, step
        self.plan: ArrayPlan = s.plan.arrays[step.name]
        self.config = s.plan.config
        self.param_strip = param_strip

    @property
    def _value_bytes(self) -> int:
        return 4 if self.step.path.wide else 1

    def run(self) -> None:
        plan, e = self.plan, self.e
        self.streamed = self.step.name in self.s.plan.streamed
        #: Loop level of the strips.
        self.across = IM if self.streamed and plan.lines is None else NT
        self._pointers()
        if self.across == IM:  # each strip of weights passes once, over all blocks
            for times, cols in plan.strips.runs():
                with e.loop(IM, times):
                    self._load_strip()
                    runs = plan.blocks.runs()
                    for index, (blocks, size) in enumerate(runs):
                        part = _Part(size, 0, plan.inside)
                        with e.loop(MB, blocks):
                            self._setup(part, cols)
                            with e.loop(NT, 1):
                                self._group(part, cols, (MB,), index == 0, index == len(runs) - 1)
        elif plan.lines is None:
            for times, size in plan.blocks.runs():
                with e.loop(MB, times):
                    self._block(_Part(size, 0, plan.inside))
        else:
            with e.loop(IM, plan.blocks.count):
                for times, part in self._line_parts():
                    with e.loop(MB, times):
                        self._block(part)
        if self.streamed and plan.loads % self.s.plan.ring:
            # The next chunk begins with the first slot: the tokens of all slots are taken and given again. One given by
            # itself could be overtaken by that of the next strip.
            for _ in range(self.s.plan.ring):
                e.sync("ld", wait="mxu")
            for _ in range(self.s.plan.ring):
                e.sync("mxu", signal="ld")

    def _line_parts(self) -> list[tuple[int, _Part]]:
        """Line blocks of an image: runs of those that see no line above or below it, and single others."""
        step, lines = self.step, self.plan.lines
        ys = [segment.y for tile in self.plan.tiles for segment in tile.segments]
        parts: list[tuple[int, _Part]] = []
        for index in range(lines.count):
            first, count = index * lines.step, lines.size(index)
            top, bottom = first * step.stride[0] + min(ys), (first + count - 1) * step.stride[0] + max(ys)
            part = _Part(count, first, top >= 0 and bottom < step.image.height)
            if parts and part.inside and parts[-1][1].inside and parts[-1][1].size == count:
                parts[-1] = (parts[-1][0] + 1, parts[-1][1])
            else:
                parts.append((1, part))
        return parts

    def _pointers(self) -> None:
        s, step, plan, c = self.s, self.step, self.plan, self.config
        tile, strips = c.rows * c.cols, plan.strips.count
        self._weight_pointers(tile * len(plan.tiles))
        size, lines = plan.blocks.step, plan.lines
        # R bytes on with each tile: right for a matmul; a convolution's segments say where they are, relative to that.
        steps = {KT: c.rows, NT: -len(plan.tiles) * c.rows}
        if step.image is None:
            taken, outer = size * plan.block_rows * step.k, 0
        elif lines is None:
            taken, outer = size * step.image.size, 0
        else:
            taken = lines.step * step.stride[0] * step.image.line
            outer = step.image.size - lines.count * taken
        if self.across == IM:
            outer = -plan.blocks.count * taken
        self.pulse = s.point("pulse", step.x, steps | {MB: taken, IM: outer})

        def across(width: int) -> dict[int, int]:
            """Steps of a pointer to rows of results of ``width`` bytes a value: strip to strip, block to block."""
            strip, row = c.cols * width, step.n * width
            if lines is not None:
                given = lines.step * step.output.width * row
                return {NT: strip, MB: given - strips * strip, IM: plan.block_rows * row - lines.count * given}
            results = size * plan.block_rows
            if step.pooled is not None:
                results = size * step.pooled.height * step.pooled.width
            given = results * row
            if self.across == IM:
                return {MB: given, IM: strip - plan.blocks.count * given}
            return {NT: strip, MB: given - strips * strip}

        self.result = s.point("result", step.out, across(self._value_bytes))
        if step.residual is not None:
            self.residual = s.point("residual", step.residual, across(1))
        if step.path.params:
            base = s.plan.memory["parameters"].address + self.param_strip * c.param_bytes
            self.params = s.fixed("params", base, {self.across: c.param_bytes}, ring=strips * c.param_bytes)

    def _weight_pointers(self, strip: int) -> None:
        """Weights all there: one pointer runs over them. Streamed: LD's pointers, and one that scans a slot."""
        s, plan, c = self.s, self.plan, self.config
        buffer = s.plan.memory[f"weights {self.step.name}"]
        tile, strips = c.rows * c.cols, plan.strips.count
        if not self.streamed:
            self.lw = s.fixed("weights", buffer.address, {KT: tile}, ring=strips * strip)
            return
        slices = s.plan.strip_slices(plan)
        self.strip_hbm = s.fixed(
            "strip hbm", s.at.weights[self.step.name], {self.across: slices}, ring=strips * slices
        )
        self.strip_vmem = s.fixed("strip vmem", buffer.address, {self.across: buffer.slot}, ring=buffer.size)
        steps = {KT: tile, NT: -strip}
        steps[self.across] = steps.get(self.across, 0) + buffer.slot
        self.lw = s.fixed("weights", buffer.address, steps, ring=buffer.size)

    def _load_strip(self) -> None:
        e, plan = self.e, self.s.plan
        e.setup(Op.DMA_SHAPE, unit=0, row_bytes=plan.strip_bytes(self.plan), rows=1)
        e.op(
            Op.HBM_READ_SLICE, hbm=self.strip_hbm, vmem=self.strip_vmem, count=plan.strip_slices(self.plan),
            wait="mxu", signal="mxu",
        )  # fmt: skip

    # -- groups --------------------------------------------------------------------------------------------------
    def _block(self, part: _Part) -> None:
        """All strips of one block."""
        e = self.e
        for times, cols in self.plan.strips.runs():
            self._setup(part, cols)
            with e.loop(NT, times):
                if self.streamed:
                    self._load_strip()
                self._group(part, cols, (), True, True)

    def _group(self, part: _Part, cols: int, outer: tuple[int, ...], first: bool, last: bool) -> None:
        """A block and a strip. A streamed strip's token is taken in the first iteration of ``outer`` if ``first``, and
        its slot given back in the last one if ``last``."""
        e = self.e
        self._tiles(part, cols, outer, first, last)
        if self.step.path.params:
            wait = {} if self.s.params_ready else {"ld": (CH, IM, MB, NT)}
            e.op(Op.LOAD_PARAMS, vmem=self.params, wait=wait)
            self.s.params_ready = True
        e.op(
            Op.VECTOR, src=e["acc"], dst=self.result, res=self.residual if self.step.residual else 0,
            wait="mxu", signal="mxu",
        )  # fmt: skip

    def _setup(self, part: _Part, cols: int) -> None:
        e, step, plan = self.e, self.step, self.plan
        rows = part.size * (plan.block_rows if plan.lines is None else step.output.width)
        if step.image is None:
            self.shape = {"n0": rows, "n1": 1, "n2": 1, "s0": step.k}
        else:
            image, out, (sy, sx) = step.image, step.output, step.stride
            n1, n2 = (out.height, part.size) if plan.lines is None else (part.size, 1)
            self.shape = {
                "n0": out.width, "n1": n1, "n2": n2,
                "s0": sx * image.channels, "s1": sy * image.line, "s2": image.size,
            }  # fmt: skip
            if any(p for side in step.padding for p in side):
                self.shape |= {
                    "pad": 1, "zero_point": step.zero_point, "x_step": sx * image.channels, "y_step": sy,
                    "line_bytes": image.line, "height": ANY_HEIGHT if part.inside else image.height,
                }  # fmt: skip
        row = step.n * self._value_bytes
        mode = dict(step.path.mode)
        if step.pooled is None:
            e.setup(Op.VECTOR_SHAPE, n0=1, n1=1, n2=rows, n3=1, s2=1, d2=row)
        else:
            pool, out, pooled = step.path.pool, step.output, step.pooled
            e.setup(
                Op.VECTOR_SHAPE, n0=pool.window[1], n1=pool.window[0], n2=pooled.width, n3=part.size * pooled.height,
                s0=1, s1=out.width, s2=pool.stride[1], s3=pool.stride[0] * out.width, d2=row,
            )  # fmt: skip
            mode |= {"reduce": int(Reduce.MAX), "d3": pooled.width * row}
        e.setup(Op.VECTOR_MODE, cols=cols, **mode)
        if step.residual is not None:
            e.setup(Op.VECTOR_RESIDUAL, r2=step.n, r3=0, **residual_fields(step.path.residual))

    # -- K tiles -------------------------------------------------------------------------------------------------
    def _tiles(self, part: _Part, cols: int, outer: tuple[int, ...], takes: bool, gives: bool) -> None:
        runs, passed = self._tile_runs(), 0
        for index, (times, tile) in enumerate(runs):
            first, last = index == 0, index == len(runs) - 1
            levels = (*outer, KT)
            wait = {"ld": levels} if self.streamed and takes and first else {}
            signal = {"ld": levels} if self.streamed and gives and last else {}
            self._feed(tile, part, passed)
            with self.e.loop(KT, times):
                self.e.op(
                    Op.LOAD_WEIGHTS, vmem=self.lw, pitch=self.config.cols, k=tile.k, n=cols, wait=wait, signal=signal
                )
                self._pulse(first, last)
            passed += times

    def _tile_runs(self) -> list[tuple[int, KTile]]:
        """Equal tiles in a row, in which only the address moves on, are one hardware loop."""
        runs: list[tuple[int, KTile]] = []
        for tile in self.plan.tiles:
            if runs and self._continues(*runs[-1], tile):
                runs[-1] = (runs[-1][0] + 1, runs[-1][1])
            else:
                runs.append((1, tile))
        return runs

    def _continues(self, times: int, first: KTile, tile: KTile) -> bool:
        """Whether ``tile`` reads R bytes behind ``times`` tiles from ``first`` on, and is padded like that one."""
        rows = self.config.rows
        if tile.k != rows or first.k != rows:
            return False
        if self.step.image is None:
            return True
        if len(tile.segments) != 1 or len(first.segments) != 1:
            return False
        (a,), (b,) = first.segments, tile.segments
        if (b.y, b.x) != (a.y, a.x + times * rows):
            return False
        # Padding goes by the position along the line, which the loop does not move: within a pixel that is the same.
        channels = self.step.image.channels
        return self.step.padding[1] == (0, 0) or a.x // channels == (b.x + rows - 1) // channels

    def _feed(self, tile: KTile, part: _Part, passed: int) -> None:
        """Segments of a tile that ``passed`` tiles precede in its group."""
        e, image = self.e, self.step.image
        shift = part.first * self.step.stride[0]
        for index, segment in enumerate(tile.segments):
            fields = {"index": index, "lo": segment.lo, "hi": segment.hi}
            if image is not None:
                y = 0 if part.inside else segment.y + shift
                offset = segment.y * image.line + segment.x - passed * self.config.rows
                fields |= {"offset": offset, "x": segment.x, "y": y}
            e.setup(Op.FEED_SEGMENT, **fields)
        e.setup(Op.FEED_SHAPE, segments=len(tile.segments), **self.shape)

    def _pulse(self, first: bool, last: bool) -> None:
        e = self.e
        e.op(
            Op.PULSE_ARRAY, vmem=self.pulse, acc=e["acc"], swap=1,
            acc_mode=AccMode.FIRST if first else AccMode.ACCUMULATE, acc_first=e.levels(KT) if first else 0,
            wait={"vpu": (KT,)} if first else {}, signal={"vpu": (KT,)} if last else {},
        )  # fmt: skip
