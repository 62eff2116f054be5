"""Trains of slices on their way into the controller and back: requests, read beats, write beats, answers."""

from __future__ import annotations

from amaranth import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..config import ChipConfig
from ..interfaces import ADDR_BITS
from ..ram import Ram1R1W
from .dram_config import DramConfig

__all__ = ["ReadAnswers", "TrainQueue", "WriteBeats", "answer_layout"]

#: Trains of a kind that wait for their turn, and those whose answer is not complete.
WAITING, OPEN = 4, 8


def answer_layout() -> data.StructLayout:
    """What the answering side keeps of a train."""
    return data.StructLayout({"count": 16, "refused": 1})


class TrainQueue(wiring.Component):
    """Requests of one kind, taken apart into slices. Refused trains go to the answering side only.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    request : In(stream of slice, count)
    lo, hi : In(32)
        Slices that requests may touch: lo to hi - 1, inside the memory.
    answer : Out(stream of answer_layout())
        Every train, in the cycle of its request.
    valid, slice, last : Out
        The slice whose turn it is; ``last`` of its train.
    take : In(1)
    """

    def __init__(self, config: ChipConfig) -> None:
        self._config = config
        super().__init__({
            "request": In(stream.Signature(data.StructLayout({"slice": ADDR_BITS, "count": 16}))),
            "lo": In(ADDR_BITS), "hi": In(ADDR_BITS), "answer": Out(stream.Signature(answer_layout())),
            "valid": Out(1), "slice": Out(ADDR_BITS), "last": Out(1),
            "take": In(1),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        request, answer = self.request, self.answer
        train_layout = data.StructLayout({"slice": ADDR_BITS, "left": 16})
        m.submodules.queue = queue = SyncFIFOBuffered(width=train_layout.size, depth=WAITING)
        new, behind = Signal(train_layout), data.View(train_layout, queue.r_data)
        end = Signal(ADDR_BITS + 1)
        above = Signal(signed(ADDR_BITS + 1))  # the sign says it, also where `lo` is a constant 0
        refused = Signal()
        m.d.comb += [
            end.eq(request.payload.slice + request.payload.count), above.eq(request.payload.slice - self.lo),
            refused.eq(
                (request.payload.count == 0) | above[-1] | (end > self.hi)
                | (end > self._config.hbm_slices)
            ),
            request.ready.eq(queue.w_rdy & answer.ready),
            answer.valid.eq(request.valid & queue.w_rdy),
            answer.payload.count.eq(request.payload.count), answer.payload.refused.eq(refused),
            new.slice.eq(request.payload.slice), new.left.eq(request.payload.count),
            queue.w_data.eq(new), queue.w_en.eq(request.valid & request.ready & ~refused),
        ]  # fmt: skip
        train = Signal(train_layout, reset_less=True)
        active = Signal()
        m.d.comb += [
            self.valid.eq(active),
            self.slice.eq(train.slice),
            self.last.eq(train.left == 1),
            queue.r_en.eq(queue.r_rdy & (~active | (self.take & self.last))),
        ]
        with m.If(self.take):
            m.d.sync += [train.slice.eq(train.slice + 1), train.left.eq(train.left - 1)]
            with m.If(self.last):
                m.d.sync += active.eq(0)
        with m.If(queue.r_en):
            m.d.sync += [active.eq(1), train.eq(behind)]
        return m


def beat_layout(config: DramConfig, **more: int) -> data.StructLayout:
    """A beat on the slice port, with check bits or without."""
    check = {"check": config.check_bits} if config.coded else {}
    return data.StructLayout({"data": data.ArrayLayout(8, config.chip.hbm_beat_bytes), **more, **check})


class ReadAnswers(wiring.Component):
    """Beats of granted slices, which come when they come, out to whoever takes them when he likes.

    Parameters
    ----------
    config : DramConfig

    Members
    -------
    train : In(stream of answer_layout())
    reserve : In(1)
        A slice is granted: room for its beats is taken.
    room : Out(1)
        There is room for a slice.
    push, data, error : In
        A beat of a granted slice.
    out : Out(stream)
        ``read_data`` of the slice port.
    busy : Out(1)
        Something is not yet answered.
    """

    def __init__(self, config: DramConfig) -> None:
        self._config = config
        self._width = beat_layout(config).size
        super().__init__({
            "train": In(stream.Signature(answer_layout())), "reserve": In(1), "room": Out(1),
            "push": In(1), "data": In(self._width), "error": In(1),
            "out": Out(stream.Signature(beat_layout(config, last=1, error=1))), "busy": Out(1),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        beats, width = self._config.chip.slice_beats, self._width
        plain = 8 * self._config.chip.hbm_beat_bytes
        depth = 2 * beats
        m.submodules.memory = ram = Ram1R1W(depth=depth, width=width + 1)
        m.submodules.trains = trains = SyncFIFOBuffered(width=answer_layout().size, depth=OPEN)
        train = data.View(answer_layout(), trains.r_data)
        out = self.out
        read_at, write_at = Signal(range(depth)), Signal(range(depth))
        held, shown, free = Signal(range(depth + 1)), Signal(), Signal(range(depth + 1), init=depth)
        fetch, given = Signal(), Signal()
        beat, slice_ = Signal(ceil_log2(beats)), Signal(16)
        beat_ends = beat == beats - 1
        train_ends = beat_ends & (slice_ == train.count - 1)
        m.d.comb += [
            self.train.ready.eq(trains.w_rdy),
            trains.w_en.eq(self.train.valid),
            trains.w_data.eq(self.train.payload),
            self.room.eq(free >= beats),
            self.busy.eq(trains.r_rdy),
            ram.we.eq(self.push),
            ram.waddr.eq(write_at),
            ram.wdata.eq(Cat(self.data, self.error)),
            # The RAM holds what it gave until its next read.
            fetch.eq((held != 0) & (~shown | given)),
            ram.re.eq(fetch),
            ram.raddr.eq(read_at),
            out.valid.eq(trains.r_rdy & (train.refused | shown)),
            Value.cast(out.payload.data).eq(ram.rdata[:plain]),
            out.payload.error.eq(train.refused | ram.rdata[width]),
            out.payload.last.eq(train.refused | train_ends),
            given.eq(trains.r_rdy & ~train.refused & shown & out.ready),
            trains.r_en.eq(out.valid & out.ready & out.payload.last),
        ]
        if self._config.coded:
            m.d.comb += out.payload.check.eq(ram.rdata[plain:width])
        m.d.sync += [
            held.eq(held + self.push - fetch),
            free.eq(free + given - Mux(self.reserve, beats, 0)),
        ]
        with m.If(self.push):
            m.d.sync += write_at.eq(write_at + 1)
        with m.If(fetch):
            m.d.sync += [read_at.eq(read_at + 1), shown.eq(1)]
        with m.Elif(given):
            m.d.sync += shown.eq(0)
        with m.If(given):
            m.d.sync += beat.eq(beat + 1)
            with m.If(beat_ends):
                m.d.sync += slice_.eq(Mux(train_ends, 0, slice_ + 1))
        return m


class WriteBeats(wiring.Component):
    """Beats of write trains, collected into whole slices before these may be granted; of refused trains, dropped.

    Parameters
    ----------
    config : DramConfig

    Members
    -------
    train : In(stream of answer_layout())
    beats : In(stream)
        ``write_data`` of the slice port.
    ready : Out(1)
        A slice is here that is not yet granted.
    grant : In(1)
    fetch : In(1)
        The next beat of granted slices is to stand on ``data`` in the next clock.
    data : Out
    done : In(1)
        A slice is written.
    failed : In(1)
        Answers tell of an error from now on.
    out : Out(stream)
        ``write_done`` of the slice port.
    busy : Out(1)
    """

    def __init__(self, config: DramConfig) -> None:
        self._config = config
        self._width = beat_layout(config).size
        super().__init__({
            "train": In(stream.Signature(answer_layout())),
            "beats": In(stream.Signature(beat_layout(config))),
            "ready": Out(1), "grant": In(1), "fetch": In(1), "data": Out(self._width),
            "done": In(1), "failed": In(1), "out": Out(stream.Signature(data.StructLayout({"error": 1}))),
            "busy": Out(1),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        beats, width = self._config.chip.slice_beats, self._width
        depth = 2 * beats
        m.submodules.memory = ram = Ram1R1W(depth=depth, width=width)
        size = answer_layout().size
        m.submodules.intake = intake = SyncFIFOBuffered(width=size, depth=OPEN)
        m.submodules.answers = answers = SyncFIFOBuffered(width=size, depth=OPEN)
        coming = data.View(answer_layout(), intake.r_data)
        answer = data.View(answer_layout(), answers.r_data)

        # Both queues take a train; the one that is emptied first may have more room.
        both = intake.w_rdy & answers.w_rdy
        m.d.comb += [
            self.train.ready.eq(both),
            intake.w_data.eq(self.train.payload), answers.w_data.eq(self.train.payload),
            intake.w_en.eq(self.train.valid & both & (self.train.payload.count != 0)),
            answers.w_en.eq(self.train.valid & both),
        ]  # fmt: skip

        read_at, write_at = Signal(range(depth)), Signal(range(depth))
        held, whole = Signal(range(depth + 1)), Signal(range(4))
        taken, kept = Signal(), Signal()
        beat, slice_ = Signal(ceil_log2(beats)), Signal(16)
        slice_ends = beat == beats - 1
        train_ends = slice_ends & (slice_ == coming.count - 1)
        m.d.comb += [
            self.beats.ready.eq(intake.r_rdy & (coming.refused | (held != depth))),
            taken.eq(self.beats.valid & self.beats.ready),
            kept.eq(taken & ~coming.refused),
            intake.r_en.eq(taken & train_ends),
            ram.we.eq(kept),
            ram.waddr.eq(write_at),
            ram.wdata.eq(self.beats.payload),
            ram.re.eq(self.fetch),
            ram.raddr.eq(read_at),
            self.data.eq(ram.rdata),
            self.ready.eq(whole != 0),
        ]
        m.d.sync += [
            held.eq(held + kept - self.fetch),
            whole.eq(whole + (kept & slice_ends) - self.grant),
        ]
        with m.If(taken):
            m.d.sync += beat.eq(beat + 1)
            with m.If(slice_ends):
                m.d.sync += slice_.eq(Mux(train_ends, 0, slice_ + 1))
        with m.If(kept):
            m.d.sync += write_at.eq(write_at + 1)
        with m.If(self.fetch):
            m.d.sync += read_at.eq(read_at + 1)

        # A train is answered when as many slices are written.
        written, reported = Signal(20), Signal()
        offered, offered_error = Signal(), Signal(reset_less=True)
        m.d.sync += [offered.eq(self.out.valid & ~self.out.ready), offered_error.eq(self.out.payload.error)]
        complete = answer.refused | (written >= answer.count)
        m.d.comb += [
            self.out.valid.eq(answers.r_rdy & complete),
            # An answer that waits stays what it is.
            self.out.payload.error.eq(answer.refused | Mux(offered, offered_error, self.failed)),
            reported.eq(self.out.valid & self.out.ready),
            answers.r_en.eq(reported),
            self.busy.eq(answers.r_rdy),
        ]
        m.d.sync += written.eq(written + self.done - Mux(reported & ~answer.refused, answer.count, 0))
        return m
