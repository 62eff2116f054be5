"""AXI4 subordinate: the host's data port to HBM and the microcode store."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out

from .. import csr
from ..config import ChipConfig
from ..interfaces import ADDR_BITS
from ..sequencer import UcodePortSignature
from .ports import Burst, Resp, axi4_members
from .slice_buffer import WORD_BYTES

__all__ = ["HostAxi"]

_READ_AHEAD = 4


class HostAxi(wiring.Component):
    """Serves one burst at a time, reads and writes in turn when both wait, a beat a cycle while the slice is here.

    Address map: :class:`csr.HostMap`. Bursts are INCR of up to 256 beats of 8 bytes at addresses that are multiples of
    8. A burst of another type or size, unaligned, or reaching outside of one window answers SLVERR and moves nothing. A
    beat whose strobes are not all set makes the burst's answer SLVERR; it and those behind it are not written, those
    before it may have been. When HBM refuses to read a slice, that beat and those behind it answer SLVERR.

    While a program runs (``running``), every burst goes through to memory before the next; whether it comes before or
    after what the program does is open, and a write of part of a slice writes back the rest of it as it was read.

    Parameters
    ----------
    config : ChipConfig
    id_bits : int
        Width of AXI ids.

    Members
    -------
    s_axi_* : AXI4, 64 bits of data
    running : In(1)
    flush, flushed : In, Out
        Held until ``flushed``: bring all that was written to HBM and forget what was read.
    ucode : Out(UcodePortSignature)
    want, slice, fresh, hit, failed, word, write, write_data, read, read_data, discard, flush_buffer, buffer_flushed
        To the :class:`~.slice_buffer.SliceBuffer`, as there.
    """

    def __init__(self, *, config: ChipConfig, id_bits: int = 4) -> None:
        if not isinstance(id_bits, int) or isinstance(id_bits, bool):
            raise TypeError(f"id_bits must be an integer, not {id_bits!r}")
        if not 1 <= id_bits <= 32:
            raise ValueError(f"id_bits must be 1 to 32, not {id_bits}")
        self._config = config
        self._id_bits = id_bits
        super().__init__({
            **axi4_members(id_bits),
            "running": In(1),
            "flush": In(1),
            "flushed": Out(1),
            "ucode": Out(UcodePortSignature(config)),
            "want": Out(1),
            "slice": Out(ADDR_BITS),
            "fresh": Out(1),
            "hit": In(1),
            "failed": In(1),
            "word": Out(range(config.slice_bytes // WORD_BYTES)),
            "write": Out(1),
            "write_data": Out(64),
            "read": Out(1),
            "read_data": In(64),
            "discard": Out(1),
            "flush_buffer": Out(1),
            "buffer_flushed": In(1),
        })

    @property
    def config(self) -> ChipConfig:
        return self._config

    @property
    def id_bits(self) -> int:
        return self._id_bits

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self.config
        slice_words = config.slice_bytes // WORD_BYTES
        slice_bits = slice_words.bit_length() - 1

        # -- the burst being served -------------------------------------------------------------------------------
        burst_id = Signal(self.id_bits)
        place = Signal(csr.HostMap.ADDRESS_BITS - 3)  # address of the beat, in words of 8 bytes
        left = Signal(9)  # beats to go
        refused = Signal()  # the rest of the burst moves nothing
        error = Signal()
        in_ucode = Signal()
        write_next = Signal()
        writing = Signal()
        flush_due = Signal()
        was_running = Signal()

        def begin(x: str) -> None:
            def sig(name: str):
                return getattr(self, f"s_axi_{x}{name}")

            word = sig("addr")[3:]
            last = Signal(csr.HostMap.ADDRESS_BITS - 2, name=f"{x}_last")
            base = csr.HostMap.UCODE_BASE >> 3
            in_hbm = Signal(name=f"{x}_in_hbm")
            in_store = Signal(name=f"{x}_in_store")
            m.d.comb += [
                last.eq(word + sig("len")),
                in_hbm.eq(last < config.hbm_bytes >> 3),
                in_store.eq((word >= base) & (last < base + (config.microcode_words << 2))),
            ]
            bad = (sig("size") != 3) | (sig("burst") != Burst.INCR) | sig("addr")[:3].any() | ~(in_hbm | in_store)
            m.d.sync += [
                burst_id.eq(sig("id")), place.eq(word), left.eq(sig("len") + 1), in_ucode.eq(in_store),
                refused.eq(bad), error.eq(bad),
            ]

        m.d.comb += [
            self.slice.eq(place >> slice_bits),
            self.word.eq(place),
            self.write_data.eq(self.s_axi_wdata),
            self.fresh.eq(writing & (place[:slice_bits] == 0) & (left >= slice_words)),
            self.ucode.req.payload.addr.eq(place >> 2),
            self.ucode.req.payload.lane.eq(place),
            self.ucode.req.payload.data.eq(self.s_axi_wdata),
        ]
        step = Signal()
        with m.If(step):
            m.d.sync += [place.eq(place + 1), left.eq(left - 1)]
        m.d.sync += was_running.eq(self.running)
        with m.If(was_running & ~self.running):
            m.d.sync += flush_due.eq(1)

        # -- read data on their way out --------------------------------------------------------------------------
        answer = data.StructLayout({"id": self.id_bits, "data": 64, "resp": 2, "last": 1})
        m.submodules.answers = answers = fifo.SyncFIFOBuffered(width=answer.size, depth=_READ_AHEAD)
        out = data.View(answer, answers.r_data)
        m.d.comb += [
            self.s_axi_rvalid.eq(answers.r_rdy),
            answers.r_en.eq(self.s_axi_rready),
            self.s_axi_rid.eq(out.id),
            self.s_axi_rdata.eq(out.data),
            self.s_axi_rresp.eq(out.resp),
            self.s_axi_rlast.eq(out.last),
        ]
        coming = Signal()  # a beat was read in the last cycle: its data are here now
        coming_as = Signal(answer)
        filled = data.View(answer, answers.w_data)
        m.d.sync += coming.eq(0)
        m.d.comb += [answers.w_en.eq(coming), answers.w_data.eq(coming_as)]
        with m.If(coming_as.resp == Resp.OKAY):
            m.d.comb += filled.data.eq(Mux(in_ucode, self.ucode.rsp_data, self.read_data))
        room = answers.level + coming < _READ_AHEAD

        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.flush | flush_due):
                    m.d.comb += self.flush_buffer.eq(1)
                    with m.If(self.buffer_flushed):
                        m.d.comb += self.flushed.eq(self.flush)
                        m.d.sync += flush_due.eq(0)
                with m.Elif(self.s_axi_awvalid & (write_next | ~self.s_axi_arvalid)):
                    m.d.comb += self.s_axi_awready.eq(1)
                    m.d.sync += write_next.eq(0)
                    begin("aw")
                    m.next = "WRITE"
                with m.Elif(self.s_axi_arvalid):
                    m.d.comb += self.s_axi_arready.eq(1)
                    m.d.sync += write_next.eq(1)
                    begin("ar")
                    m.next = "READ"
            with m.State("WRITE"):
                m.d.comb += writing.eq(1)
                with m.If(self.s_axi_wvalid):
                    with m.If(refused):
                        m.d.comb += step.eq(1)
                    with m.Elif(~self.s_axi_wstrb.all()):
                        m.d.comb += [step.eq(1), self.discard.eq(1)]
                        m.d.sync += [error.eq(1), refused.eq(1)]
                    with m.Elif(in_ucode):
                        m.d.comb += [self.ucode.req.valid.eq(1), self.ucode.req.payload.write.eq(1)]
                        m.d.comb += step.eq(self.ucode.req.ready)
                    with m.Else():
                        m.d.comb += [self.want.eq(1), self.write.eq(self.hit), step.eq(self.hit)]
                        with m.If(self.failed):
                            m.d.sync += [error.eq(1), refused.eq(1)]
                m.d.comb += self.s_axi_wready.eq(step)
                with m.If(step & (left == 1)):
                    m.next = "RESPOND"
            with m.State("RESPOND"):
                m.d.comb += [
                    self.s_axi_bvalid.eq(1),
                    self.s_axi_bid.eq(burst_id),
                    self.s_axi_bresp.eq(Mux(error, Resp.SLVERR, Resp.OKAY)),
                ]
                with m.If(self.s_axi_bready):
                    with m.If(self.running):
                        m.d.sync += flush_due.eq(1)
                    m.next = "IDLE"
            with m.State("READ"):
                with m.If(room):
                    with m.If(refused):
                        m.d.comb += step.eq(1)
                    with m.Elif(in_ucode):
                        m.d.comb += [self.ucode.req.valid.eq(1), step.eq(self.ucode.req.ready)]
                    with m.Else():
                        m.d.comb += [self.want.eq(1), self.read.eq(self.hit), step.eq(self.hit)]
                        with m.If(self.failed):
                            m.d.sync += refused.eq(1)
                with m.If(step):
                    m.d.sync += [
                        coming.eq(1),
                        coming_as.id.eq(burst_id),
                        coming_as.resp.eq(Mux(refused, Resp.SLVERR, Resp.OKAY)),
                        coming_as.last.eq(left == 1),
                    ]
                    with m.If(left == 1):
                        with m.If(self.running):
                            m.d.sync += flush_due.eq(1)
                        m.next = "IDLE"
        return m
