"""Encoder and decoder one after the other, with errors in between, as the bench of the code needs them."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from sluice_hw.hbm.ecc import EccDecoder, EccEncoder

__all__ = ["Coded"]


class Coded(wiring.Component):
    """``errors`` are inverted in what the encoder shows, data below check bits."""

    def __init__(self, *, beat_bytes: int) -> None:
        self.encoder, self.decoder = EccEncoder(beat_bytes=beat_bytes), EccDecoder(beat_bytes=beat_bytes)
        words = self.encoder.words
        super().__init__({
            "enable": In(1), "data": In(64 * words), "errors": In(64 * words), "check_errors": In(8 * words),
            "check": Out(8 * words), "out_data": Out(64 * words), "corrected": Out(words), "detected": Out(words),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.encoder, m.submodules.decoder = encoder, decoder = self.encoder, self.decoder
        m.d.comb += [
            encoder.enable.eq(self.enable), decoder.enable.eq(self.enable), encoder.data.eq(self.data),
            decoder.data.eq(encoder.out_data ^ self.errors), decoder.check.eq(encoder.out_check ^ self.check_errors),
            self.check.eq(encoder.out_check), self.out_data.eq(decoder.out_data),
            self.corrected.eq(decoder.corrected), self.detected.eq(decoder.detected),
        ]  # fmt: skip
        return m
