"""Steps of a vector program as ops: places, tiles, passes, loads and stores, with their tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sluice.compiler.errors import CompileError, DoesNotFit, Unsupported
from sluice.compiler.tiles import ceil_div, round_up
from sluice.golden.vector_program import Pass
from sluice_hw.config import ChipConfig
from sluice_hw.isa import AccMode, Op, Stream, Unit

from .hazards import Access, Hazards, Span
from .nodes import Address, Loop, Node, Setup, Word
from .passes import Place, mode_setup, operands_of, packed_setup, shape_setup
from .placement import Home, Placer
from .values import ACC, VMEM, Analysis, BoundMatmul, BoundPass, Value, View

__all__ = ["Image", "Lowered", "lower"]

#: Regions of accumulators: products of one tile of K go to one, what passes write to the other, since a pass's write
#: waits while the array writes in the same region.
_ARRAY, _PASSES = 0, 1


@dataclass(frozen=True)
class Image:
    """A tensor in HBM: ``rows`` rows, ``pitch`` bytes apart, from slice ``first`` of the program's."""

    value: Value
    first: int
    slices: int
    rows: int
    pitch: int


@dataclass(frozen=True)
class _Train:
    """Rows of an image that move together."""

    first: int
    rows: int


@dataclass
class Lowered:
    """What became of a program.

    Attributes
    ----------
    nodes
        Ops and loops, in program order.
    inputs, outputs
        Images by name.
    slices
        Of HBM, all images together.
    lane_cycles
        Cycles that the passes' blocks take: one each, or as many as the memory that is asked most often.
    """

    nodes: list[Node]
    inputs: dict[str, Image]
    outputs: dict[str, Image]
    slices: int
    lane_cycles: int


def lower(analysis: Analysis, config: ChipConfig) -> Lowered:
    """Lower all steps.

    Raises
    ------
    CompileError
        Naming step and tensor: something does not fit, or the chip cannot do it.
    """
    # Two words a load: as many early ones as do not hold up the sequencer. They take room, and so do places that are
    # apart from each other.
    most = max(2, config.ld_queue // 2 - 1)
    for early, rotate in ((most, True), (0, True), (0, False)):
        work = _Lowering(analysis, config, early, rotate)
        try:
            work.run()
        except DoesNotFit:
            if rotate:
                continue
            raise
        return Lowered(work.nodes, work.loaded, work.stored, work.slices, work.lane_cycles)
    raise AssertionError


class _Lowering:
    def __init__(self, analysis: Analysis, config: ChipConfig, early: int, rotate: bool) -> None:
        self.analysis, self.config, self.lanes, self.early = analysis, config, config.cols, early
        self.placer, self.hazards = Placer(config, rotate=rotate), Hazards()
        self.nodes: list[Node] = []
        self.loaded: dict[str, Image] = {}
        self.stored: dict[str, Image] = {}
        self.slices = self.lane_cycles = 0
        self.live: list[Value] = []
        self.unstored: dict[str, list[_Train]] = {}
        self.ahead: list[int] = []
        self.last_product: list[Home] = []
        self.waiting = self._loads()

    def run(self) -> None:
        for value in self.analysis.inputs:
            if not value.loaded:  # its parts are all written here
                self.placer.place(value, VMEM, where="before the first step")
                self.live.append(value)
        for bound in self.analysis.steps:
            where = f"step {bound.number}, {bound.step}"
            try:
                self._load(bound.number)
                if isinstance(bound, BoundMatmul):
                    self._matmul(bound, where)
                else:
                    self._pass(bound, where)
                self._store_what_is_done(bound.number)
                self._free(bound.number)
            except DoesNotFit as error:
                raise error if where in str(error) else error.within(where) from None
            except CompileError as error:
                raise type(error)(f"{where}: {error}") from None
        self._load(len(self.analysis.steps))
        for name, value in self.analysis.outputs.items():
            self._store(name, value, len(self.analysis.steps))

    # -- memory --------------------------------------------------------------------------------------------------
    def _free(self, number: int) -> None:
        for value in [v for v in self.live if v.last <= number]:
            self.live.remove(value)
            self.placer.drop(value)

    def _new(
        self, value: Value, memory: str, where: str, apart: Sequence[Home] = (), region: int | None = None
    ) -> Home:
        apart = [*self.placer.partners(value), *apart] if memory == VMEM else apart
        home = self.placer.place(value, memory, apart=apart, region=region, where=where)
        if value not in self.live:
            self.live.append(value)
        return home

    def _home(self, value: Value, memory: str | None, where: str) -> Home:
        """A value's place, in ``memory`` if that is asked for: copied there when it is not."""
        homes = self.placer.homes.get(value)
        if not homes:
            raise AssertionError(f"{value!r} has no place")
        if memory is None or memory in homes:
            return homes[memory] if memory else homes[min(homes)]  # accumulators before VMEM
        old = next(iter(homes.values()))
        new = self._new(value, memory, where)
        whole = View(value, 0, value.rows, 0, value.cols)
        bound = BoundPass(-1, Pass(value.name, dst=value.name, bf16=False), whole, None, None, whole, None)
        self._emit_pass(bound, Place(whole, old, self.lanes), {}, Place(whole, new, self.lanes), None, "copy")
        return new

    # -- HBM -----------------------------------------------------------------------------------------------------
    def _load(self, number: int) -> None:
        """Load what step ``number`` needs, and a few trains ahead."""
        self.ahead = [first for first in self.ahead if first > number]
        while self.waiting:
            first, _, _, value, train = self.waiting[0]
            needed, placed = first <= number, value.name in self.loaded
            if not needed and (len(self.ahead) >= self.early or not (placed or self.placer.fits(value, VMEM))):
                return
            self.waiting.pop(0)
            if not needed:
                self.ahead.append(first)
            if not placed:
                home = self._new(value, VMEM, f"load for step {first}")
                self.loaded[value.name] = self._image(value, home.size // home.row_step, home.row_step)
            home, image = self.placer.homes[value][VMEM], self.loaded[value.name]
            setup = self._dma(Unit.LD, train.rows * home.row_step, 1, 0)
            self._transfer(Op.HBM_READ_SLICE, Unit.LD, image, train, home, setup)

    def _loads(self) -> list[tuple[int, int, int, Value, _Train]]:
        """Trains in the order of their first use, the smaller first: step, bytes, number of the value, and what."""
        out = []
        for order, value in enumerate(v for v in self.analysis.inputs if v.loaded):
            form = self.placer.shape(value, VMEM)
            for train in self._trains(form.size // form.row_step, form.row_step, value.by_rows):
                uses = [step for step, first, end in value.reads + value.writes
                        if value.flipped or (first < train.first + train.rows and train.first < end)]  # fmt: skip
                first = min(uses, default=len(self.analysis.steps))
                out.append((first, train.rows * form.row_step, order, value, train))
        return sorted(out, key=lambda entry: (entry[0], entry[1], entry[2], entry[4].first))

    def _store_what_is_done(self, number: int) -> None:
        """Store rows of results that no later step writes."""
        for name, value in self.analysis.outputs.items():
            if VMEM in self.placer.homes.get(value, {}) and any(step == number for step, _, _ in value.writes):
                self._store(name, value, number)

    def _store(self, name: str, value: Value, number: int) -> None:
        """Store the rows of a result that step ``number`` was the last to write, and that are not stored."""
        home = self._home(value, VMEM, f"store of {name!r}")
        row_bytes = value.cols * (2 if value.bf16 else 4)
        if value.flipped:
            raise Unsupported(f"{value!r} is an operand of the array only")
        if name not in self.stored:
            image = self.stored[name] = self._image(value, value.rows, row_bytes)
            self.unstored[name] = self._trains(image.rows, image.pitch, len(value.writes) > 1)
        image, left = self.stored[name], []
        for train in self.unstored[name]:
            later = (step > number and first < train.first + train.rows and train.first < end
                     for step, first, end in value.writes)  # fmt: skip
            if any(later):
                left.append(train)
                continue
            setup = self._dma(Unit.ST, row_bytes, train.rows, home.row_step)
            self._transfer(Op.HBM_WRITE_SLICE, Unit.ST, image, train, home, setup)
        self.unstored[name] = left

    def _trains(self, rows: int, pitch: int, cut: bool) -> list[_Train]:
        """An image's rows in trains that begin at slices: one, or at most eight of 16 slices or more."""
        step = rows
        if cut:
            size = self.config.slice_bytes
            whole = size // math.gcd(size, pitch)
            step = round_up(max(ceil_div(rows, 8), ceil_div(16 * size, pitch)), whole)
        return [_Train(at, min(step, rows - at)) for at in range(0, rows, step)]

    def _image(self, value: Value, rows: int, pitch: int) -> Image:
        slices = ceil_div(rows * pitch, self.config.slice_bytes)
        image = Image(value, self.slices, slices, rows, pitch)
        self.slices += slices
        if self.slices > self.config.hbm_slices:
            size = self.config.slice_bytes
            free = (self.config.hbm_slices - image.first) * size
            raise DoesNotFit(f"tensor {value!r}", needed=slices * size, free=free, largest=free, memory="HBM")
        return image

    @staticmethod
    def _dma(unit: Unit, row_bytes: int, rows: int, pitch: int) -> Setup:
        if pitch == row_bytes:
            row_bytes, rows, pitch = row_bytes * rows, 1, 0
        fields = (("unit", int(unit)), ("row_bytes", row_bytes), ("rows", rows), ("pitch", pitch))
        return Setup((Op.DMA_SHAPE, unit), Op.DMA_SHAPE, fields)

    def _transfer(self, op: Op, unit: Unit, image: Image, train: _Train, home: Home, setup: Setup) -> None:
        size, at = self.config.slice_bytes, home.addr + train.first * home.row_step
        count = ceil_div(train.rows * image.pitch, size)
        if count >= 1 << 16:
            raise Unsupported(f"{image.value!r} has {count} slices, and a train takes 65535")
        addresses = {"hbm": Address(image.first + train.first * image.pitch // size, param=True), "vmem": Address(at)}
        word = Word(op, unit, {"count": count}, addresses, (setup,), note=image.value.name)
        span = [Span(VMEM, at, at + train.rows * home.row_step)]
        self.hazards.add(Access(word, word, *(([], span) if unit is Unit.LD else (span, []))))
        self.nodes.append(word)

    # -- matmul --------------------------------------------------------------------------------------------------
    def _matmul(self, bound: BoundMatmul, where: str) -> None:
        for view in (bound.a, bound.b):
            if not view.value.bf16:
                raise Unsupported(f"operands of a matmul must be bf16, and {view.value!r} is not")
            if view.step != 1 and view is bound.b:
                raise Unsupported(f"rows of {view.value!r} are taken by {view.step}: not as weights")
        if bound.dst.step != 1 or not bound.dst.aligned(self.lanes):
            raise Unsupported(f"a matmul writes whole rows of accumulators: not this part of {bound.dst.value!r}")
        a, b = (Place(view, self._home(view.value, VMEM, where), self.lanes) for view in (bound.a, bound.b))
        adds = bound.step.add or bound.a.cols > self.config.rows
        if not self.placer.homes.get(bound.dst.value):
            # A sum of several tiles takes the read port of its region from passes that read the product before it.
            apart, region = (self.last_product, None) if adds else ((), _ARRAY)
            self._new(bound.dst.value, ACC, where, apart, region)
        home = self._home(bound.dst.value, ACC, where)
        if VMEM in self.placer.homes[bound.dst.value]:
            raise Unsupported(f"{bound.dst.value!r} is written by the array after it was used elsewhere")
        self.last_product = [home] if adds else []
        out = Place(bound.dst, home, self.lanes)
        self.nodes += self._tiles(bound, a, b, out)

    def _tiles(self, bound: BoundMatmul, a: Place, b: Place, out: Place) -> list[Node]:
        rows, cols = self.config.rows, self.config.cols
        m, depth, width = bound.a.rows, bound.a.cols, bound.dst.cols
        shape = Setup((Op.FEED_SHAPE,), Op.FEED_SHAPE, (
            ("n0", m), ("n1", 1), ("n2", 1), ("s0", a.row_step), ("segments", 1),
        ))  # fmt: skip
        if m >= 1 << 16:
            raise Unsupported(f"{bound.a.value!r} has {m} rows, and a pulse takes 65535")
        # Bytes in VMEM from tile to tile of the weights, along K and along N.
        turned = bound.step.transposed and not bound.b.value.flipped
        flipped = bound.b.value.flipped
        if flipped:
            view, pitch = bound.b, b.home.row_step
            start, along_k, along_n = b.home.addr + view.col * pitch + view.row * 2, pitch, 2
        else:
            start, pitch = b.address, b.home.row_step
            along_k, along_n = (2, pitch) if turned else (pitch, 2)
        loads: list[tuple[Word, frozenset[Loop]]] = []
        pulses: list[tuple[Word, frozenset[Loop]]] = []

        def tile(k: int, n: int, around: tuple[Loop, ...], at_k: int, at_n: int, mode: AccMode, *,
                 k_loop: Loop | None = None, n_loop: Loop | None = None) -> list[Node]:  # fmt: skip
            weights = Address(start + at_k * along_k + at_n * along_n)
            acts, sums = Address(a.address + 2 * at_k), Address(out.address + at_n // cols * out.home.block_step)
            if n_loop is not None:
                weights = weights.stepping(n_loop, cols * along_n)
                sums = sums.stepping(n_loop, out.home.block_step)
            if k_loop is not None:
                weights, acts = weights.stepping(k_loop, rows * along_k), acts.stepping(k_loop, 2 * rows)
            segment = Setup((Op.FEED_SEGMENT, 0), Op.FEED_SEGMENT, (("index", 0), ("lo", 0), ("hi", 2 * k)))
            load = Word(Op.LOAD_WEIGHTS, Unit.MXU, {"pitch": pitch, "k": k, "n": 2 * n, "transpose": int(turned)},
                        {"vmem": weights})  # fmt: skip
            pulse = Word(Op.PULSE_ARRAY, Unit.MXU, {"swap": 1, "acc_mode": mode}, {"vmem": acts, "acc": sums},
                         (shape, segment), acc_first=(k_loop,) if mode is AccMode.FIRST else ())  # fmt: skip
            loads.append((load, frozenset(around)))
            pulses.append((pulse, frozenset(around)))
            return [load, pulse]

        nodes: list[Node] = []
        for at_n, count, n in _runs(width, cols):
            n_loop = Loop(count) if count > 1 else None
            around = (n_loop,) if n_loop else ()
            body: list[Node] = []
            for at_k, times, k in _runs(depth, rows):
                if times > 1:
                    k_loop = Loop(times)
                    mode = AccMode.ACCUMULATE if bound.step.add else AccMode.FIRST
                    k_loop.body = tile(k, n, (*around, k_loop), at_k, at_n, mode, k_loop=k_loop, n_loop=n_loop)
                    body.append(k_loop)
                else:
                    mode = AccMode.ACCUMULATE if at_k or bound.step.add else AccMode.OVERWRITE
                    body += tile(k, n, around, at_k, at_n, mode, n_loop=n_loop)
            if n_loop is not None:
                n_loop.body = body
                nodes.append(n_loop)
            else:
                nodes += body
        end, end_loops = pulses[-1]
        weight_span = [_span(b.home)] if flipped else b.spans
        self.hazards.add(Access(loads[0][0], end, weight_span, [], loads[0][1], end_loops))
        self.hazards.add(Access(pulses[0][0], end, a.spans, out.spans, pulses[0][1], end_loops))
        loads[0][0].note = str(bound.step)
        return nodes

    # -- passes --------------------------------------------------------------------------------------------------
    def _pass(self, bound: BoundPass, where: str) -> None:
        operands = operands_of(bound)
        streams = {}
        for stream, (view, how) in operands.streams.items():
            memory = ACC if how == "column" else self._memory_of(view)
            streams[stream] = Place(view, self._home(view.value, memory, where), self.lanes, how == "row")
        source = Place(bound.source, self._home(bound.source.value, self._memory_of(bound.source), where), self.lanes)
        result = None
        if bound.dst is not None:
            result = Place(bound.dst, self._result(bound, source, streams, where), self.lanes)
            for other in streams.values():
                if _overlap(other.view, bound.dst):
                    raise Unsupported(f"it writes over {other.view.value!r} while it reads it as an operand")
            if _overlap(bound.source, bound.dst) and bound.source != bound.dst:
                raise Unsupported(f"it writes over other rows or columns of {bound.source.value!r} than it reads")
        reduced = None
        if bound.reduce is not None:
            reduced = self._new(bound.reduce, ACC, where, region=_PASSES)
        self._emit_pass(bound, source, streams, result, reduced, str(bound.step))

    def _memory_of(self, view: View) -> str | None:
        return None if view.aligned(self.lanes) else VMEM

    def _result(self, bound: BoundPass, source: Place, streams: dict[Stream, Place], where: str) -> Home:
        """The place of what a pass stores."""
        view, old = bound.dst, bound.source.value
        value = view.value
        if value in self.placer.homes and self.placer.homes[value]:  # a part of what is there
            if len(self.placer.homes[value]) > 1:
                self.placer.drop(value, ACC if VMEM in value.needs else VMEM)
            return self._home(value, VMEM if value.origin == "input" else None, where)
        memory = VMEM if VMEM in value.needs and ACC not in value.needs else ACC
        whole = all(v == View(v.value, 0, v.value.rows, 0, v.value.cols) for v in (source.view, view))
        same = value.shape == old.shape and (memory == ACC or value.bf16 == old.bf16)
        mixed = any(place.view.value is old for place in streams.values())
        dying = old.last <= bound.number and old.origin != "input" and len(self.placer.homes[old]) == 1
        quiet = memory == VMEM or self.placer.inside(source.home, _PASSES) or not self.placer.fits(value, ACC)
        if memory == source.home.memory and whole and same and dying and not mixed and quiet:
            self.placer.adopt(value, source.home, old)
            if value not in self.live:
                self.live.append(value)
            return source.home
        if memory == ACC and ACC not in value.needs and not self.placer.fits(value, ACC):
            memory = VMEM
        return self._new(value, memory, where, region=_PASSES if memory == ACC else None)

    def _emit_pass(self, bound: BoundPass, source: Place, streams: dict[Stream, Place], result: Place | None,
                   reduced: Home | None, note: str) -> None:  # fmt: skip
        setup = [shape_setup(bound.source.rows, bound.source.cols, self.lanes, bound.step.mask),
                 mode_setup(bound, operands_of(bound)), source.setup(Stream.SOURCE)]  # fmt: skip
        reads, writes = list(source.spans), []
        for stream, place in streams.items():
            column = stream is Stream.COLUMN
            setup.append(packed_setup(stream, place.address) if column else place.setup(stream))
            reads += [_span(place.home)] if column else place.spans
        if result is not None:
            setup.append(result.setup(Stream.RESULT))
            writes += result.spans
        if reduced is not None:
            setup.append(packed_setup(Stream.REDUCED, reduced.addr))
            writes.append(_span(reduced))
        walked = [source, *[p for stream, p in streams.items() if stream is not Stream.COLUMN and not p.shared]]
        self.lane_cycles += self._blocks_time(bound.source, walked, result)
        word = Word(Op.VECTOR_PASS, Unit.VPU, {}, {}, tuple(setup), note=note)
        self.hazards.add(Access(word, word, reads, writes))
        self.nodes.append(word)

    def _blocks_time(self, source: View, walked: list[Place], result: Place | None) -> int:
        """Cycles that a pass's blocks take, by the memory that is asked most often."""
        reads = sum(place.home.memory == ACC for place in walked)
        in_vmem = [place for place in (*walked, result) if place is not None and place.home.memory == VMEM]
        accesses = [ceil_div(place.home.block_step, self.config.word_bytes) for place in in_vmem]
        return source.rows * ceil_div(source.cols, self.lanes) * max(1, reads, *accesses)


def _overlap(a: View, b: View) -> bool:
    """Whether two views of a value share elements (rows by a step count with those between)."""
    rows = a.row < b.row + b.rows * b.step and b.row < a.row + a.rows * a.step
    return a.value is b.value and rows and a.col < b.col + b.cols and b.col < a.col + a.cols


def _span(home: Home) -> Span:
    return Span(home.memory, home.addr, home.addr + home.size)


def _runs(total: int, step: int) -> list[tuple[int, int, int]]:
    """A length in tiles: (start, tiles, size of each): the full ones, and what is left."""
    full, rest = divmod(total, step)
    return [run for run in ((0, full, step), (full * step, 1, rest)) if run[1] and run[2]]
