"""Frames and greetings to words of the wire and back: adds the checksum, and checks it."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .crc import CRC_BITS, Crc
from .frame import HELLO_BITS, Kind, WireSignature, frame_layout, hello_layout, wire_bits
from .link_config import LinkConfig

__all__ = ["Decoder", "Encoder"]


class Encoder(wiring.Component):
    """One word of the wire per cycle, one cycle after its frame.

    Members
    -------
    enable : In(1)
        Send something.
    hello : In(1)
        Send the greeting instead of the frame.
    greeting : In(hello_layout())
    frame : In(frame_layout(config))
        Their ``kind`` and ``crc`` are set here, but for the frame's kind.
    wire : Out(WireSignature)
    """

    def __init__(self, config: LinkConfig) -> None:
        self.config = config
        super().__init__({
            "enable": In(1),
            "hello": In(1),
            "greeting": In(hello_layout()),
            "frame": In(frame_layout(config)),
            "wire": Out(WireSignature(wire_bits(config))),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        layout = frame_layout(self.config)
        bits = layout.size - CRC_BITS
        frame = Signal(bits)
        greeting = Signal(HELLO_BITS - CRC_BITS)
        m.d.comb += [
            frame.eq(self.frame.as_value()[:bits]),
            greeting.eq(Cat(Const(Kind.HELLO, 2), self.greeting.as_value()[2 : HELLO_BITS - CRC_BITS])),
        ]
        m.submodules.frame_crc = frame_crc = Crc(bits)
        m.submodules.greeting_crc = greeting_crc = Crc(len(greeting))
        m.d.comb += [frame_crc.message.eq(frame), greeting_crc.message.eq(greeting)]
        m.d.sync += [
            self.wire.valid.eq(self.enable),
            self.wire.word.eq(Mux(
                self.hello,
                Cat(greeting, greeting_crc.crc),
                Cat(frame, frame_crc.crc),
            )),
        ]
        return m


class Decoder(wiring.Component):
    """What a word of the wire is, two cycles after it.

    Members
    -------
    wire : In(WireSignature)
    hello, data, idle : Out(1)
        A valid greeting, a valid frame with or without a flit.
    bad : Out(1)
        A word that is none of them.
    greeting : Out(hello_layout())
    frame : Out(frame_layout(config))
    """

    def __init__(self, config: LinkConfig) -> None:
        self.config = config
        super().__init__({
            "wire": In(WireSignature(wire_bits(config))),
            "hello": Out(1),
            "data": Out(1),
            "idle": Out(1),
            "bad": Out(1),
            "greeting": Out(hello_layout()),
            "frame": Out(frame_layout(config)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        layout, greeting_layout = frame_layout(self.config), hello_layout()
        valid = Signal()
        word = Signal(wire_bits(self.config), reset_less=True)
        m.d.sync += [valid.eq(self.wire.valid), word.eq(self.wire.word)]

        frame = Signal(layout)
        greeting = Signal(greeting_layout)
        m.d.comb += [frame.eq(word[: layout.size]), greeting.eq(word[:HELLO_BITS])]
        m.submodules.frame_crc = frame_crc = Crc(layout.size - CRC_BITS)
        m.submodules.greeting_crc = greeting_crc = Crc(HELLO_BITS - CRC_BITS)
        m.d.comb += [frame_crc.message.eq(word), greeting_crc.message.eq(word)]
        frame_good = frame.crc == frame_crc.crc
        greeting_good = greeting.crc == greeting_crc.crc
        kind = Signal(2)
        hello, is_data, idle = Signal(), Signal(), Signal()
        m.d.comb += [
            kind.eq(word[:2]),
            hello.eq(valid & (kind == Kind.HELLO) & greeting_good),
            is_data.eq(valid & (kind == Kind.DATA) & frame_good),
            idle.eq(valid & (kind == Kind.IDLE) & frame_good),
        ]
        m.d.sync += [
            self.hello.eq(hello), self.data.eq(is_data), self.idle.eq(idle),
            self.bad.eq(valid & ~hello & ~is_data & ~idle),
            self.greeting.eq(greeting), self.frame.eq(frame),
        ]  # fmt: skip
        return m
