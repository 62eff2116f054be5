"""Steps that the vector unit does alone, from VMEM to VMEM: additions, clamps, copies, pools, means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sluice.golden import numerics
from sluice_hw.isa import Op, Reduce, Requant, Source

from .segment import IN, MB
from .steps import ElementStep, PoolStep
from .tiles import Cut, window_runs
from .vector_mode import float_bits, residual_fields, residual_kind

if TYPE_CHECKING:
    from .lower_segment import SegmentEmitter

__all__ = ["emit_element", "emit_pool"]

#: Rows of a walk's counter.
MOST_ROWS = 1 << 15


def _rows(total: int) -> Iterator[tuple[int, int, int]]:
    """``(first row, outer, inner)`` of walks over ``total`` rows."""
    outer = total // MOST_ROWS
    if outer:
        yield 0, outer, MOST_ROWS
    if total % MOST_ROWS:
        yield outer * MOST_ROWS, 1, total % MOST_ROWS


def emit_element(s: SegmentEmitter, step: ElementStep) -> None:
    """The tensor's bytes as rows of C, whatever its shape, then what is left."""
    e, cols = s.e, s.plan.config.cols
    rows, rest = divmod(s.plan.tensor_bytes(step.out), cols)
    pieces = [(first * cols, outer, inner, cols) for first, outer, inner in _rows(rows)]
    if rest:
        pieces.append((rows * cols, 1, 1, rest))
    mode = {"source": int(Source.VMEM), "requant": int(Requant.BYPASS), "lo": step.lo, "hi": step.hi}
    if step.stage is not None:
        zero = step.stage.a.zero_point  # taken off and put on again, so that the addition finds it
        mode |= {"source_zero_point": zero, "zero_point": zero, "residual": int(residual_kind(step.stage))}
    for at, outer, inner, width in pieces:
        src, dst = s.point("source", step.a, {}, at), s.point("result", step.out, {}, at)
        res = s.point("residual", step.b, {}, at) if step.b is not None else 0
        far = inner * cols
        e.setup(Op.VECTOR_SHAPE, n0=1, n1=1, n2=inner, n3=outer, s2=cols, s3=far, d2=cols)
        e.setup(Op.VECTOR_MODE, cols=width, d3=far, **mode)
        if step.stage is not None:
            e.setup(Op.VECTOR_RESIDUAL, r2=cols, r3=far, **residual_fields(step.stage))
        e.op(Op.VECTOR, src=src, dst=dst, res=res)


def _pool_mode(step: PoolStep, count: int) -> dict[str, int]:
    """Arithmetic over windows of ``count`` pixels, as of ``sluice.golden.numerics``."""
    mode = {"source": int(Source.VMEM), "lo": -128, "hi": 127}
    if step.how == "max":
        return mode | {"reduce": int(Reduce.MAX), "requant": int(Requant.BYPASS)}
    mode |= {"reduce": int(Reduce.SUM)}
    if step.how == "average" and step.dialect == "fixed":
        m, n = numerics.avg_multiplier(count)
        return mode | {"requant": int(Requant.FIXED_AWAY), "multiplier": m, "shift": n}
    before, after = step.scales
    mode |= {"source_zero_point": before.zero_point, "zero_point": after.zero_point}
    if step.dialect == "fixed":
        m, n = numerics.mean_multiplier(before.scale[0], after.scale[0], count)
        return mode | {"requant": int(Requant.FIXED), "multiplier": m, "shift": n}
    scale = numerics.average_scale(before.scale[0], after.scale[0], count)
    return mode | {"requant": int(Requant.FLOAT), "multiplier": int(float_bits(scale)[0])}


def emit_pool(s: SegmentEmitter, step: PoolStep) -> None:
    """Windows of one size at a time: those cut by a border have other sizes and, averaged, other divisors."""
    image, out = step.image, step.output
    ys = window_runs(image.height, step.window[0], step.stride[0], step.padding[0], out.height)
    xs = window_runs(image.width, step.window[1], step.stride[1], step.padding[1], out.width)
    images = s.plan.chunk * image.per_unit
    c = image.channels
    for y in ys:
        for x in xs:
            walk = {
                "n0": x.size, "n1": y.size, "n2": x.count, "n3": y.count, "s0": c, "s1": image.line,
                "s2": step.stride[1] * c, "s3": step.stride[0] * image.line, "d2": c,
            }  # fmt: skip
            d3, loops = out.width * c, images
            if step.how == "mean":
                walk |= {"n2": images, "n3": 1, "s2": image.size, "s3": 0}
                d3, loops = 0, 1
            elif len(ys) == 1 and image.height == y.count * step.stride[0] and y.count * images < MOST_ROWS:
                walk["n3"], loops = y.count * images, 1  # the next image's lines follow at the same step
            source = y.start * image.line + x.start * c
            target = (y.first * out.width + x.first) * c
            _windows(s, step, walk, d3, loops, (source, target), _pool_mode(step, x.size * y.size))


def _windows(
    s: SegmentEmitter, step: PoolStep, walk: dict[str, int], d3: int, images: int, at: tuple[int, int],
    mode: dict[str, int],
) -> None:  # fmt: skip
    """One walk for every image and every strip of C channels."""
    e, cols = s.e, s.plan.config.cols
    strips = Cut(step.image.channels, cols)
    into, outof = step.image.size, step.output.size
    src = s.point("source", step.x, {IN: into, MB: cols - images * into}, at[0])
    dst = s.point("result", step.out, {IN: outof, MB: cols - images * outof}, at[1])
    for times, width in strips.runs():
        e.setup(Op.VECTOR_SHAPE, **walk)
        e.setup(Op.VECTOR_MODE, cols=width, d3=d3, **mode)
        with e.loop(MB, times), e.loop(IN, images):
            e.op(Op.VECTOR, src=src, dst=dst)
