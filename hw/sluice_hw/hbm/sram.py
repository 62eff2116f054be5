"""SRAM back end of the slice port: HBM of the configured width, rate and latency, and nothing of its schedule."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for, ceil_log2

from .. import isa
from ..config import ChipConfig
from ..interfaces import SlicePortSignature
from ..ram import Ram1RW

__all__ = ["SliceMemory"]

#: Write trains accepted and not begun, and answers not taken.
WRITES = 4


class SliceMemory(wiring.Component):
    """Serves slice trains from a RAM of one beat a row, which is the instance ``memory.ram``.

    The first beat of a read train stands on the port ``hbm_latency`` cycles after the request's transfer, or later
    when earlier trains are not through; the latencies of trains overlap. One beat a cycle at most moves to or from the
    RAM, whichever way; when both ways want it they alternate. Where ``hbm_bytes_per_cycle`` is less than a beat, any w
    cycles see at most w x ``hbm_bytes_per_cycle`` / ``hbm_beat_bytes`` beats, rounded up, and as many, rounded down,
    while beats are always wanted. Trains that reach beyond the memory, and trains of no slices, are refused.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    port : In(SlicePortSignature(config))
    state : Out(isa.Cause)
        BUSY when a beat moves, HBM when a request is open and none does, else IDLE.
    """

    def __init__(self, config: ChipConfig) -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self._config = config
        super().__init__({"port": In(SlicePortSignature(config)), "state": Out(isa.Cause)})

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        config, port = self._config, self.port
        beats = config.slice_beats
        rows = config.hbm_slices * beats
        m.submodules.memory = ram = Ram1RW(depth=rows, width=8 * config.hbm_beat_bytes)
        row_bits, left_bits = ceil_log2(rows), 16 + ceil_log2(beats)
        # What is kept of a request: its first row, its beats, and whether it is refused.
        train_layout = data.StructLayout({"row": row_bits, "left": left_bits, "refused": 1})

        def train_of(request, name: str, *, one_beat_error: bool) -> Signal:
            train = Signal(train_layout, name=name)
            refused = (request.count == 0) | (request.slice + request.count > config.hbm_slices)
            m.d.comb += [
                train.refused.eq(refused),
                train.row.eq(request.slice << ceil_log2(beats)),
                train.left.eq(Mux(refused, 1, request.count << ceil_log2(beats)) if one_beat_error
                              else request.count << ceil_log2(beats)),
            ]  # fmt: skip
            return train

        # Reads wait in a queue; a bit that travels down a delay line with each says when it is ripe.
        depth = min(64, config.hbm_latency // beats + 4)
        m.submodules.reads = reads = SyncFIFO(width=train_layout.size, depth=depth)
        delay = Signal(config.hbm_latency - 2)
        ripe_count = Signal(range(depth + 1))
        accepted, ripe, begin_read = Signal(), Signal(), Signal()
        m.d.comb += [
            port.read.ready.eq(reads.w_rdy),
            accepted.eq(port.read.valid & port.read.ready),
            reads.w_en.eq(accepted),
            reads.w_data.eq(train_of(port.read.payload, "read_request", one_beat_error=True)),
            ripe.eq(delay[-1] | (ripe_count != 0)),
            reads.r_en.eq(begin_read),
        ]
        m.d.sync += [delay.eq(Cat(accepted, delay[:-1])), ripe_count.eq(ripe_count + delay[-1] - begin_read)]

        read, reading = Signal(train_layout, reset_less=True), Signal()
        read_bus, read_ends, write_bus = Signal(), Signal(), Signal()
        out_valid, out_last, out_error = Signal(), Signal(reset_less=True), Signal(reset_less=True)
        due = self._due(m, read_bus | write_bus)
        can_read = due & reading & (~out_valid | port.read_data.ready)
        m.d.comb += [
            read_ends.eq(read_bus & (read.left == 1)),
            begin_read.eq(ripe & (~reading | read_ends)),
            port.read_data.valid.eq(out_valid),
            # The RAM holds what it gave until its next read.
            Value.cast(port.read_data.payload.data).eq(ram.rdata),
            port.read_data.payload.last.eq(out_last),
            port.read_data.payload.error.eq(out_error),
        ]
        with m.If(read_bus):
            m.d.sync += [
                read.row.eq(read.row + 1), read.left.eq(read.left - 1),
                out_last.eq(read.left == 1), out_error.eq(read.refused),
            ]  # fmt: skip
        with m.If(begin_read):
            m.d.sync += [reading.eq(1), read.eq(reads.r_data)]
        with m.Elif(read_ends):
            m.d.sync += reading.eq(0)
        with m.If(read_bus):
            m.d.sync += out_valid.eq(1)
        with m.Elif(port.read_data.ready):
            m.d.sync += out_valid.eq(0)

        # Writes: the beats of a refused train are taken and dropped.
        m.submodules.writes = writes = SyncFIFO(width=train_layout.size, depth=WRITES)
        m.submodules.dones = dones = SyncFIFO(width=1, depth=WRITES)
        write, writing = Signal(train_layout, reset_less=True), Signal()
        write_ends, begin_write = Signal(), Signal()
        can_write = due & writing & port.write_data.valid & (write.left != 0) & ((write.left != 1) | dones.w_rdy)
        m.d.comb += [
            port.write.ready.eq(writes.w_rdy),
            writes.w_en.eq(port.write.valid),
            writes.w_data.eq(train_of(port.write.payload, "write_request", one_beat_error=False)),
            write_ends.eq((write_bus & (write.left == 1)) | (writing & (write.left == 0) & dones.w_rdy)),
            begin_write.eq(writes.r_rdy & (~writing | write_ends)),
            writes.r_en.eq(begin_write),
            port.write_data.ready.eq(write_bus),
            dones.w_en.eq(write_ends), dones.w_data.eq(write.refused),
            port.write_done.valid.eq(dones.r_rdy), port.write_done.payload.error.eq(dones.r_data),
            dones.r_en.eq(port.write_done.ready),
        ]  # fmt: skip
        with m.If(write_bus):
            m.d.sync += [write.row.eq(write.row + 1), write.left.eq(write.left - 1)]
        with m.If(begin_write):
            m.d.sync += [writing.eq(1), write.eq(writes.r_data)]
        with m.Elif(write_ends):
            m.d.sync += writing.eq(0)

        read_was_last = Signal()
        m.d.comb += [
            read_bus.eq(can_read & ~(can_write & read_was_last)),
            write_bus.eq(can_write & ~read_bus),
            ram.en.eq((read_bus & ~read.refused) | (write_bus & ~write.refused)),
            ram.we.eq(write_bus),
            ram.addr.eq(Mux(write_bus, write.row, read.row)),
            ram.wdata.eq(Value.cast(port.write_data.payload.data)),
        ]
        with m.If(read_bus | write_bus):
            m.d.sync += read_was_last.eq(read_bus)

        with m.If(read_bus | write_bus):
            m.d.comb += self.state.eq(isa.Cause.BUSY)
        with m.Elif(reads.r_rdy | reading | out_valid | writes.r_rdy | writing | dones.r_rdy):
            m.d.comb += self.state.eq(isa.Cause.HBM)
        with m.Else():
            m.d.comb += self.state.eq(isa.Cause.IDLE)
        assert len(read.left) >= bits_for((1 << 16) * beats - 1)
        return m

    def _due(self, m: Module, moves: Value) -> Value:
        """Whether a beat may move in this cycle, given whether one does.

        Every cycle earns ``beats`` of ``cycles`` parts of a beat. What is unspent is kept up to one part less than a
        beat, which bounds the beats in any window of cycles, and loses nothing while beats are always wanted.
        """
        beats, cycles = self._config.hbm_beat_rate
        if beats == cycles:
            return Const(1, 1)
        earned = Signal(range(cycles), init=cycles - 1)
        total = Signal(range(cycles + beats))
        due = Signal()
        m.d.comb += [total.eq(earned + beats), due.eq(total >= cycles)]
        m.d.sync += earned.eq(Mux(due, Mux(moves, total - cycles, cycles - 1), total))
        return due
