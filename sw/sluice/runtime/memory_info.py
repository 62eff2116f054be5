"""What lies where in HBM, as text and as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sluice.compiler import Compiled
from sluice.sizes import size_text

from .banks import BankMap
from .memory import Piece, SliceAllocator

__all__ = ["MemoryInfo", "compiled_memory", "compiled_parts"]

#: Streams together that reach less of what the slowest of them reaches alone are worth a warning.
_WORTH_SAYING = 0.95


@dataclass(frozen=True)
class MemoryInfo:
    """A snapshot of HBM.

    Attributes
    ----------
    banks
        Channels, sets, rows.
    slices, used, peak, largest
        Slices of the memory, in use now, most in use at a time, of the largest hole.
    fragmentation
        Part of the free slices that lies outside the largest hole, 0 to 1.
    pieces
        What is in use, by address.
    together
        Names of pieces that are moved in turn with each other.
    bandwidth
        Part of the bandwidth that their meeting in banks leaves them (:meth:`BankMap.bandwidth`).
    warnings
        What fits and is slow, in words.
    """

    banks: BankMap
    slices: int
    used: int
    peak: int
    largest: int
    fragmentation: float
    pieces: tuple[Piece, ...]
    together: tuple[str, ...]
    bandwidth: float
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, allocator: SliceAllocator, banks: BankMap, together: Sequence[int] = ()) -> MemoryInfo:
        """Of what an allocator has given out; ``together``: first slices of pieces that are moved in turn.

        Raises
        ------
        UsageError
            When one of them is not in use.
        """
        rivals = [allocator.piece(first) for first in together]
        streams = [(p.first, p.count) for p in rivals]
        bandwidth = banks.bandwidth(streams)
        warnings = ()
        if bandwidth < _WORTH_SAYING * min((banks.bandwidth([s]) for s in streams), default=1.0):
            names = ", ".join(p.what for p in rivals)
            warnings = (f"fits, but these tensors share banks: {names}: {100 * bandwidth:.0f} % of bandwidth",)
        return cls(
            banks, allocator.slices, allocator.used, allocator.peak, allocator.largest, allocator.fragmentation,
            tuple(allocator.pieces), tuple(p.what for p in rivals), bandwidth, warnings,
        )  # fmt: skip

    def __str__(self) -> str:
        banks, size = self.banks, self.banks.slice_bytes
        lines = [
            f"HBM       {size_text(self.slices * size)} in {self.slices} slices of {size_text(size)}; "
            f"{banks.channels} channel{'s' if banks.channels > 1 else ''} in step, {banks.sets} sets of 4 banks, "
            f"{banks.run} slice{'s' if banks.run > 1 else ''} in a set before the next follows",
            f"in use    {size_text(self.used * size)}, {100 * self.used / self.slices:.1f} %; at most "
            f"{size_text(self.peak * size)} at a time",
            f"free      {size_text((self.slices - self.used) * size)}, largest hole {size_text(self.largest * size)}, "
            f"fragmentation {100 * self.fragmentation:.0f} %",
        ]
        if self.pieces:
            lines.append(f"{'slices':>17}  {'size':>10}  {'set, row':<22}  what")
        for p in self.pieces:
            (set0, row0), (set1, row1) = banks.place(p.first), banks.place(p.first + p.count - 1)
            where = f"{set0}, {row0}" if p.count == 1 else f"{set0}, {row0} to {set1}, {row1}"
            lines.append(
                f"{p.first:>8} {'+' + str(p.count):>8}  {size_text(p.count * size):>10}  {where:<22}  {p.what}"
            )
        if self.together:
            lines.append(f"in turn   {', '.join(self.together)}: {100 * self.bandwidth:.0f} % of bandwidth")
        return "\n".join(lines + [f"warning: {text}" for text in self.warnings])


def compiled_parts(compiled: Compiled) -> list[Piece]:
    """What the slices of a compiled network hold, without gaps."""
    groups = (
        ("input", compiled.inputs.values()), ("output", compiled.outputs.values()), ("constant", compiled.constants),
    )  # fmt: skip
    tensors = [Piece(t.slice_address, t.slices, f"{kind} {t.name}") for kind, group in groups for t in group]
    out, at = [], compiled.hbm_base
    for piece in [*sorted(tensors, key=lambda p: p.first), Piece(compiled.hbm_slices, 0, "")]:
        if piece.first > at:
            out.append(Piece(at, piece.first - at, "between layers"))
        if piece.count:
            out.append(piece)
        at = piece.first + piece.count
    return out


def compiled_memory(compiled: Compiled, banks: BankMap | None = None) -> MemoryInfo:
    """Where a compiled network lies. Its largest constant, inputs and outputs are taken to be moved in turn."""
    config = compiled.config
    banks = BankMap.of(config) if banks is None else banks
    allocator = SliceAllocator(config.hbm_slices, config.slice_bytes, banks)
    for part in compiled_parts(compiled):
        allocator.reserve(part.first, part.count, part.what)
    moved = [t.slice_address for group in (compiled.inputs, compiled.outputs) for t in group.values()]
    if compiled.constants:
        moved.append(max(compiled.constants, key=lambda c: c.slices).slice_address)
    return MemoryInfo.of(allocator, banks, moved)
