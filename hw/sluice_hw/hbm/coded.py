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

__all__ = ["CodedPortSignature", "EccCodec", "EventSignature", "decode_beats"]

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


def decode_beats(m: Module, config: ChipConfig, decoder: EccDecoder, port, event) -> tuple[Signal, Value]:
    """Deliver what a decoder gives on a port's ``read_data``, and report what was found in the beat that leaves.

    Returns
    -------
    first : Signal
        What goes with the beat in the decoder's first stage: valid, last, error, slice, beat. To be loaded by the
        caller where `enable` is set.
    enable : Value
        The stages move.
    """
    stages = [Signal(data.StructLayout({
        "valid": 1, "last": 1, "error": 1, "slice": ADDR_BITS, "beat": range(max(2, config.slice_beats)),
    }), name=f"stage{k}") for k in range(EccDecoder.LATENCY)]  # fmt: skip
    out = stages[-1]
    enable = ~out.valid | port.read_data.ready
    m.d.comb += [
        decoder.enable.eq(enable),
        port.read_data.valid.eq(out.valid), port.read_data.payload.last.eq(out.last),
        Value.cast(port.read_data.payload.data).eq(decoder.out_data),
        port.read_data.payload.error.eq(out.error | decoder.detected.any()),
        event.slice.eq(out.slice),
    ]  # fmt: skip
    with m.If(enable):
        m.d.sync += [b.eq(a) for a, b in zip(stages, stages[1:], strict=False)]
    worst = Mux(decoder.detected.any(), decoder.detected, decoder.corrected)
    for i in reversed(range(decoder.words)):
        with m.If(worst[i]):
            m.d.comb += event.word.eq(out.beat * decoder.words + i)
    with m.If(out.valid & port.read_data.ready & ~out.error):
        m.d.comb += [event.corrected.eq(sum(decoder.corrected)), event.detected.eq(sum(decoder.detected))]
    return stages[0], enable


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
        first, enable = decode_beats(m, config, decoder, port, event)
        beat = memory.read_data
        m.d.comb += [
            beat.ready.eq(enable),
            decoder.data.eq(Value.cast(beat.payload.data)), decoder.check.eq(beat.payload.check),
            position.step.eq(beat.valid & beat.ready), position.end.eq(beat.payload.last),
        ]  # fmt: skip
        with m.If(enable):
            m.d.sync += [
                first.valid.eq(beat.valid), first.last.eq(beat.payload.last), first.error.eq(beat.payload.error),
                first.slice.eq(position.slice), first.beat.eq(position.beat),
            ]  # fmt: skip

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
