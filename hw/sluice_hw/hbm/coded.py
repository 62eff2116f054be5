"""The slice port with check bits beside the data, and the codec between it and the plain one."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, Signature

from ..config import ChipConfig
from ..interfaces import ADDR_BITS, SlicePortSignature
from .ecc import EccDecoder, EccEncoder
from .hsiao import CHECK_BITS
from .position import Position

__all__ = ["CodedPortSignature", "EccCodec", "EventSignature"]

#: Read trains whose place is remembered, as in the arbiter.
READS = 64


class CodedPortSignature(Signature):
    """As :class:`~sluice_hw.interfaces.SlicePortSignature`, with a byte of check bits for each 64-bit word."""

    def __init__(self, config: ChipConfig) -> None:
        plain = SlicePortSignature(config).members
        beat, check = data.ArrayLayout(8, config.hbm_beat_bytes), config.hbm_beat_bytes // 8 * CHECK_BITS
        super().__init__({
            **plain,
            "read_data": In(stream.Signature(
                data.StructLayout({"data": beat, "last": 1, "error": 1, "check": check}))),
            "write_data": Out(stream.Signature(data.StructLayout({"data": beat, "check": check}))),
        })  # fmt: skip


class EventSignature(Signature):
    """Errors found in a beat that is transferred in this cycle: how many words, where the first of them lies."""

    def __init__(self, config: ChipConfig) -> None:
        words = config.hbm_beat_bytes // 8
        super().__init__({
            "corrected": Out(range(words + 1)), "detected": Out(range(words + 1)),
            "slice": Out(ADDR_BITS), "word": Out(range(max(2, config.slice_bytes // 8))),
        })  # fmt: skip


class EccCodec(wiring.Component):
    """Encodes what is written and decodes what is read, a beat a cycle, without a bubble.

    Read data come :attr:`EccDecoder.LATENCY` cycles later than from the memory, write data reach it
    :attr:`EccEncoder.LATENCY` cycles later, whatever is wrong with them. A beat with a word that cannot be corrected
    is delivered with ``error`` set; the train goes on.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    port : In(SlicePortSignature(config))
    memory : Out(CodedPortSignature(config))
    event : Out(EventSignature(config))
    """

    def __init__(self, config: ChipConfig) -> None:
        self._config = config
        super().__init__({
            "port": In(SlicePortSignature(config)), "memory": Out(CodedPortSignature(config)),
            "event": Out(EventSignature(config)),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        config, port, memory, event = self._config, self.port, self.memory, self.event
        width = config.hbm_beat_bytes
        m.submodules.decoder = decoder = EccDecoder(beat_bytes=width)
        m.submodules.encoder = encoder = EccEncoder(beat_bytes=width)
        m.submodules.position = position = Position(config, depth=READS)

        # Reads.
        m.d.comb += [
            memory.read.valid.eq(port.read.valid & position.room), memory.read.payload.eq(port.read.payload),
            port.read.ready.eq(memory.read.ready & position.room),
            position.push.eq(memory.read.valid & memory.read.ready),
            position.first.eq(port.read.payload.slice), position.count.eq(port.read.payload.count),
        ]  # fmt: skip
        stages = [Signal(data.StructLayout({
            "valid": 1, "last": 1, "error": 1, "slice": ADDR_BITS, "beat": len(position.beat),
        }), name=f"stage{k}") for k in range(EccDecoder.LATENCY)]  # fmt: skip
        out, beat = stages[-1], memory.read_data
        enable = ~out.valid | port.read_data.ready
        m.d.comb += [
            beat.ready.eq(enable), decoder.enable.eq(enable),
            decoder.data.eq(Value.cast(beat.payload.data)), decoder.check.eq(beat.payload.check),
            position.step.eq(beat.valid & beat.ready), position.end.eq(beat.payload.last),
            port.read_data.valid.eq(out.valid), port.read_data.payload.last.eq(out.last),
            Value.cast(port.read_data.payload.data).eq(decoder.out_data),
            port.read_data.payload.error.eq(out.error | decoder.detected.any()),
        ]  # fmt: skip
        with m.If(enable):
            m.d.sync += [
                stages[0].valid.eq(beat.valid), stages[0].last.eq(beat.payload.last),
                stages[0].error.eq(beat.payload.error), stages[0].slice.eq(position.slice),
                stages[0].beat.eq(position.beat), *(b.eq(a) for a, b in zip(stages, stages[1:], strict=False)),
            ]  # fmt: skip

        # What was found in the beat that leaves.
        leaves = out.valid & port.read_data.ready & ~out.error
        worst = Mux(decoder.detected.any(), decoder.detected, decoder.corrected)
        m.d.comb += event.slice.eq(out.slice)
        for i in reversed(range(decoder.words)):
            with m.If(worst[i]):
                m.d.comb += event.word.eq(out.beat * decoder.words + i)
        with m.If(leaves):
            m.d.comb += [event.corrected.eq(sum(decoder.corrected)), event.detected.eq(sum(decoder.detected))]

        # Writes.
        full = Signal()
        send = memory.write_data
        move = ~full | send.ready
        m.d.comb += [
            memory.write.valid.eq(port.write.valid), memory.write.payload.eq(port.write.payload),
            port.write.ready.eq(memory.write.ready),
            port.write_data.ready.eq(move), encoder.enable.eq(move),
            encoder.data.eq(Value.cast(port.write_data.payload.data)),
            send.valid.eq(full), Value.cast(send.payload.data).eq(encoder.out_data),
            send.payload.check.eq(encoder.out_check),
            port.write_done.valid.eq(memory.write_done.valid), port.write_done.payload.eq(memory.write_done.payload),
            memory.write_done.ready.eq(port.write_done.ready),
        ]  # fmt: skip
        with m.If(move):
            m.d.sync += full.eq(port.write_data.valid)
        return m
