"""Encoder and decoder of the Hsiao code for a beat, in 64-bit words: pipelines of fixed latency."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .hsiao import CHECK_BITS, COLUMNS, DATA_BITS, ROWS

__all__ = ["EccDecoder", "EccEncoder", "check_of"]

WORD_BYTES = DATA_BITS // 8
#: Bits of a partial sum: what a 6-input table of an FPGA takes.
GROUP = 6


def partial_sums(word: Value) -> list[list[Value]]:
    """For each check bit, sums of at most :data:`GROUP` of the data bits that it covers."""
    covered = [[word[i] for i in range(DATA_BITS) if row >> i & 1] for row in ROWS]
    return [[Cat(bits[k : k + GROUP]).xor() for k in range(0, len(bits), GROUP)] for bits in covered]


def total(sums: list[Value]) -> Value:
    """A check bit from its partial sums."""
    return Cat(sums).xor()


def check_of(word: Value) -> Value:
    """Check bits of a 64-bit word, as logic: two levels, which the proof of linearity takes one by one."""
    return Cat(total(sums) for sums in partial_sums(word))


def _words(beat_bytes: int) -> int:
    if isinstance(beat_bytes, bool) or not isinstance(beat_bytes, int):
        raise TypeError(f"Bytes of a beat must be an integer, not {beat_bytes!r}")
    if beat_bytes < WORD_BYTES or beat_bytes % WORD_BYTES:
        raise ValueError(f"Bytes of a beat must be a positive multiple of {WORD_BYTES}, not {beat_bytes}")
    return beat_bytes // WORD_BYTES


class EccEncoder(wiring.Component):
    """Check bits of a beat, :attr:`LATENCY` enabled cycles after it.

    Parameters
    ----------
    beat_bytes : int
        A multiple of 8.

    Members
    -------
    enable : In(1)
        Low: everything holds.
    data : In(8 * beat_bytes)
    out_data, out_check : Out
        The beat as it was, and a byte of check bits for each of its 64-bit words.
    """

    LATENCY = 1

    def __init__(self, *, beat_bytes: int) -> None:
        self._words = _words(beat_bytes)
        bits = 8 * beat_bytes
        super().__init__({
            "enable": In(1), "data": In(bits), "out_data": Out(bits), "out_check": Out(CHECK_BITS * self._words),
        })  # fmt: skip

    @property
    def words(self) -> int:
        """64-bit words of a beat."""
        return self._words

    def elaborate(self, platform) -> Module:
        m = Module()
        data = Signal(len(self.data), reset_less=True)
        check = Signal(len(self.out_check), reset_less=True)
        with m.If(self.enable):
            m.d.sync += [
                data.eq(self.data),
                check.eq(Cat(check_of(self.data.word_select(i, DATA_BITS)) for i in range(self._words))),
            ]
        m.d.comb += [self.out_data.eq(data), self.out_check.eq(check)]
        return m


class EccDecoder(wiring.Component):
    """A beat with its single-bit errors corrected, :attr:`LATENCY` enabled cycles after it, whatever is wrong with it.

    Parameters
    ----------
    beat_bytes : int
        A multiple of 8.

    Members
    -------
    enable : In(1)
        Low: everything holds.
    data, check : In
        As :class:`EccEncoder` gives them, with errors.
    out_data : Out(8 * beat_bytes)
        Corrected; words with a bit in ``detected`` are as they came.
    corrected, detected : Out(beat_bytes // 8)
        For each word: one bit of it, or of its check bits, was wrong; two were.
    """

    LATENCY = 2

    def __init__(self, *, beat_bytes: int) -> None:
        self._words = words = _words(beat_bytes)
        bits = 8 * beat_bytes
        super().__init__({
            "enable": In(1), "data": In(bits), "check": In(CHECK_BITS * words),
            "out_data": Out(bits), "corrected": Out(words), "detected": Out(words),
        })  # fmt: skip

    @property
    def words(self) -> int:
        """64-bit words of a beat."""
        return self._words

    def elaborate(self, platform) -> Module:
        m = Module()
        for i in range(self._words):
            word, check = self.data.word_select(i, DATA_BITS), self.check.word_select(i, CHECK_BITS)
            held = Signal(DATA_BITS, name=f"held{i}", reset_less=True)
            wrong = Signal(CHECK_BITS, name=f"syndrome{i}", reset_less=True)
            right = Signal(DATA_BITS, name=f"right{i}", reset_less=True)
            single, double = (Signal(name=f"{name}{i}", reset_less=True) for name in ("single", "double"))
            flip = Signal(DATA_BITS, name=f"flip{i}")
            m.d.comb += flip.eq(Cat(wrong == column for column in COLUMNS))
            # Other syndromes are those of two errors, or of more.
            known = flip.any() | Cat(wrong == 1 << r for r in range(CHECK_BITS)).any()
            with m.If(self.enable):
                m.d.sync += [
                    held.eq(word),
                    wrong.eq(check_of(word) ^ check),
                    right.eq(held ^ flip),
                    single.eq(known),
                    double.eq((wrong != 0) & ~known),
                ]
            m.d.comb += [
                self.out_data.word_select(i, DATA_BITS).eq(right),
                self.corrected[i].eq(single),
                self.detected[i].eq(double),
            ]
        return m
