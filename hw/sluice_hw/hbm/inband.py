"""ECC mode ``inband``: check bits in slices of their own, for a memory that has no room beside its data."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import ChipConfig
from ..interfaces import ADDR_BITS, SlicePortSignature
from ..ram import Ram1R1W
from .coded import EventSignature, decode_beats
from .ecc import EccDecoder, EccEncoder

__all__ = ["InbandCodec", "inband_slices"]

#: Data slices whose check bits fill one slice.
BLOCK = 8


def inband_slices(config: ChipConfig) -> int:
    """Slices that hold data: slice s has its check bits in eighth s % 8 of slice ``inband_slices + s // 8``."""
    return config.hbm_slices * BLOCK // (BLOCK + 1)


class InbandCodec(wiring.Component):
    """Serves trains one at a time, in pieces that share a slice of check bits.

    The check slice of a piece is read first, unless the last one used is the same or all of it is about to be written,
    and written after the data. A long train costs an eighth more than without; a single slice up to twice as much to
    read, four times to write. Latency depends on what was asked before. Data keep their addresses; check slices lie
    behind the last data slice.

    Parameters
    ----------
    config : ChipConfig
        Of at least 2 slices.

    Members
    -------
    port : In(SlicePortSignature(config))
    memory : Out(SlicePortSignature(config))
    event : Out(EventSignature(config))
    """

    def __init__(self, config: ChipConfig) -> None:
        if inband_slices(config) < 1:
            raise ValueError(f"In-band check bits need a memory of at least 2 slices, not {config.hbm_slices}")
        self._config = config
        super().__init__({
            "port": In(SlicePortSignature(config)), "memory": Out(SlicePortSignature(config)),
            "event": Out(EventSignature(config)),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        config, port, memory = self._config, self.port, self.memory
        width, beats, usable = config.hbm_beat_bytes, config.slice_beats, inband_slices(config)
        m.submodules.decoder = decoder = EccDecoder(beat_bytes=width)
        m.submodules.encoder = encoder = EccEncoder(beat_bytes=width)
        # A slice of check bits; a lane has those of one beat of data.
        m.submodules.checks = checks = Ram1R1W(depth=beats, width=8 * width, granularity=width)

        writing, failed = Signal(), Signal()
        at, left, piece = Signal(ADDR_BITS), Signal(16), Signal(range(BLOCK + 1))
        tag, tagged, bad_checks = Signal(ADDR_BITS), Signal(), Signal()
        index = Signal(range(beats + 1))  # of a beat of check bits
        where = Signal(range(BLOCK * beats))  # of a beat of data, in its block
        in_block, block = at[:3], Signal(ADDR_BITS)
        whole = Signal()
        m.d.comb += [
            block.eq(at >> 3),
            piece.eq(Mux(left > BLOCK - in_block, BLOCK - in_block, left)),
            whole.eq(piece == BLOCK),
        ]  # fmt: skip

        first, enable = decode_beats(m, config, decoder, port, self.event)
        reading, refusing = Signal(), Signal()
        came = memory.read_data
        slice_, beat = Signal(ADDR_BITS), Signal(range(max(2, beats)))
        m.d.comb += [
            decoder.data.eq(Value.cast(came.payload.data)),
            decoder.check.eq(checks.rdata.word_select(where[:3], width)),
        ]
        with m.If(enable):
            m.d.sync += [
                first.valid.eq((reading & came.valid) | refusing),
                first.last.eq(refusing | (came.payload.last & (left == piece))),
                first.error.eq(refusing | came.payload.error | bad_checks),
                first.slice.eq(slice_), first.beat.eq(beat),
            ]

        # Encoder: one beat held.
        full, feeding = Signal(), Signal()
        sent = memory.write_data
        space = feeding & (~full | sent.ready)
        to_take = Signal(range(BLOCK * beats + 1))
        m.d.comb += [encoder.enable.eq(space), encoder.data.eq(Value.cast(port.write_data.payload.data))]
        with m.If(space):
            m.d.sync += full.eq(port.write_data.valid & (to_take != 0))

        dropping = Signal(16 + (beats - 1).bit_length() + 1)
        with m.FSM():
            with m.State("IDLE"):
                # In turn when both ask.
                pick_write = port.write.valid & (~port.read.valid | ~writing)
                request = Mux(pick_write, port.write.payload.as_value(), port.read.payload.as_value())
                ask = data.View(port.read.payload.shape(), request)
                with m.If(port.write.valid | port.read.valid):
                    outside = (ask.count == 0) | (ask.slice + ask.count > usable)
                    m.d.comb += [port.write.ready.eq(pick_write), port.read.ready.eq(~pick_write)]
                    m.d.sync += [
                        writing.eq(pick_write), at.eq(ask.slice), left.eq(ask.count), failed.eq(outside),
                        dropping.eq(ask.count * beats), bad_checks.eq(0),
                    ]  # fmt: skip
                    with m.If(~outside):
                        m.next = "PIECE"
                    with m.Elif(pick_write):
                        m.next = "DROP"
                    with m.Else():
                        m.next = "REFUSE"
            with m.State("REFUSE"):
                m.d.comb += refusing.eq(1)
                with m.If(enable):
                    m.next = "IDLE"
            with m.State("DROP"):
                m.d.comb += port.write_data.ready.eq(dropping != 0)
                with m.If(dropping == 0):
                    m.next = "ANSWER"
                with m.Elif(port.write_data.valid):
                    m.d.sync += dropping.eq(dropping - 1)
            with m.State("PIECE"):
                m.d.sync += [
                    where.eq(in_block * beats), slice_.eq(at), beat.eq(0), index.eq(0),
                    to_take.eq(piece * beats),
                ]  # fmt: skip
                with m.If((tagged & (tag == block)) | (writing & whole)):
                    m.next = "ASK"
                with m.Else():
                    m.next = "CHECKS"
            with m.State("CHECKS"):
                m.d.comb += [
                    memory.read.valid.eq(1), memory.read.payload.slice.eq(usable + block),
                    memory.read.payload.count.eq(1),
                ]  # fmt: skip
                m.d.sync += tagged.eq(0)
                with m.If(memory.read.ready):
                    m.next = "CHECKS_DATA"
            with m.State("CHECKS_DATA"):
                m.d.comb += [
                    came.ready.eq(1), checks.waddr.eq(index), checks.wdata.eq(Value.cast(came.payload.data)),
                    checks.we.eq(came.valid.replicate(8)),
                ]  # fmt: skip
                with m.If(came.valid):
                    m.d.sync += [index.eq(index + 1), bad_checks.eq(bad_checks | came.payload.error)]
                    with m.If(came.payload.last):
                        m.next = "ASK"
            with m.State("ASK"):
                # The row of check bits that the first beat needs is read meanwhile.
                m.d.comb += [checks.re.eq(1), checks.raddr.eq(where >> 3)]
                m.d.sync += [tag.eq(block), tagged.eq(~bad_checks)]
                for ask in (memory.read.payload, memory.write.payload):
                    m.d.comb += [ask.slice.eq(at), ask.count.eq(piece)]
                m.d.comb += [memory.read.valid.eq(~writing), memory.write.valid.eq(writing)]
                with m.If(writing & memory.write.ready):
                    m.next = "WRITE"
                with m.If(~writing & memory.read.ready):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += [reading.eq(1), came.ready.eq(enable), checks.re.eq(1), checks.raddr.eq(where >> 3)]
                with m.If(came.valid & enable):
                    m.d.comb += checks.raddr.eq((where + 1) >> 3)
                    m.d.sync += [where.eq(where + 1), beat.eq(Mux(beat == beats - 1, 0, beat + 1))]
                    with m.If(beat == beats - 1):
                        m.d.sync += slice_.eq(slice_ + 1)
                    with m.If(came.payload.last):
                        m.d.sync += [at.eq(at + piece), left.eq(left - piece)]
                        m.next = "IDLE"
                        with m.If(left != piece):
                            m.next = "PIECE"
            with m.State("WRITE"):
                m.d.comb += [
                    feeding.eq(1), port.write_data.ready.eq(space & (to_take != 0)),
                    sent.valid.eq(full), Value.cast(sent.payload.data).eq(encoder.out_data),
                    checks.waddr.eq(where >> 3), checks.wdata.eq(encoder.out_check.replicate(8)),
                ]  # fmt: skip
                with m.If(port.write_data.valid & port.write_data.ready):
                    m.d.sync += to_take.eq(to_take - 1)
                with m.If(full & sent.ready):
                    m.d.comb += checks.we.eq(1 << where[:3])
                    m.d.sync += where.eq(where + 1)
                    with m.If(to_take == 0):
                        m.next = "WRITTEN"
            with m.State("WRITTEN"):
                m.d.comb += memory.write_done.ready.eq(1)
                with m.If(memory.write_done.valid):
                    m.d.sync += failed.eq(failed | memory.write_done.payload.error | bad_checks)
                    m.next = "SAVE"
            with m.State("SAVE"):
                m.d.comb += [
                    memory.write.valid.eq(1), memory.write.payload.slice.eq(usable + block),
                    memory.write.payload.count.eq(1), checks.re.eq(1), checks.raddr.eq(0),
                ]  # fmt: skip
                m.d.sync += index.eq(1)
                with m.If(memory.write.ready):
                    m.next = "SAVE_DATA"
            with m.State("SAVE_DATA"):
                m.d.comb += [sent.valid.eq(1), Value.cast(sent.payload.data).eq(checks.rdata)]
                with m.If(sent.ready):
                    m.d.comb += [checks.re.eq(index != beats), checks.raddr.eq(index)]
                    m.d.sync += index.eq(index + 1)
                    with m.If(index == beats):
                        m.next = "SAVED"
            with m.State("SAVED"):
                m.d.comb += memory.write_done.ready.eq(1)
                with m.If(memory.write_done.valid):
                    m.d.sync += [
                        failed.eq(failed | memory.write_done.payload.error), at.eq(at + piece), left.eq(left - piece),
                    ]  # fmt: skip
                    m.next = "ANSWER"
                    with m.If(left != piece):
                        m.next = "PIECE"
            with m.State("ANSWER"):
                m.d.comb += [port.write_done.valid.eq(1), port.write_done.payload.error.eq(failed)]
                with m.If(port.write_done.ready):
                    m.next = "IDLE"
        return m
