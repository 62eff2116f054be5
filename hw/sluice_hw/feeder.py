"""Activation feeder: walks the rows of PULSE_ARRAYs and packs runs of VMEM bytes (segments) into array rows.

The parts, in the order of the data::

    walk -> place -> clip -> check -> window -+-> row words (FIFO) ---------> issue -> align -> array
                                              +-> accesses -> VMEM -> window slots ---^

Every segment port reads VMEM through *windows*: a word's width W of bytes at any byte address. A window that reaches
the end of what a row needs is *continued* by the W bytes behind it, anything else opens a *fresh* window. So a port
whose rows overlap or follow each other closely (few channels) reads each byte once, and one whose rows lie apart takes
one access a row; several ports of the first kind share the one VMEM port and still give a row every cycle.

The front half runs ahead: it works out a row's accesses and puts what is left to do into a row word. A row is issued
when the accesses it needs have been granted, and from then on all is fixed latency, so that nothing behind that point
can stall; a refused grant is, at worst, a bubble. The front half does not tell PULSE_ARRAYs apart but for the first
row, which drops all windows, so the rows of the next one follow without a gap.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from . import isa
from .config import ChipConfig
from .interfaces import ADDR_BITS, VMEM_LATENCY, VmemReadSignature
from .lanes import bytes_below, spread, window

__all__ = ["FEED_LATENCY", "Feeder", "access_fault_layout", "start_layout"]

#: Cycles from the issue of a row to the cycle in which it enters the array.
FEED_LATENCY = 3
#: Window slots of a port: as many windows may be in use, on their way or asked for.
SLOTS = 4
#: Rows that the front half may be ahead: spreads the accesses at the start of an image line over the rows before.
ROWS_AHEAD = 16
#: Bits that number the windows of a port, modulo 2 SLOTS so that full and empty differ.
INDEX_BITS = ceil_log2(2 * SLOTS)
#: Bits of a row's position along the line; beyond it the walk holds still, far outside any line.
X_BITS = 22
Y_BITS = 25


def start_layout(config: ChipConfig) -> data.StructLayout:
    """A PULSE_ARRAY for the feeder: address of its first row, whether that row swaps weights, its microcode address;
    with bf16 also whether it must follow the row before ``acc_revisit`` cycles later than it could, and with both types
    whether its rows are int8."""
    apart = {"apart": 1} if config.is_float else {}
    return data.StructLayout({"vmem": ADDR_BITS, "swap": 1, "pc": 16, **apart, **({"int8": 1} if config.both else {})})


def access_fault_layout() -> data.StructLayout:
    """Where an access left VMEM: the first address of the run of bytes, and the op."""
    return data.StructLayout({"addr": ADDR_BITS, "pc": 16})


def _fields(op: isa.Op) -> data.StructLayout:
    """Setup registers of an op: its fields."""
    return data.StructLayout({f.name: signed(f.width) if f.signed else unsigned(f.width) for f in isa.OPS[op].fields})


def shape_layout() -> data.StructLayout:
    """Fields of FEED_SHAPE."""
    return _fields(isa.Op.FEED_SHAPE)


def segment_layout() -> data.StructLayout:
    """Fields of FEED_SEGMENT."""
    return _fields(isa.Op.FEED_SEGMENT)


class Feeder(wiring.Component):
    """Streams array rows, one a cycle wherever VMEM keeps up.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    shape, shape_valid : In
        FEED_SHAPE: write the next shape.
    segment, segment_valid : In
        FEED_SEGMENT: write the next segment ``index``.
    rows, rows_valid : Out
        n0 x n1 x n2 of the next shape, at most ``2 * acc_rows`` (more is not told apart); valid two cycles after it was
        written.
    start : In(stream)
        A PULSE_ARRAY: copies the next registers. Taken when all rows of the one before have been walked.
    act : Out(VmemReadSignature(word_bytes))
    tile_ready : In(1)
        A weight tile stands in the array, not swapped in, for a row that enters FEED_LATENCY cycles after this one.
        A row with swap waits for it.
    issue, issue_swap : Out(1)
        A row was issued in this cycle, which enters the array FEED_LATENCY cycles later; it swaps weights.
    waits : Out(isa.Cause)
        Why no row was issued: BUSY (one was), WEIGHTS, VMEM (data are missing, also while the front half starts up) or
        IDLE (no row left). Rows of bf16 that are kept apart count as WEIGHTS.
    a_valid, a_swap, a_data : Out
        To the array. With both types also a_bf16.
    fault_valid, fault : Out
        Bytes needed lie outside VMEM. They are not read, and the array row gets zeros.

    Raises
    ------
    TypeError
        If ``config`` is not a ChipConfig.
    """

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self._config = config
        super().__init__({
            "shape": In(shape_layout()),
            "shape_valid": In(1),
            "segment": In(segment_layout()),
            "segment_valid": In(1),
            "rows": Out(range(2 * config.acc_rows + 1)),
            "rows_valid": Out(1),
            "start": In(stream.Signature(start_layout(config))),
            "act": Out(VmemReadSignature(config.word_bytes)),
            "tile_ready": In(1),
            "issue": Out(1),
            "issue_swap": Out(1),
            "waits": Out(isa.Cause),
            "a_valid": Out(1),
            "a_swap": Out(1),
            "a_data": Out(data.ArrayLayout(signed(8), config.row_bytes)),
            **({"a_bf16": Out(1)} if config.both else {}),
            "fault_valid": Out(1),
            "fault": Out(access_fault_layout()),
        })

    @property
    def config(self) -> ChipConfig:
        return self._config

    # -- layouts of what passes from stage to stage ----------------------------------------------------------------
    @property
    def _lane_bits(self) -> int:
        return self._config.row_bytes.bit_length()

    def _per_port(self, members: dict) -> data.ArrayLayout:
        return data.ArrayLayout(data.StructLayout(members), self._config.feed_ports)

    def _row_flags(self) -> dict:
        flags = {"swap": 1, "first": 1, "zero_point": signed(8)}
        return {
            **flags, **({"apart": 1} if self._config.is_float else {}), **({"int8": 1} if self._config.both else {})}

    def _placed_layout(self) -> data.StructLayout:
        return data.StructLayout({
            **self._row_flags(), "pc": 16, "pad": 1, "line_bytes": 20, "height": 16,
            "port": self._per_port({
                "used": 1, "lo": self._lane_bits, "hi": self._lane_bits, "addr": ADDR_BITS,
                "x": signed(X_BITS + 1), "y": signed(Y_BITS + 1),
            }),
        })

    def _clipped_layout(self) -> data.StructLayout:
        return data.StructLayout({
            **self._row_flags(), "pc": 16,
            "port": self._per_port({
                "used": 1, "read": 1, "lo": self._lane_bits, "hi": self._lane_bits, "first": self._lane_bits,
                "end": self._lane_bits, "addr": ADDR_BITS,
            }),
        })

    def _word_layout(self) -> data.StructLayout:
        """Row word: per port which window the row's bytes start in, how far to rotate, and which lanes get them."""
        return data.StructLayout({
            **self._row_flags(),
            "port": self._per_port({
                "used": 1, "read": 1, "more": 1, "lo": self._lane_bits, "hi": self._lane_bits, "first": self._lane_bits,
                "end": self._lane_bits, "window": INDEX_BITS, "rotate": ceil_log2(2 * self._config.word_bytes),
            }),
        })

    # -- hardware ----------------------------------------------------------------------------------------------------
    def elaborate(self, platform) -> Module:
        m = Module()
        ports = range(self._config.feed_ports)
        word_layout = self._word_layout()
        m.submodules.row_words = rows = fifo.SyncFIFOBuffered(width=word_layout.size, depth=ROWS_AHEAD)
        # Accesses that a port still has to make; two deep, so that a port can make one every cycle.
        wanted = []
        for p in ports:
            m.submodules[f"wanted{p}"] = queue = fifo.SyncFIFO(width=ADDR_BITS, depth=2)
            wanted.append(queue)

        # The front half moves as a whole, when whatever row comes out of it finds room.
        step = Signal()
        m.d.comb += step.eq(rows.w_rdy & Cat(queue.w_rdy for queue in wanted).all())

        placed_valid, placed, walking = self._walk(m, step)
        clipped_valid, clipped = self._clip(m, step, placed_valid, placed)
        checked_valid, checked = self._check(m, step, clipped_valid, clipped)
        self._window(m, step, checked_valid, checked, rows, wanted)
        head, credits, tails = self._issue(m, rows, word_layout, walking | placed_valid | clipped_valid | checked_valid)
        slots = self._access(m, head, rows.r_rdy, credits, tails, wanted)
        self._align(m, head, slots)
        return m

    def _walk(self, m: Module, step: Signal) -> tuple[Signal, data.View, Signal]:
        """Next registers, the walk over rows, and the place of each port's bytes in VMEM and in the image."""
        config = self._config
        ports = range(config.feed_ports)
        next_shape = Signal(shape_layout())  # with reset: counts of 0 tell a shape that was never set
        next_segments = [Signal(segment_layout(), reset_less=True, name=f"next_segment{p}") for p in ports]
        with m.If(self.shape_valid):
            m.d.sync += next_shape.eq(self.shape)
        for p in ports:
            with m.If(self.segment_valid & (self.segment.index == p)):
                m.d.sync += next_segments[p].eq(self.segment)

        # Rows of the pass, in two steps; what exceeds the accumulators only has to stay too large.
        most = 2 * config.acc_rows
        partial, partial_valid = Signal.like(self.rows, reset_less=True), Signal()
        m.d.sync += partial_valid.eq(~self.shape_valid)
        m.d.sync += self.rows_valid.eq(partial_valid & ~self.shape_valid)

        def product(a: Value, b: Value) -> Value:
            full = a * b
            return Mux(full > most, most, full)

        m.d.sync += [
            partial.eq(product(next_shape.n0, next_shape.n1)),
            self.rows.eq(product(partial, next_shape.n2)),
        ]

        active = Signal()
        shape = Signal(shape_layout(), reset_less=True)
        segments = [Signal(segment_layout(), reset_less=True, name=f"segment{p}") for p in ports]
        op = Signal(start_layout(config), reset_less=True)
        i0, i1, i2 = (Signal(16, name=f"i{n}", reset_less=True) for n in range(3))
        at0, at1, at2 = (Signal(ADDR_BITS, name=f"at{n}", reset_less=True) for n in range(3))
        x, y = Signal(X_BITS, reset_less=True), Signal(Y_BITS - 1, reset_less=True)
        first = Signal(reset_less=True)
        wrap0, wrap1, wrap2 = i0 == shape.n0 - 1, i1 == shape.n1 - 1, i2 == shape.n2 - 1
        last = wrap0 & wrap1 & wrap2

        m.d.comb += self.start.ready.eq(~active | (step & last))
        with m.If(active & step):
            m.d.sync += [first.eq(0), i0.eq(i0 + 1), at0.eq(at0 + shape.s0)]
            with m.If(~x[-1]):  # beyond that every line ends
                m.d.sync += x.eq(x + shape.x_step)
            with m.If(wrap0):
                m.d.sync += [i0.eq(0), x.eq(0), i1.eq(i1 + 1), y.eq(y + shape.y_step)]
                m.d.sync += [at0.eq(at1 + shape.s1), at1.eq(at1 + shape.s1)]
                with m.If(wrap1):
                    m.d.sync += [i1.eq(0), y.eq(0), i2.eq(i2 + 1)]
                    m.d.sync += [at.eq(at2 + shape.s2) for at in (at0, at1, at2)]
            with m.If(last):
                m.d.sync += active.eq(0)
        with m.If(self.start.valid & self.start.ready):
            m.d.sync += [active.eq(1), shape.eq(next_shape), op.eq(self.start.payload), first.eq(1)]
            m.d.sync += [segment.eq(copied) for segment, copied in zip(segments, next_segments, strict=True)]
            m.d.sync += [i.eq(0) for i in (i0, i1, i2, x, y)]
            m.d.sync += [at.eq(self.start.payload.vmem) for at in (at0, at1, at2)]

        valid = Signal(name="placed_valid")
        placed = Signal(self._placed_layout(), reset_less=True)
        if config.is_float:
            with m.If(step):
                m.d.sync += placed.apart.eq(op.apart & first)
                if config.both:
                    m.d.sync += placed.int8.eq(op.int8)
        with m.If(step):
            m.d.sync += [
                valid.eq(active),
                placed.swap.eq(op.swap & first),
                placed.first.eq(first),
                placed.zero_point.eq(shape.zero_point),
                placed.pc.eq(op.pc),
                placed.pad.eq(shape.pad),
                placed.line_bytes.eq(shape.line_bytes),
                placed.height.eq(shape.height),
            ]
            for p in ports:
                port, segment = placed.port[p], segments[p]
                m.d.sync += [
                    port.used.eq((p < shape.segments) & (segment.lo < segment.hi)),
                    port.lo.eq(segment.lo),
                    port.hi.eq(segment.hi),
                    port.addr.eq(at0 + segment.offset),
                    port.x.eq(x + segment.x),
                    port.y.eq(y + segment.y),
                ]
        return valid, placed, active

    def _clip(self, m: Module, step: Signal, valid_in: Signal, placed: data.View) -> tuple[Signal, data.View]:
        """Cut each port's run of bytes to the image."""
        valid = Signal(name="clipped_valid")
        clipped = Signal(self._clipped_layout(), reset_less=True)
        with m.If(step):
            m.d.sync += valid.eq(valid_in)
            m.d.sync += [clipped[name].eq(placed[name]) for name in (*self._row_flags(), "pc")]
        for p in range(self._config.feed_ports):
            port, out = placed.port[p], clipped.port[p]
            length = port.hi - port.lo
            before = -port.x  # bytes left of the image, when positive
            behind = port.x + length - placed.line_bytes  # bytes right of it
            cut_left = placed.pad & port.x[-1]
            cut_right = placed.pad & (behind > 0)
            # Lines of no bytes have no inside; what is left between two cuts is never empty otherwise.
            inside = ~placed.pad | (~port.y[-1] & (port.y < placed.height) & (placed.line_bytes != 0))
            some = ~(cut_left & (before >= length)) & ~(cut_right & (behind >= length))
            with m.If(step):
                m.d.sync += [
                    out.used.eq(port.used),
                    out.read.eq(port.used & inside & some),
                    out.lo.eq(port.lo),
                    out.hi.eq(port.hi),
                    out.first.eq(port.lo + Mux(cut_left, before, 0)),
                    out.end.eq(port.hi - Mux(cut_right, behind, 0)),
                    out.addr.eq(port.addr + Mux(cut_left, before, 0)),
                ]
        return valid, clipped

    def _check(self, m: Module, step: Signal, valid_in: Signal, clipped: data.View) -> tuple[Signal, data.View]:
        """Refuse runs of bytes that leave VMEM."""
        valid = Signal(name="checked_valid")
        checked = Signal.like(clipped, name="checked", reset_less=True)
        m.d.sync += self.fault_valid.eq(0)
        with m.If(step):
            m.d.sync += [valid.eq(valid_in), checked.eq(clipped)]
        for p in reversed(range(self._config.feed_ports)):
            port = clipped.port[p]
            beyond = port.addr + (port.end - port.first).as_unsigned()[: self._lane_bits] > self._config.vmem_bytes
            with m.If(step & port.read & beyond):
                m.d.sync += [checked.port[p].read.eq(0), checked.port[p].used.eq(0)]
                with m.If(valid_in):
                    m.d.sync += [self.fault_valid.eq(1), self.fault.addr.eq(port.addr), self.fault.pc.eq(clipped.pc)]
        return valid, checked

    def _window(self, m: Module, step: Signal, valid: Signal, row: data.View, rows, wanted: list) -> None:
        """Find each port's bytes in its windows, or ask for another window; emit the row word."""
        width = self._config.word_bytes
        addr_bits = ceil_log2(self._config.vmem_bytes)
        word = Signal(self._word_layout())
        m.d.comb += [word[name].eq(row[name]) for name in self._row_flags()]
        m.d.comb += [rows.w_data.eq(word), rows.w_en.eq(step & valid)]
        for p, queue in enumerate(wanted):
            port, out = row.port[p], word.port[p]
            # The newest window, and whether the newest row began in the one before it, which this one continues.
            # Rows never go back to a window that a row has left: its slot may be on its way to other bytes.
            base = Signal(addr_bits, name=f"base{p}", reset_less=True)
            index = Signal(INDEX_BITS, name=f"index{p}")
            live = Signal(name=f"live{p}")
            behind = Signal(name=f"behind{p}", reset_less=True)

            length = (port.end - port.first).as_unsigned()[: self._lane_bits]
            ahead = Signal(signed(addr_bits + 1), name=f"ahead{p}")
            m.d.comb += ahead.eq(port.addr[:addr_bits] - base)
            offset_bits = ceil_log2(width)
            usable = live & ~row.first
            in_newest = usable & (ahead[offset_bits:] == 0)
            in_older = usable & behind & ahead[offset_bits:].all()
            fits = Signal(name=f"fits{p}")
            m.d.comb += fits.eq(ahead[:offset_bits] + length <= width)
            fresh = Signal(name=f"fresh{p}")
            more = Signal(name=f"more{p}")
            m.d.comb += [
                fresh.eq(~in_newest & ~in_older),
                more.eq(port.read & (fresh | (in_newest & ~fits))),
                out.used.eq(port.used),
                out.read.eq(port.read),
                out.more.eq(more),
                out.lo.eq(port.lo),
                out.hi.eq(port.hi),
                out.first.eq(port.first),
                out.end.eq(port.end),
                # In the older window the offset counts from there: ahead + width, the same low bits.
                out.window.eq(Mux(fresh, index + 1, Mux(in_newest, index, index - 1))),
                out.rotate.eq(Mux(fresh, 0, ahead[:offset_bits]) - port.first),
                queue.w_data.eq(Mux(fresh, port.addr, base + width)),
                queue.w_en.eq(step & valid & more),
            ]
            with m.If(step & valid):
                with m.If(row.first):
                    m.d.sync += live.eq(0)
                with m.If(port.read):
                    m.d.sync += [live.eq(1), behind.eq(in_older | (in_newest & ~fits))]
                    with m.If(more):
                        m.d.sync += [index.eq(index + 1), base.eq(queue.w_data)]

    def _issue(self, m: Module, rows, layout: data.StructLayout, front: Value) -> tuple[data.View, list, list]:
        """Take the next row when its bytes are there, or sure to be when the back half looks for them."""
        head = Signal(layout)
        ports = range(self._config.feed_ports)
        credits = [Signal(range(SLOTS + 1), name=f"credit{p}") for p in ports]
        tails = [Signal(INDEX_BITS, name=f"tail{p}") for p in ports]
        there = Signal()
        held = Signal()
        holds = head.swap & ~self.tile_ready
        if self._config.is_float:
            # So soon after the row before, whose sums may still be on the way to the accumulator row of this one's.
            since = Signal(range(self._config.acc_revisit + 1))
            with m.If(self.issue):
                m.d.sync += since.eq(0)
            with m.Elif(since != self._config.acc_revisit):
                m.d.sync += since.eq(since + 1)
            holds |= head.apart & (since != self._config.acc_revisit)
        m.d.comb += [
            head.eq(rows.r_data),
            there.eq(Cat(~head.port[p].more | (credits[p] != 0) for p in ports).all()),
            held.eq(holds),
            self.issue.eq(rows.r_rdy & there & ~held),
            self.issue_swap.eq(self.issue & head.swap),
            rows.r_en.eq(self.issue),
        ]
        with m.If(self.issue):
            m.d.comb += self.waits.eq(isa.Cause.BUSY)
        with m.Elif(rows.r_rdy & held):
            m.d.comb += self.waits.eq(isa.Cause.WEIGHTS)
        with m.Elif(rows.r_rdy | (rows.level != 0) | front):
            m.d.comb += self.waits.eq(isa.Cause.VMEM)
        with m.Else():
            m.d.comb += self.waits.eq(isa.Cause.IDLE)
        for p in ports:
            with m.If(self.issue & head.port[p].read):
                m.d.sync += tails[p].eq(head.port[p].window)
        return head, credits, tails

    def _access(self, m: Module, head: data.View, head_valid: Value, credits: list, tails: list,
                wanted: list) -> list[memory.Memory]:
        """Serve the ports' accesses, those that the next row waits for first, and collect the data."""
        ports = range(self._config.feed_ports)
        port_bits = max(1, ceil_log2(len(ports)))
        slot_bits = ceil_log2(SLOTS)
        request = self.act.req
        which = Signal(data.StructLayout({"port": port_bits, "slot": slot_bits}), reset_less=True)
        free = Signal()
        granted = Signal()
        m.d.comb += [granted.eq(request.valid & request.ready), free.eq(~request.valid | request.ready)]

        able, urgent = Signal(len(ports)), Signal(len(ports))
        numbers = [Signal(INDEX_BITS, name=f"number{p}", init=1) for p in ports]  # window of a port's next access
        for p in ports:
            # A window takes the slot of the one SLOTS before it, which no row to come may need.
            port = head.port[p]
            tail = Mux(self.issue & port.read, port.window, tails[p])
            open_slot = (numbers[p] - tail).as_unsigned()[:INDEX_BITS] < SLOTS
            m.d.comb += [
                able[p].eq(wanted[p].r_rdy & open_slot),
                urgent[p].eq(able[p] & head_valid & port.more & (credits[p] == 0)),
            ]
        choice = Mux(urgent.any(), urgent, able)
        lowest = choice & (~choice + 1)[: len(ports)]
        chosen = Signal(len(ports))
        m.d.comb += chosen.eq(lowest)

        with m.If(free):
            m.d.sync += request.valid.eq(chosen.any())
        for p in ports:
            m.d.comb += wanted[p].r_en.eq(free & chosen[p])
            with m.If(free & chosen[p]):
                m.d.sync += [
                    request.payload.addr.eq(wanted[p].r_data),
                    which.port.eq(p),
                    which.slot.eq(numbers[p]),
                    numbers[p].eq(numbers[p] + 1),
                ]
            m.d.sync += credits[p].eq(
                credits[p] + (granted & (which.port == p)) - (self.issue & head.port[p].more))

        arriving = which
        for stage in range(VMEM_LATENCY):
            arrives = Signal.like(which, name=f"arriving{stage}", reset_less=True)
            m.d.sync += arrives.eq(arriving)
            arriving = arrives
        slots = []
        for p in ports:
            m.submodules[f"slots{p}"] = slot = memory.Memory(shape=8 * self._config.word_bytes, depth=SLOTS, init=[])
            write = slot.write_port()
            m.d.comb += [
                write.en.eq(self.act.rsp_valid & (arriving.port == p)),
                write.addr.eq(arriving.slot),
                write.data.eq(self.act.rsp_data),
            ]
            slots.append(slot)
        return slots

    def _align(self, m: Module, head: data.View, slots: list[memory.Memory]) -> None:
        """Rotate every port's bytes to their lanes, fill in the padding. All of fixed latency."""
        lanes = self._config.row_bytes
        valid = Signal(FEED_LATENCY)
        swap = Signal(FEED_LATENCY)
        m.d.sync += [valid.eq(Cat(self.issue, valid)), swap.eq(Cat(self.issue_swap, swap))]
        taken, row = (Signal(self._word_layout(), name=name, reset_less=True) for name in ("taken", "aligning"))
        with m.If(self.issue):
            m.d.sync += taken.eq(head)
        with m.If(valid[0]):
            m.d.sync += row.eq(taken)

        turned, reads, pads = [], [], []
        for p, slot in enumerate(slots):
            port = row.port[p]
            this, behind = slot.read_port(domain="comb"), slot.read_port(domain="comb")
            m.d.comb += [this.addr.eq(port.window), behind.addr.eq(port.window + 1)]
            # The ring of both, rotated: from `rotate` on, which may lie in either.
            from_behind = port.rotate[-1]
            turned.append(window(
                m, f"turned{p}", Mux(from_behind, behind.data, this.data), Mux(from_behind, this.data, behind.data),
                port.rotate[:-1]))
            ours, whole = Signal(8 * lanes, name=f"ours{p}"), Signal(8 * lanes, name=f"whole{p}")
            with m.If(port.read):
                m.d.comb += ours.eq(bytes_below(port.end, lanes) & ~bytes_below(port.first, lanes))
            with m.If(port.used):
                m.d.comb += whole.eq(bytes_below(port.hi, lanes) & ~bytes_below(port.lo, lanes))
            reads.append(ours)
            pads.append(whole & ~ours)

        parts = [reduce(or_, pads) & row.zero_point.as_unsigned().replicate(lanes)]
        parts += [data_bytes & ours for data_bytes, ours in zip(turned, reads, strict=True)]
        result = Signal(self.a_data.shape(), name="a_row", reset_less=True)
        whole_row = reduce(or_, parts)
        if self._config.both:
            # An int8 operand enters in the low bits of its row's 16.
            lanes = Signal(8 * self._config.row_bytes, name="packed")
            bf16 = Signal(name="row_bf16", reset_less=True)
            m.d.comb += [lanes.eq(whole_row), self.a_bf16.eq(bf16)]
            whole_row = Mux(row.int8, spread(lanes, self._config.rows), lanes)
            with m.If(valid[1]):
                m.d.sync += bf16.eq(~row.int8)
        with m.If(valid[1]):
            m.d.sync += Value.cast(result).eq(whole_row)
        m.d.comb += [self.a_valid.eq(valid[-1]), self.a_swap.eq(swap[-1]), self.a_data.eq(result)]
