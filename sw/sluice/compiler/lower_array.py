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
        self._pointers()
        plan, e = self.plan, self.e
        if plan.lines is None:
            for times, size in plan.blocks.runs():
                with e.loop(MB, times):
                    self._block(_Part(size, 0, plan.inside))
            return
        with e.loop(IM, plan.blocks.count):
            for times, part in self._line_parts():
                with e.loop(MB, times):
                    self._block(part)

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
        weights = s.plan.memory[f"weights {step.name}"].address
        self.lw = s.fixed("weights", weights, {KT: tile}, ring=strips * len(plan.tiles) * tile)
        size, lines = plan.blocks.step, plan.lines
        if step.image is None:
            steps = {KT: c.rows, NT: -len(plan.tiles) * c.rows, MB: size * plan.block_rows * step.k}
        elif lines is None:
            steps = {MB: size * step.image.size}
        else:
            taken = lines.step * step.stride[0] * step.image.line
            steps = {MB: taken, IM: step.image.size - lines.count * taken}
        self.pulse = s.point("pulse", step.x, steps)

        def across(width: int) -> dict[int, int]:
            """Steps of a pointer to rows of results of ``width`` bytes a value: strip to strip, block to block."""
            strip, row = c.cols * width, step.n * width
            back = {NT: strip, MB: -strips * strip}
            if lines is not None:
                given = lines.step * step.output.width * row
                return back | {MB: given + back[MB], IM: plan.block_rows * row - lines.count * given}
            results = size * plan.block_rows
            if step.pooled is not None:
                results = size * step.pooled.height * step.pooled.width
            return back | {MB: results * row + back[MB]}

        self.result = s.point("result", step.out, across(self._value_bytes))
        if step.residual is not None:
            self.residual = s.point("residual", step.residual, across(1))
        if step.path.params:
            base = s.plan.memory["parameters"].address + self.param_strip * c.param_bytes
            self.params = s.fixed("params", base, {NT: c.param_bytes}, ring=strips * c.param_bytes)

    # -- groups --------------------------------------------------------------------------------------------------
    def _block(self, part: _Part) -> None:
        """All strips of one block."""
        e = self.e
        for times, cols in self.plan.strips.runs():
            self._setup(part, cols)
            with e.loop(NT, times):
                self._tiles(part, cols)
                if self.step.path.params:
                    first = {} if self.s.params_ready else {"ld": (CH, IM, MB, NT)}
                    e.op(Op.LOAD_PARAMS, vmem=self.params, wait=first)
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
    def _tiles(self, part: _Part, cols: int) -> None:
        runs = self._tile_runs()
        for index, (times, tile) in enumerate(runs):
            first, last = index == 0, index == len(runs) - 1
            self._feed(tile, part)
            with self.e.loop(KT, times):
                self._tile(tile.k, cols, first, last)

    def _tile_runs(self) -> list[tuple[int, KTile]]:
        """Equal tiles in a row can be one hardware loop for a matmul, where only the address moves."""
        if self.step.image is not None:
            return [(1, t) for t in self.plan.tiles]
        whole = [t for t in self.plan.tiles if t.k == self.config.rows]
        rest = [t for t in self.plan.tiles if t.k != self.config.rows]
        return ([(len(whole), whole[0])] if whole else []) + [(1, t) for t in rest]

    def _feed(self, tile: KTile, part: _Part) -> None:
        e, image = self.e, self.step.image
        shift = part.first * self.step.stride[0]
        for index, segment in enumerate(tile.segments):
            fields = {"index": index, "lo": segment.lo, "hi": segment.hi}
            if image is not None:
                y = 0 if part.inside else segment.y + shift
                fields |= {"offset": segment.y * image.line + segment.x, "x": segment.x, "y": y}
            e.setup(Op.FEED_SEGMENT, **fields)
        e.setup(Op.FEED_SHAPE, segments=len(tile.segments), **self.shape)

    def _tile(self, k: int, cols: int, first: bool, last: bool) -> None:
        e = self.e
        e.op(Op.LOAD_WEIGHTS, vmem=self.lw, pitch=self.config.cols, k=k, n=cols)
        e.op(
            Op.PULSE_ARRAY, vmem=self.pulse, acc=e["acc"], swap=1,
            acc_mode=AccMode.FIRST if first else AccMode.ACCUMULATE, acc_first=e.levels(KT) if first else 0,
            wait={"vpu": (KT,)} if first else {}, signal={"vpu": (KT,)} if last else {},
        )  # fmt: skip
