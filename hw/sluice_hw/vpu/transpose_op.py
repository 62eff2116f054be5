"""Op TRANSPOSE: a block of 16-bit elements goes from VMEM through a square of registers and back, transposed."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import Component, In, Out

from .. import isa
from ..config import ChipConfig
from ..feeder import access_fault_layout
from ..interfaces import ADDR_BITS, VMEM_LATENCY, VmemReadSignature, VmemWriteSignature
from ..lanes import lanes_below
from ..transpose import Transposer

__all__ = ["ELEMENT_BITS", "OPS", "TransposeOp", "transpose_layout"]

ELEMENT_BITS = 16
#: Rows that may be asked for and not yet in the square: the cycles of a read, and some for refused grants.
ROWS_AHEAD = 8
#: Ops that may be started and not completely written.
OPS = 4
SIZE_BITS = 11


def transpose_layout() -> data.StructLayout:
    """A TRANSPOSE for the engine: addresses, bytes from row to row, and the block's rows and elements of each."""
    pitch = signed(isa.STRIDE_BITS)
    return data.StructLayout({
        "src": ADDR_BITS, "dst": ADDR_BITS, "src_pitch": pitch, "dst_pitch": pitch, "k": SIZE_BITS, "n": SIZE_BITS,
        "pc": 16,
    })  # fmt: skip


class TransposeOp(Component):
    """Turns ``k`` rows of ``n`` elements at ``src + i * src_pitch`` into ``n`` rows of ``k`` elements at
    ``dst + j * dst_pitch``, a row per cycle.

    Ops overlap: while one is written the next is read. Who starts an op that reads what an earlier one writes waits
    for that one's ``done`` first. Within an op everything is read before anything is written, so that a block may be
    transposed in place.

    Parameters
    ----------
    config : ChipConfig
    emission : 'structural' or 'loop'
        How the square is emitted.

    Members
    -------
    start : In(stream of :func:`transpose_layout`)
        ``k`` and ``n`` are 1 to max(rows, cols) of the chip.
    source : Out(VmemReadSignature(word_bytes))
    result : Out(VmemWriteSignature(word_bytes))
    busy : Out(1)
        An op was started and not reported by ``done``.
    done : Out(1)
        The last row of an op was written: a read that is granted later sees it. Ops end in order.
    moves, waiting : Out(1)
        A read or a write is granted in this cycle; one asks and is not.
    fault_valid, fault : Out
        A row lies outside VMEM. It is not read and counts as zeros, or is not written; the op goes on and ends.

    Raises
    ------
    TypeError
        If ``config`` is not a ChipConfig.
    """

    def __init__(self, config: ChipConfig, *, emission: str = "structural") -> None:
        if not isinstance(config, ChipConfig):
            raise TypeError(f"config must be a ChipConfig, not {config!r}")
        self._config = config
        self._square = Transposer(size=max(config.rows, config.cols), width=ELEMENT_BITS, emission=emission)
        super().__init__({
            "start": In(stream.Signature(transpose_layout())),
            "source": Out(VmemReadSignature(config.word_bytes)),
            "result": Out(VmemWriteSignature(config.word_bytes)),
            "busy": Out(1),
            "done": Out(1),
            "moves": Out(1),
            "waiting": Out(1),
            "fault_valid": Out(1),
            "fault": Out(access_fault_layout()),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.square = square = self._square
        running = Signal(range(OPS + 1))
        starts = Signal()
        m.d.comb += [starts.eq(self.start.valid & self.start.ready), self.busy.eq(running != 0)]
        m.d.sync += running.eq(running + starts - self.done)
        bad_read = self._read(m, square, running)
        bad_write = self._write(m, square, starts)
        m.d.sync += self.fault_valid.eq(bad_read.valid | bad_write.valid)
        m.d.sync += self.fault.eq(Mux(bad_read.valid, bad_read.fault, bad_write.fault))
        reads, writes = self.source.req, self.result.req
        m.d.comb += [
            self.moves.eq((reads.valid & reads.ready) | (writes.valid & writes.ready)),
            self.waiting.eq((reads.valid & ~reads.ready) | (writes.valid & ~writes.ready)),
        ]
        return m

    @staticmethod
    def _fault(name: str) -> data.View:
        return Signal(data.StructLayout({"valid": 1, "fault": access_fault_layout()}), name=name)

    def _beyond(self, addr: Value, elements: Value) -> Value:
        return addr + (elements << 1) > self._config.vmem_bytes

    def _read(self, m: Module, square: Transposer, running: Signal) -> data.View:
        """VMEM to the square."""
        row_shape = square.input.payload.shape()
        m.submodules.rows = rows = SyncFIFOBuffered(width=row_shape.size, depth=ROWS_AHEAD)
        active, block = Signal(), Signal(transpose_layout(), reset_less=True)
        left = Signal(SIZE_BITS, reset_less=True)
        asked_valid, asked_real = Signal(), Signal(reset_less=True)
        asked = Signal(data.StructLayout({"addr": ADDR_BITS, "k": SIZE_BITS, "n": SIZE_BITS}), reset_less=True)
        request = self.source.req
        done, walk, ends, real = Signal(), Signal(), Signal(), Signal()
        # Rows between here and the square; what is asked for must find room.
        ahead = Signal(range(ROWS_AHEAD + 1))
        m.d.comb += [
            request.valid.eq(asked_valid & asked_real), request.payload.addr.eq(asked.addr),
            done.eq(asked_valid & (request.ready | ~asked_real)),
            walk.eq(active & (ahead != ROWS_AHEAD) & (~asked_valid | done)),
            ends.eq(walk & (left == 1)),
            real.eq(~self._beyond(block.src, block.n)),
            self.start.ready.eq((~active | ends) & (running != OPS)),
        ]
        m.d.sync += ahead.eq(ahead + walk - (rows.r_en & rows.r_rdy))
        with m.If(walk):
            m.d.sync += [
                asked_real.eq(real), asked.addr.eq(block.src), asked.k.eq(block.k), asked.n.eq(block.n),
                block.src.eq(block.src + block.src_pitch), left.eq(left - 1),
            ]
        with m.If(walk | done):
            m.d.sync += asked_valid.eq(walk)
        with m.If(ends):
            m.d.sync += active.eq(0)
        with m.If(self.start.valid & self.start.ready):
            m.d.sync += [active.eq(1), block.eq(self.start.payload), left.eq(self.start.payload.k)]

        arrived, real_too, k, n = done, asked_real, asked.k, asked.n
        for stage in range(VMEM_LATENCY):
            now = arrived, real_too, k, n
            arrived = Signal(name=f"arrived{stage}")
            real_too = Signal(name=f"arrived_real{stage}", reset_less=True)
            k, n = (Signal(SIZE_BITS, name=f"arrived_{name}{stage}", reset_less=True) for name in "kn")
            m.d.sync += [later.eq(value) for later, value in zip((arrived, real_too, k, n), now, strict=True)]
        entering = data.View(row_shape, rows.w_data)
        out = data.View(row_shape, rows.r_data)
        m.d.comb += [
            rows.w_en.eq(arrived), entering.rows.eq(k), entering.cols.eq(n),
            entering.row.eq(Mux(real_too, self.source.rsp_data.as_value(), 0)),
            square.input.valid.eq(rows.r_rdy), square.input.payload.eq(out), rows.r_en.eq(square.input.ready),
        ]
        bad = self._fault("bad_read")
        m.d.comb += [bad.valid.eq(walk & ~real), bad.fault.addr.eq(block.src), bad.fault.pc.eq(block.pc)]
        return bad

    def _write(self, m: Module, square: Transposer, starts: Value) -> data.View:
        """The square to VMEM."""
        kept = transpose_layout()
        m.submodules.blocks = blocks = SyncFIFOBuffered(width=kept.size, depth=OPS)
        block = data.View(kept, blocks.r_data)
        begun, next_addr = Signal(), Signal(ADDR_BITS, reset_less=True)
        addr, beyond = Signal(ADDR_BITS), Signal()
        put, put_real, put_last = Signal(), Signal(reset_less=True), Signal(reset_less=True)
        written, take = Signal(), Signal()
        request = self.result.req
        out = square.output
        m.d.comb += [
            blocks.w_en.eq(starts), blocks.w_data.eq(self.start.payload),
            addr.eq(Mux(begun, next_addr, block.dst)), beyond.eq(self._beyond(addr, block.k)),
            request.valid.eq(put & put_real), written.eq(put & (request.ready | ~put_real)),
            out.ready.eq(~put | written), take.eq(out.valid & out.ready),
            blocks.r_en.eq(take & out.payload.last),
            self.done.eq(written & put_last),
        ]
        with m.If(written | take):
            m.d.sync += put.eq(take)
        size = len(out.payload.row) // ELEMENT_BITS
        lanes = lanes_below(block.k, size)
        payload = Signal(request.payload.shape(), reset_less=True)
        with m.If(take):
            m.d.sync += [
                begun.eq(~out.payload.last), next_addr.eq(addr + block.dst_pitch),
                put_real.eq(~beyond), put_last.eq(out.payload.last),
                payload.addr.eq(addr), payload.data.as_value().eq(out.payload.row),
                payload.mask.eq(Cat(lane.replicate(2) for lane in lanes)),
            ]
        m.d.comb += request.payload.eq(payload)
        bad = self._fault("bad_write")
        m.d.comb += [bad.valid.eq(take & beyond), bad.fault.addr.eq(addr), bad.fault.pc.eq(block.pc)]
        return bad
