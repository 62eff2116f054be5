"""Wrong bits in a memory that keeps data only: a sparse mask of 72-bit words, applied on read."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import ChipConfig
from ..interfaces import ADDR_BITS, SlicePortSignature
from .coded import CodedPortSignature
from .ecc import check_of
from .hsiao import CHECK_BITS, DATA_BITS
from .position import Position

__all__ = ["ErrorMasks", "injection_layout"]

#: Trains of each kind whose place is remembered.
READS, WRITES = 64, 8


def injection_layout(config: ChipConfig) -> data.StructLayout:
    """Bits to be inverted in a word: its slice, its number in the slice, a mask of data and one of check bits."""
    return data.StructLayout({
        "slice": ADDR_BITS, "word": range(max(2, config.slice_bytes // 8)), "data": DATA_BITS, "check": CHECK_BITS,
    })  # fmt: skip


class ErrorMasks(wiring.Component):
    """Gives check bits to a memory that has none, and errors to words that shall have them.

    The memory holds data as they were written, so that a host's view of it is a plain array. Check bits are computed
    on read; those of what the host puts there directly, and of words never written, are right by themselves. A wrong
    word is an entry here, address and bits, XORed to what is read, and gone when the word is written. The entries
    survive a reset, as the contents of memory do. No latency is added.

    Parameters
    ----------
    config : ChipConfig
    coded : bool
        Give check bits. Else the port is a plain one, and masks of check bits have no effect.
    stored : bool
        The memory keeps check bits itself: they are not computed, and get their errors as data do.
    entries : int
        Wrong words that can be at a time, 1 to 64.

    Members
    -------
    port : In(CodedPortSignature(config) or SlicePortSignature(config))
    memory : Out(SlicePortSignature(config)), or Out(CodedPortSignature(config)) if stored
    inject : In(stream.Signature(injection_layout(config)))
        Inverts bits of a word; taken while there is a free entry. A word that is wrong already gets further bits,
        unless that makes it right.
    """

    def __init__(
        self, config: ChipConfig, *, coded: bool = True, stored: bool = False, entries: int = 4
    ) -> None:
        if isinstance(entries, bool) or not isinstance(entries, int):
            raise TypeError(f"Number of entries must be an integer, not {entries!r}")
        if not 1 <= entries <= 64:
            raise ValueError(f"Number of entries must be 1 to 64, not {entries}")
        if stored and not coded:
            raise ValueError("a memory that keeps check bits needs a port that gives them: coded must be True")
        self._config, self._coded, self._stored, self._entries = config, coded, stored, entries
        super().__init__({
            "port": In(CodedPortSignature(config) if coded else SlicePortSignature(config)),
            "memory": Out(CodedPortSignature(config) if stored else SlicePortSignature(config)),
            "inject": In(stream.Signature(injection_layout(config))),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        config, port, memory = self._config, self.port, self.memory
        words = config.hbm_beat_bytes // 8
        m.submodules.reads = reads = Position(config, depth=READS)
        m.submodules.writes = writes = Position(config, depth=WRITES)
        for name, position in (("read", reads), ("write", writes)):
            asked, ask = getattr(port, name), getattr(memory, name)
            m.d.comb += [
                ask.valid.eq(asked.valid & position.room), ask.payload.eq(asked.payload),
                asked.ready.eq(ask.ready & position.room),
                position.push.eq(ask.valid & ask.ready & ((asked.payload.count != 0) | (name == "read"))),
                position.first.eq(asked.payload.slice), position.count.eq(asked.payload.count),
            ]  # fmt: skip
        m.d.comb += [
            memory.write_data.valid.eq(port.write_data.valid), port.write_data.ready.eq(memory.write_data.ready),
            memory.write_data.payload.data.eq(port.write_data.payload.data),
            writes.step.eq(memory.write_data.valid & memory.write_data.ready), writes.end.eq(writes.final),
            port.write_done.valid.eq(memory.write_done.valid), port.write_done.payload.eq(memory.write_done.payload),
            memory.write_done.ready.eq(port.write_done.ready),
            port.read_data.valid.eq(memory.read_data.valid), memory.read_data.ready.eq(port.read_data.ready),
            port.read_data.payload.last.eq(memory.read_data.payload.last),
            port.read_data.payload.error.eq(memory.read_data.payload.error),
            reads.step.eq(memory.read_data.valid & memory.read_data.ready),
            reads.end.eq(memory.read_data.payload.last),
        ]  # fmt: skip

        if self._stored:
            m.d.comb += memory.write_data.payload.check.eq(port.write_data.payload.check)

        # Contents of memory: no reset.
        layout = injection_layout(config)
        entries = [Signal(layout, name=f"entry{i}", reset_less=True) for i in range(self._entries)]
        wrong = [Signal(name=f"wrong{i}", reset_less=True) for i in range(self._entries)]
        wanted = self.inject.payload
        same = [w & (e.slice == wanted.slice) & (e.word == wanted.word) for e, w in zip(entries, wrong, strict=True)]
        use, free = Signal(range(max(2, self._entries))), Signal()
        known = Cat(same).any()
        for i in reversed(range(self._entries)):
            with m.If(Mux(known, same[i], ~wrong[i])):
                m.d.comb += [use.eq(i), free.eq(1)]
        m.d.comb += self.inject.ready.eq(free)
        into = Array(entries)[use]
        with m.If(self.inject.valid & free):
            bits = Cat(wanted.data, wanted.check) ^ Mux(known, Cat(into.data, into.check), 0)
            for i, (entry, is_wrong) in enumerate(zip(entries, wrong, strict=True)):
                with m.If(use == i):
                    m.d.sync += [
                        entry.eq(wanted), entry.data.eq(bits[:DATA_BITS]), entry.check.eq(bits[DATA_BITS:]),
                        is_wrong.eq(bits.any()),
                    ]  # fmt: skip

        stored = Value.cast(memory.read_data.payload.data)
        lane_bits = (words - 1).bit_length()
        data_masks, check_masks = [0] * words, [0] * words
        for i, (entry, is_wrong) in enumerate(zip(entries, wrong, strict=True)):
            beat, lane = entry.word >> lane_bits, entry.word[:lane_bits] if lane_bits else 0
            here = Signal(name=f"here{i}")
            m.d.comb += here.eq(is_wrong & (entry.slice == reads.slice) & (beat == reads.beat))
            for k in range(words):
                hit = here & (lane == k)
                data_masks[k] = data_masks[k] | (entry.data & hit.replicate(DATA_BITS))
                check_masks[k] = check_masks[k] | (entry.check & hit.replicate(CHECK_BITS))
            with m.If(writes.step & (entry.slice == writes.slice) & (beat == writes.beat)):
                m.d.sync += is_wrong.eq(0)
        plain = [stored.word_select(k, DATA_BITS) for k in range(words)]
        m.d.comb += Value.cast(port.read_data.payload.data).eq(
            Cat(w ^ e for w, e in zip(plain, data_masks, strict=True))
        )
        if self._coded:
            if self._stored:
                checks = [memory.read_data.payload.check.word_select(k, CHECK_BITS) for k in range(words)]
            else:
                checks = [check_of(w) for w in plain]
            m.d.comb += port.read_data.payload.check.eq(Cat(c ^ e for c, e in zip(checks, check_masks, strict=True)))
        return m
