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
        Bytes of all slots together.
    slots
        Equal parts that are used in turn.
    born, dies
        Steps between which it holds something, both included; others may use the place at other times.
    streams
        Names of what reads or writes it at the same time as another buffer's streams.
    """

    name: str
    size: int
    slots: int = 1
    born: int = 0
    dies: int = 1 << 30
    apart: frozenset[str] = frozenset()
    address: int = -1

    @property
    def slot(self) -> int:
        return self.size // self.slots

    @property
    def end(self) -> int:
        return self.address + self.size

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
        return max(self.config.hbm_bytes_per_cycle, self.config.word_bytes)

    def regions(self, address: int, size: int) -> set[int]:
        step = self.config.vmem_region_bytes
        return set(range(address // step, (address + max(size, 1) - 1) // step + 1))

    def place(self, buffer: Buffer) -> Buffer:
        """Find a place, in regions that no buffer of ``buffer.apart`` uses where possible.

        Raises
        ------
        DoesNotFit
            With the bytes needed, free, and in the largest hole (at the buffer's time).
        """
        others = [b for b in self.buffers.values() if b.overlaps(buffer)]
        best: tuple[int, int, int] | None = None
        for at in self._candidates(buffer, others):
            if at < 0 or at + buffer.size > self.config.vmem_bytes:
                continue
            if any(at < b.end and b.address < at + buffer.size for b in others):
                continue
            mine = self.regions(at, buffer.size)
            shared = sum(bool(mine & self.regions(b.address, b.size)) for b in others if self._apart(b, buffer))
            inner = self._inner_conflict(at, buffer)
            # Among equals: fewest regions touched that are still empty, then the lowest address.
            score = (shared * 2 + inner, at)
            if best is None or score < best[:2]:
                best = (*score, at)
        if best is None:
            free, largest = self.room(buffer)
            raise DoesNotFit(buffer.name, needed=buffer.size, free=free, largest=largest)
        buffer.address = best[2]
        mine = self.regions(buffer.address, buffer.size)
        clash = [b.name for b in others if self._apart(b, buffer) and mine & self.regions(b.address, b.size)]
        if clash:
            self.notes.append(f"{buffer.name} shares banks with {', '.join(clash)}")
        if self._inner_conflict(buffer.address, buffer):
            self.notes.append(f"the slots of {buffer.name} share banks")
        self.buffers[buffer.name] = buffer
        return buffer

    @staticmethod
    def _apart(a: Buffer, b: Buffer) -> bool:
        return a.name in b.apart or b.name in a.apart

    def _inner_conflict(self, at: int, buffer: Buffer) -> bool:
        """Whether the first two slots, of which one is filled while the other is used, share a region."""
        if buffer.slots < 2:
            return False
        return bool(self.regions(at, buffer.slot) & self.regions(at + buffer.slot, buffer.slot))

    def _candidates(self, buffer: Buffer, others: list[Buffer]) -> list[int]:
        step, align = self.config.vmem_region_bytes, self.align
        starts = {0, *(round_up(b.end, align) for b in others)}
        bounds = range(0, self.config.vmem_bytes, step)
        starts.update(round_up(at, align) for at in bounds)
        if buffer.slots > 1:  # slot 0 at the end of a region, slot 1 at the start of the next
            starts.update((at - buffer.slot) // align * align for at in bounds if (at - buffer.slot) % align == 0)
        starts.update((b.address - buffer.size) // align * align for b in others)
        return sorted(starts)

    def room(self, buffer: Buffer) -> tuple[int, int]:
        """Free bytes, and the largest free piece, at the time of ``buffer``."""
        taken = sorted((b.address, b.end) for b in self.buffers.values() if b.overlaps(buffer))
        free, largest, at = 0, 0, 0
        for start, end in [*taken, (self.config.vmem_bytes, self.config.vmem_bytes)]:
            gap = max(start - at, 0)
            free, largest, at = free + gap, max(largest, gap), max(at, end)
        return free, largest

    def describe(self) -> str:
        lines = []
        for b in sorted(self.buffers.values(), key=lambda b: (b.address, b.born)):
            regions = sorted(self.regions(b.address, b.size))
            where = f"{regions[0]}" if len(regions) == 1 else f"{regions[0]}..{regions[-1]}"
            slots = f" in {b.slots} slots" if b.slots > 1 else ""
            lines.append(f"  {b.address:#08x} {b.size:9d} bytes{slots}, regions {where}: {b.name}")
        used = max((b.end for b in self.buffers.values()), default=0)
        lines.append(f"  {used} of {self.config.vmem_bytes} bytes up to the last buffer")
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
