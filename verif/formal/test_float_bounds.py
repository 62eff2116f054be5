"""The floating-point vector unit stays inside its memories, whatever a legal program asks for.

- Walk: rows by groups, in a group block by block, each once (or once a group, where rows share it), shown at
  base + row x row_step + block x block_step.
- Unit: no pass and no transpose uses a byte beyond VMEM or an accumulator row beyond the last, read or written. How
  many bytes a request uses is what the program set: lanes of the block times bytes of the stream's format, in one
  access or two, or twice the elements of a transpose's row. Requests to VMEM are held until they are granted, but for a
  fault. (At the accumulators a request may give way to another one of the unit's.)
- Parts of it alone, in `make test`: what they ask for and write, given legal shapes and streams.

Fields of setup words are those that the decoder lets pass. The lanes' arithmetic is left out: what comes out of them
and when is any, and so is what queues hold. In return this is assumed: a pass ends when all it reads has been read, a
transpose likewise, and a block is called for when it has been asked for.

Bounds: walk with groups of 2 rows, up to 5 rows of up to 3 blocks, 5 bits; VMEM of 192 bytes and 6 accumulator rows, 3
columns with words of 8 bytes (32-bit values take two accesses), blocks of a transpose up to 3 x 3, and there all
addresses, pitches and strides in their full width. Unbounded in time, by induction.
"""

from __future__ import annotations

import pytest
from amaranth.hdl import Array, Assume, Module, Mux, Signal, Value
from amaranth.lib import data

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Format, Op, Source, Stream
from sluice_hw.transpose import Transposer
from sluice_hw.vpu.blocks import BlockWalker
from sluice_hw.vpu.column import ColumnReader
from sluice_hw.vpu.fetch import AHEAD, Fetcher
from sluice_hw.vpu.float_unit import FloatUnit
from sluice_hw.vpu.pipe import FloatPipe
from sluice_hw.vpu.results import Packer, RowWriter
from sluice_hw.vpu.stream import StreamWalker
from sluice_hw.vpu.transpose_op import TransposeOp
from verif.formal.claims import AnyQueue, Check, altered, open_up, planted, prove_bites, prove_checks
from verif.formal.test_address_bounds import all_of, legal

pytestmark = pytest.mark.formal

CONFIG = ChipConfig(rows=2, cols=3, dtype="bf16", vmem_bytes=192, vmem_banks=8, acc_bytes=6 * 12, feed_ports=2)


class _Free:
    """Outputs that take any value, in ``any`` by name; whoever instances it finds it in ``made``."""

    made: list

    def outputs(self, m: Module, component, names: tuple[str, ...]) -> None:
        self.any = {}
        for name in names:
            value = component
            for part in name.split("__"):
                value = getattr(value, part)
            self.any[name] = Signal(len(Value.cast(value)), name=f"any_{name}")
            m.d.comb += Value.cast(value).eq(self.any[name])


class AnyPipe(FloatPipe, _Free):
    """In place of the lanes: results of any value at any time."""

    made: list = []

    def elaborate(self, platform) -> Module:
        m = Module()
        self.made.append(self)
        self.outputs(m, self, ("second_valid", "out_valid", "reduced_valid"))
        return m


class AnySquare(Transposer, _Free):
    """In place of the square of registers: rows leave at any time."""

    made: list = []

    def elaborate(self, platform) -> Module:
        m = Module()
        self.made.append(self)
        self.outputs(m, self, ("input__ready", "output__valid", "output__payload"))
        return m


#: What is read, by a name that its other half does not use.
_READS = (TransposeOp, "        left = Signal(SIZE_BITS, reset_less=True)\n",
          "        left = Signal(SIZE_BITS, reset_less=True)\n        reading = block\n")


def claim_stream(check: Check, m: Module, inner: dict, part, name: str, request, mine: Value, tail: Value, form: Value,
                 memory: Value) -> None:
    """The requests of a Fetcher or a RowWriter use bytes of VMEM, or whole accumulator rows, as was set at its start.

    ``mine``: ``request`` is the part's. ``tail``, ``form``, ``memory``: what is set now.
    """
    cfg, width, reads = CONFIG, CONFIG.word_bytes, hasattr(part, "ahead")
    local = inner[id(part)]
    walk, second = local["walk"], local["second"]
    stream = inner[id(walk)]
    my_tail, my_form = Signal.like(tail, name=f"{name}_tail"), Signal(2, name=f"{name}_form")
    in_vmem = Signal(name=f"{name}_vmem")
    with m.If(part.start):
        m.d.sync += [my_tail.eq(tail), my_form.eq(form), in_vmem.eq(memory == Source.VMEM)]
    lanes, size, used = Signal(4, name=f"{name}_lanes"), Signal(6, name=f"{name}_size"), Signal(6, name=f"{name}_used")
    m.d.comb += [
        lanes.eq(Mux(stream["walk"].last_block, my_tail, cfg.cols)),
        size.eq(lanes * Array([Format(i).size for i in range(3)])[my_form]),
        used.eq(Mux(second, size - width, Mux(size > width, width, size))),
    ]
    address = request.payload.addr
    with m.If(mine):
        check.claim(m, in_vmem & (~second | (size > width)))
        check.claim(m, address == (walk.at + Mux(second, width, 0))[:32])
        check.claim(m, address + used <= cfg.vmem_bytes)
        if not reads:
            check.claim(m, request.payload.mask == (1 << used) - 1)
    acc = part.acc.req
    with m.If(acc.valid):
        check.claim(m, ~in_vmem & (acc.payload.row == walk.at) & (walk.at < cfg.acc_rows))
    if check.mutant:
        return
    check.invariant(m, (form <= max(Format)) & (my_form <= max(Format)) & (tail <= cfg.cols))
    with m.If(stream["walk"].valid):
        check.invariant(m, (stream["tail"] == my_tail) & (stream["form"] == my_form) & (walk.in_vmem == in_vmem))
        check.invariant(m, my_tail <= cfg.cols)
    check.invariant(m, ~second | (stream["walk"].valid & in_vmem & (size > width)))
    if reads:
        check.invariant(m, part.ahead <= AHEAD)


class PartCheck(Check):
    """A Fetcher or a RowWriter alone."""

    def __init__(self, part: type, *bugs: tuple[type, str, str]) -> None:
        super().__init__()
        walker = altered(StreamWalker, *((old, new) for of, old, new in bugs if of is StreamWalker))
        self.unit = altered(part, *((old, new) for of, old, new in bugs if of is part), SyncFIFOBuffered=AnyQueue,
                            StreamWalker=walker)

    def describe(self, m: Module) -> None:
        AnyQueue.made.clear()
        dut = self.unit(CONFIG, depth=32)
        m.submodules.dut, inside = open_up(dut)
        inner = {id(part["self"]): part for part in inside["parts"]} | {id(dut): inside}
        self.free_queues(m)
        self.free_inputs(m, dut)
        valid = inner[id(inside["walk"])]["walk"].valid
        tail, form = dut.shape.tail, dut.stream.format
        m.d.comb += [
            Assume((tail != 0) & (tail <= CONFIG.cols) & (form <= max(Format))), Assume(~(dut.start & valid)),
            *([Assume(~(dut.call & (dut.ahead == 0)))] if hasattr(dut, "call") else ()),
        ]  # fmt: skip
        request = dut.vmem.req
        claim_stream(self, m, inner, dut, "stream", request, request.valid, tail, form, dut.stream.memory)


class ValuesCheck(Check):
    """A ColumnReader or a Packer alone."""

    def __init__(self, part: type, *bugs: tuple[type, str, str]) -> None:
        super().__init__()
        self.unit = altered(part, *((old, new) for _, old, new in bugs),
                            **{"SyncFIFO" if part is ColumnReader else "SyncFIFOBuffered": AnyQueue})  # fmt: skip

    def describe(self, m: Module) -> None:
        AnyQueue.made.clear()
        dut = self.unit(CONFIG, depth=32)
        m.submodules.dut, _ = open_up(dut)
        self.free_queues(m)
        self.free_inputs(m, dut)
        with m.If(dut.acc.req.valid):
            self.claim(m, dut.acc.req.payload.row < CONFIG.acc_rows)


class UnitCheck(Check):
    """All requests of the unit."""

    def __init__(self, *bugs: tuple[type, str, str]) -> None:
        super().__init__()

        def part(cls: type, **names) -> type:
            return altered(cls, *((old, new) for of, old, new in (*bugs, _READS) if of is cls), **names)

        queues = {"SyncFIFOBuffered": AnyQueue}
        walker = part(StreamWalker)
        writer = part(RowWriter, **queues, StreamWalker=walker)
        self.unit = part(
            FloatUnit, Fetcher=part(Fetcher, **queues, StreamWalker=walker), RowWriter=writer,
            Packer=part(Packer, **queues), ColumnReader=part(ColumnReader, SyncFIFO=AnyQueue),
            TransposeOp=part(TransposeOp, **queues, Transposer=AnySquare), FloatPipe=AnyPipe)  # fmt: skip

    def describe(self, m: Module) -> None:
        for made in (AnyPipe.made, AnySquare.made, AnyQueue.made):
            made.clear()
        cfg, vmem, width = CONFIG, CONFIG.vmem_bytes, CONFIG.word_bytes
        dut = self.unit(cfg)
        m.submodules.dut, inside = open_up(dut)
        inner = {id(part["self"]): part for part in inside["parts"]}
        self.free_queues(m)
        for i, stub in enumerate((*AnyPipe.made, *AnySquare.made)):
            for name, signal in stub.any.items():
                m.d.comb += signal.eq(self.free(len(signal), f"stub{i}_{name}"))
        self.free_inputs(m, dut, but=("unit__op__valid", "unit__op__payload"))
        self.held_stream(m, dut.unit.op, "op")
        op = dut.unit.op.payload
        word = {kind: data.View(isa.word_layout(kind), op.word)
                for kind in (Op.PASS_SHAPE, Op.PASS_MODE, Op.PASS_STREAM, Op.TRANSPOSE)}
        opcode = word[Op.PASS_SHAPE].opcode
        for kind, view in word.items():
            with m.If(dut.unit.op.valid & (opcode == kind)):
                m.d.comb += Assume(all_of(legal(kind, view, cfg)))

        # What the program set, and of it what each part at work took.
        taken = dut.unit.op.valid & dut.unit.op.ready
        tail = Signal(range(cfg.cols + 1))
        with m.If(taken & (opcode == Op.PASS_SHAPE)):
            m.d.sync += tail.eq(word[Op.PASS_SHAPE].tail)
        setup = word[Op.PASS_STREAM]
        fetchers, writer, transpose = inside["fetchers"], inside["writer"], inside["transpose"]
        running, turning, stopped = (inside[name] for name in ("running", "turning", "stopped"))
        turned = Signal(11)
        with m.If(taken & (opcode == Op.TRANSPOSE)):
            m.d.sync += turned.eq(word[Op.TRANSPOSE].n)
        turn = inner[id(transpose)]
        reads = (dut.source, dut.residual, dut.params)
        streams = [(Stream(s), f, port.req) for (s, f), port in zip(fetchers.items(), reads, strict=True)]
        streams.append((Stream.RESULT, writer, dut.result.req))
        left = {s: inner[id(inner[id(part)]["walk"])]["walk"].valid for s, part, _ in streams}
        m.d.comb += [
            *(Assume(~(inside["finish"] & running & valid)) for s, valid in left.items() if s != Stream.RESULT),
            *(Assume(~(f.call & (f.ahead == 0))) for f in fetchers.values()),
            Assume(~(turning & transpose.done & (turn["active"] | turn["asked_valid"]))),
        ]
        for s, part, request in streams:
            name = s.name.lower()
            form, memory = Signal(Format, name=f"{name}_format"), Signal(Source, name=f"{name}_memory")
            with m.If(taken & (opcode == Op.PASS_STREAM) & (setup.stream == s)):
                m.d.sync += [form.eq(setup.format), memory.eq(setup.memory)]
            mine = request.valid if s in (Stream.X, Stream.Y) else request.valid & ~turning
            claim_stream(self, m, inner, part, name, request, mine, tail, form, memory)
            self.claim_held(m, request, name, unless=stopped)
            with m.If(mine | part.acc.req.valid):
                self.claim(m, running)
            if not self.mutant:
                self.invariant(m, (inside["streams"][s].format == form) & (inside["streams"][s].memory == memory))
                self.invariant(m, ~left[s] | running | stopped)
        with m.If(turning & dut.source.req.valid):
            self.claim(m, dut.source.req.payload.addr + (turned << 1) <= vmem)
        request = dut.result.req
        for i in range(width):
            with m.If(request.valid & request.payload.mask[i]):
                self.claim(m, request.payload.addr + i < vmem)
        for request in (dut.acc.req, dut.acc_write.req):
            with m.If(request.valid):
                self.claim(m, request.payload.row < cfg.acc_rows)
        if self.mutant:
            return
        shape = inside["shape"]
        self.invariant(m, (tail <= cfg.cols) & (shape.tail == tail))
        self.invariant(m, ~(running & turning))
        self.invariant(m, turned <= max(cfg.rows, cfg.cols))
        with m.If(turning):
            self.invariant(m, ~turn["active"] | (turn["reading"].n == turned))
            self.invariant(m, ~turn["asked_valid"] | (turn["asked"].n == turned))
        with m.Elif(~stopped):
            self.invariant(m, ~turn["active"] & ~turn["asked_valid"])
        with m.If(turn["asked_valid"] & turn["asked_real"]):
            self.invariant(m, turn["asked"].addr + (turn["asked"].n << 1) <= vmem)
        payload = inner[id(transpose)]["payload"]
        with m.If(turn["put"] & turn["put_real"]):
            for i in range(width):
                self.invariant(m, ~payload.mask[i] | (payload.addr + i < vmem))


@pytest.mark.soak
def test_unit():
    prove_checks("float_bounds", {"unit": UnitCheck()}, depth=1)


class WalkCheck(Check):
    """Positions of the walk over rows and blocks."""

    BITS, MOST_ROWS, MOST_BLOCKS, GROUP = 5, 5, 3, 2

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(BlockWalker, ("GROUP = ReduceLane.SLOTS", f"GROUP = {self.GROUP}"), *bugs)

    def describe(self, m: Module) -> None:
        bits = self.BITS
        dut = self.unit(bits=bits)
        m.submodules.dut, inside = open_up(dut)
        self.free_inputs(m, dut)
        shape = dut.shape
        m.d.comb += Assume((shape.rows != 0) & (shape.rows <= self.MOST_ROWS) & (shape.blocks != 0)
                           & (shape.blocks <= self.MOST_BLOCKS))
        base, row_step, block_step = Signal(bits), Signal(bits), Signal(bits)
        rows, blocks, row, block = (Signal(4, name=name) for name in ("n_rows", "n_blocks", "row", "block"))
        going, shared = Signal(), Signal()
        first = Signal(4)  # row of the group
        group_end, row_end, block_end = Signal(4), Signal(), Signal()
        m.d.comb += [
            first.eq(row & ~(self.GROUP - 1)), group_end.eq(Mux(first + self.GROUP < rows, first + self.GROUP, rows)),
            row_end.eq(shared | (row + 1 == group_end)), block_end.eq(block + 1 == blocks),
        ]
        with m.If(dut.start):
            m.d.sync += [
                going.eq(1), base.eq(dut.base), row_step.eq(dut.row_step), block_step.eq(dut.block_step),
                rows.eq(shape.rows), blocks.eq(shape.blocks), row.eq(0), block.eq(0), shared.eq(dut.shared),
            ]
        with m.Elif(dut.step & going):
            with m.If(~row_end):
                m.d.sync += row.eq(row + 1)
            with m.Elif(~block_end):
                m.d.sync += [row.eq(first), block.eq(block + 1)]
            with m.Else():
                m.d.sync += [row.eq(group_end), block.eq(0), going.eq(first + self.GROUP < rows)]
                with m.If(shared):
                    m.d.sync += row.eq(first + self.GROUP)

        def times(count: Signal, step: Signal) -> Value:
            return sum((Mux(count[i], step << i, 0) for i in range(3)), 0)[:bits]

        self.claim(m, dut.valid == going)
        with m.If(going):
            self.claim(m, dut.at == (base + times(row, row_step) + times(block, block_step))[:bits])
            self.claim(m, (dut.row == row) & (dut.slot == row[:1]) & (dut.first_block == (block == 0)))
            self.claim(m, (dut.last_row == row_end) & (dut.last_block == block_end))
            self.claim(m, dut.last == (row_end & block_end & (first + self.GROUP >= rows)))
        if self.mutant:
            return
        (counter,) = (part for part in inside["parts"] if "blocks_left" in part)
        with m.If(going):
            self.invariant(m, (row < rows) & (rows <= self.MOST_ROWS) & (block < blocks) & (blocks <= self.MOST_BLOCKS))
            self.invariant(m, (counter["left"] == rows - first) & (counter["blocks"] == blocks))
            self.invariant(m, (counter["blocks_left"] == blocks - block) & (counter["shared"] == shared))
            self.invariant(m, ~shared | (row == first))
            self.invariant(m, (inside["row_step"][:bits] == row_step) & (inside["block_step"][:bits] == block_step))
            start = base + times(first, row_step)
            self.invariant(m, inside["group_at"] == start[:bits])
            self.invariant(m, inside["block_at"] == (start + times(block, block_step))[:bits])


def test_walk_and_parts():
    prove_checks("float_walk", {
        "walk": WalkCheck(), "fetch": PartCheck(Fetcher), "write": PartCheck(RowWriter),
        "column": ValuesCheck(ColumnReader), "packer": ValuesCheck(Packer),
    }, depth=1)  # fmt: skip


BUGS = {
    "only a block's first byte is looked at": (StreamWalker, "end.eq(self.at + self.size)", "end.eq(self.at)"),
    "an accumulator row too far": (StreamWalker, "self.at >= config.acc_rows", "self.at > config.acc_rows"),
    "blocks are as long as the last": (StreamWalker, "Mux(walk.last_block, tail, config.cols)", "tail"),
    "second half at the first one's place": (
        Fetcher, "vmem.req.payload.addr.eq(walk.at + Mux(second, width, 0))", "vmem.req.payload.addr.eq(walk.at)"),
    "a second half of nothing": (
        Fetcher, "whole.eq(second | (walk.size <= width) if", "whole.eq(second if"),
    "writes whole words": (RowWriter, "left.eq(walk.size - Mux(second, width, 0))", "left.eq(walk.size)"),
    "packed values a row too far": (Packer, "(self.at >= self._config.acc_rows)", "(self.at > self._config.acc_rows)"),
    "column a row too far": (ColumnReader, "addr >= self._config.acc_rows", "addr > self._config.acc_rows"),
    "transpose: elements counted as bytes": (TransposeOp, "addr + (elements << 1) >", "addr + elements >"),
    "transpose: rows that leave are as long as those that came": (
        TransposeOp, "self._beyond(addr, block.k)", "self._beyond(addr, block.n)"),
    "transpose: a row is overwritten": (TransposeOp, "out.ready.eq(~put | written)", "out.ready.eq(1)"),
}


@pytest.mark.parametrize("bug", planted(BUGS))
def test_bug_is_found(bug):
    """Where the part is enough, in the part alone: the way through the setup words takes long."""
    of = bug[0]
    if of in (Packer, ColumnReader):
        check: Check = ValuesCheck(of, bug)
    elif of in (StreamWalker, Fetcher, RowWriter):
        check = PartCheck(RowWriter if of is RowWriter else Fetcher, bug)
    else:
        check = UnitCheck(bug)
    prove_bites("float_bounds_bites", check, depth=9)


WALK_BUGS = {
    "a group is as long as a row": ("by.eq(row_step << _SLOT_BITS)", "by.eq(row_step)"),
    "a group too few": ("last_group.eq(left <= GROUP)", "last_group.eq(left <= GROUP + 1)"),
    "blocks begin where the row is": ("from_at.eq(block_at), by", "from_at.eq(row_at), by"),
}


@pytest.mark.soak
@pytest.mark.parametrize("what", WALK_BUGS)
def test_bug_of_the_walk_is_found(what):
    prove_bites("float_walk_bites", WalkCheck(WALK_BUGS[what]), depth=9)
