"""Placement in VMEM and HBM.

VMEM regions are groups of banks: two streams conflict only inside a region. A buffer that does not fit is an error; a
buffer that shares a region with a stream of the same time is slower, and noted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sluice_hw.config import ChipConfig

from .errors import DoesNotFit
from .tiles import ceil_div, round_up

__all__ = ["Buffer", "HbmMap", "Slices", "VmemMap"]


@dataclass
class Buffer:
    """A piece of VMEM.

    Attributes
    ----------
    size
        Bytes, all slots together; of a spread buffer those in each region.
    slots
        Equal parts that are used in turn.
    spread
        Neighbouring regions in each of which it has ``size`` bytes, at the same offset.
    born, dies
        Steps between which it holds something, both included; others may use the place at other times.
    apart
        Names of buffers whose streams run at the same time, so that sharing banks with them costs time.
    """

    name: str
    size: int
    slots: int = 1
    spread: int = 1
    born: int = 0
    dies: int = 1 << 30
    apart: frozenset[str] = frozenset()
    address: int = -1

    @property
    def slot(self) -> int:
        return self.size // self.slots

    def overlaps(self, other: Buffer) -> bool:
        """Whether both hold something at the same time."""
        return self.born <= other.dies and other.born <= self.dies


@dataclass
class VmemMap:
    """Buffers at their addresses."""

    config: ChipConfig
    buffers: dict[str, Buffer] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __getitem__(self, name: str) -> Buffer:
        return self.buffers[name]

    @property
    def align(self) -> int:
        """DMA moves a beat a cycle from multiples of this; words are aligned to it as well."""
        return max(self.config.hbm_beat_bytes, self.config.word_bytes)

    def pieces(self, buffer: Buffer, address: int | None = None) -> list[tuple[int, int]]:
        """(first byte, one past the last) of each contiguous piece."""
        at, step = buffer.address if address is None else address, self.config.vmem_region_bytes
        return [(at + i * step, at + i * step + buffer.size) for i in range(buffer.spread)]

    def regions(self, buffer: Buffer, address: int | None = None) -> set[int]:
        step = self.config.vmem_region_bytes
        found: set[int] = set()
        for first, end in self.pieces(buffer, address):
            found.update(range(first // step, (max(end, first + 1) - 1) // step + 1))
        return found

    def place(self, buffer: Buffer) -> Buffer:
        """Find a place, in regions that no buffer of ``buffer.apart`` uses where possible.

        Raises
        ------
        DoesNotFit
            With the bytes needed, free, and in the largest hole (at the buffer's time).
        """
        others = [b for b in self.buffers.values() if b.overlaps(buffer)]
        taken = [piece for b in others for piece in self.pieces(b)]
        rivals = [self.regions(b) for b in others if b.name in buffer.apart or buffer.name in b.apart]
        best: tuple[int, int] | None = None
        for at in self._candidates(buffer, taken):
            mine = self.pieces(buffer, at)
            if at < 0 or mine[-1][1] > self.config.vmem_bytes:
                continue
            if any(a < end and first < b for a, b in mine for first, end in taken):
                continue
            here = self.regions(buffer, at)
            score = (2 * sum(bool(here & r) for r in rivals) + self._inner_conflict(at, buffer), at)
            if best is None or score < best:
                best = score
        if best is None:
            free, largest = self.room(buffer)
            raise DoesNotFit(buffer.name, needed=buffer.size * buffer.spread, free=free, largest=largest)
        buffer.address = best[1]
        here = self.regions(buffer)
        apart = [b for b in others if b.name in buffer.apart or buffer.name in b.apart]
        clash = [b.name for b in apart if here & self.regions(b)]
        if clash:
            self.notes.append(f"{buffer.name} shares banks with {', '.join(clash)}")
        if self._inner_conflict(buffer.address, buffer):
            self.notes.append(f"the slots of {buffer.name} share banks")
        self.buffers[buffer.name] = buffer
        return buffer

    def _inner_conflict(self, at: int, buffer: Buffer) -> bool:
        """Whether the first two slots, of which one is filled while the other is used, share a region."""
        if buffer.slots < 2:
            return False
        step, slot = self.config.vmem_region_bytes, buffer.slot
        return (at + slot - 1) // step == (at + slot) // step or at // step == (at + slot) // step

    def _candidates(self, buffer: Buffer, taken: list[tuple[int, int]]) -> list[int]:
        step, align = self.config.vmem_region_bytes, self.align
        bounds = range(0, self.config.vmem_bytes, step)
        starts = {0, *(round_up(end, align) for _, end in taken), *(round_up(at, align) for at in bounds)}
        if buffer.spread > 1:  # the same offset in each region
            starts = {region + start % step for region in bounds for start in starts}
        else:
            starts.update((first - buffer.size) // align * align for first, _ in taken)
        if buffer.slots > 1:  # slot 0 at the end of a region, slot 1 at the start of the next
            starts.update(at - buffer.slot for at in bounds if (at - buffer.slot) % align == 0)
        return sorted(starts)

    def room(self, buffer: Buffer) -> tuple[int, int]:
        """Free bytes, and the largest free piece, at the time of ``buffer``."""
        taken = sorted(piece for b in self.buffers.values() if b.overlaps(buffer) for piece in self.pieces(b))
        free, largest, at = 0, 0, 0
        for start, end in [*taken, (self.config.vmem_bytes, self.config.vmem_bytes)]:
            gap = max(start - at, 0)
            free, largest, at = free + gap, max(largest, gap), max(at, end)
        return free, largest

    def describe(self) -> str:
        lines, used = [], 0
        for b in sorted(self.buffers.values(), key=lambda b: (b.address, b.born)):
            regions = sorted(self.regions(b))
            where = f"region {regions[0]}" if len(regions) == 1 else f"regions {regions[0]} to {regions[-1]}"
            how = f" in {b.slots} slots" if b.slots > 1 else ""
            how += " in each" if b.spread > 1 else ""
            lines.append(f"  {b.address:#08x} {b.size:9d} bytes{how}, {where}: {b.name}")
            used += b.size * b.spread
        lines.append(f"  {used} bytes in all buffers, VMEM has {self.config.vmem_bytes}")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


@dataclass(frozen=True)
class Slices:
    """Whole slices of HBM."""

    name: str
    first: int
    count: int


@dataclass
class HbmMap:
    """Slices handed out one after the other."""

    config: ChipConfig
    base: int = 0
    parts: list[Slices] = field(default_factory=list)

    @property
    def next(self) -> int:
        return self.parts[-1].first + self.parts[-1].count if self.parts else self.base

    def take(self, name: str, count: int) -> Slices:
        free = self.config.hbm_slices - self.next
        if count > free:
            size = self.config.slice_bytes
            raise DoesNotFit(name, needed=count * size, free=free * size, largest=free * size, memory="HBM")
        part = Slices(name, self.next, count)
        self.parts.append(part)
        return part

    def take_bytes(self, name: str, size: int) -> Slices:
        return self.take(name, ceil_div(size, self.config.slice_bytes))

    def describe(self) -> str:
        return "\n".join(f"  slices {p.first:7d} +{p.count:6d}: {p.name}" for p in self.parts)
