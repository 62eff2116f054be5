"""How the 32 bits of lanes lie in VMEM: as they are, or narrowed (:class:`sluice_hw.isa.Format`)."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from .. import isa
from ..config import ChipConfig
from ..interfaces import ADDR_BITS
from ..isa import Format

__all__ = ["block_bytes", "expand", "narrow", "pieces", "stream_layout"]


def stream_layout() -> data.StructLayout:
    """Where a stream lies: a PASS_STREAM with its address resolved."""
    fields = isa.word_layout(isa.Op.PASS_STREAM).members
    return data.StructLayout({
        "addr": ADDR_BITS, **{name: fields[name] for name in ("memory", "format", "row_step", "block_step")},
    })  # fmt: skip


def pieces(config: ChipConfig) -> int:
    """VMEM accesses of a whole block of 32-bit values, 1 or 2."""
    return -(-4 * config.cols // config.word_bytes)


def block_bytes(m: Module, name: str, lanes: Value, form: Value) -> Signal:
    """Bytes of a block of so many lanes."""
    size = Signal(len(lanes) + 2, name=name)
    m.d.comb += size.eq(Mux(form == Format.WORD, lanes << 2, Mux(form == Format.BF16, lanes << 1, lanes)))
    return size


def expand(form: Value, words: Value, last: Value, cols: int) -> Value:
    """Lanes of 32 bits of what was read: ``words`` where they are as they are, else the bytes of one access."""
    halves = Cat(Cat(Const(0, 16), last.word_select(k, 16)) for k in range(cols))
    small = Cat(Cat(last.word_select(k, 8), last[8 * k + 7].replicate(24)) for k in range(cols))
    return Mux(form == Format.WORD, words[: 32 * cols], Mux(form == Format.BF16, halves, small))


def narrow(form: Value, lanes: Value, cols: int) -> Value:
    """Bytes of a block, first lane first; behind those of the format anything."""
    halves = Cat(lanes[32 * k + 16 : 32 * k + 32] for k in range(cols))
    small = Cat(lanes[32 * k : 32 * k + 8] for k in range(cols))
    return Mux(form == Format.WORD, lanes, Mux(form == Format.BF16, halves, small))
