"""Where values lie: accumulator rows and VMEM bytes, taken when a value is made and given back behind its last use.

Places rotate through the memory, so that a place is taken anew as late as can be and units seldom wait for each other;
and what the same step reads and writes lies in different regions where that is possible, whose ports are separate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sluice.compiler.errors import DoesNotFit
from sluice.compiler.tiles import ceil_div, round_up
from sluice_hw.config import ChipConfig

from .values import ACC, VMEM, Value

__all__ = ["Home", "Placer"]


@dataclass(frozen=True)
class Home:
    """A place of a value.

    Attributes
    ----------
    memory
        ``acc`` or ``vmem``.
    addr, size
        Accumulator rows, or bytes.
    row_step, block_step
        From row to row and from block to block of ``cols`` values, in the same unit.
    """

    memory: str
    addr: int
    size: int
    row_step: int
    block_step: int


class _Space:
    """Free pieces of one memory."""

    def __init__(self, size: int, align: int, region: int) -> None:
        self.align, self.region, self.count = align, region, -(-size // region)
        self.free = [(0, size)]
        #: Where the next place of a region is looked for, and the region that was taken last.
        self.cursors = [region * i for i in range(self.count)]
        self.last = -1

    def alloc(self, size: int, avoid: set[int], rotate: bool) -> int | None:
        size = round_up(size, self.align)
        fits: list[int] = []
        for lo, hi in self.free:
            starts = {lo, *range(round_up(lo, self.region), hi, self.region)}
            starts |= {at for at in self.cursors if lo < at < hi}
            fits += [start for start in starts if start + size <= hi]
        if not fits:
            return None

        def cost(at: int) -> tuple[int, ...]:
            if not rotate:
                return (at,)
            first = at // self.region
            ahead = (at - self.cursors[first]) % self.region
            return len(self.regions(at, size) & avoid), (first - self.last - 1) % self.count, ahead

        addr = min(fits, key=cost)
        self._take(addr, size)
        self.last = addr // self.region
        end = addr + size
        if end < (self.last + 1) * self.region:
            self.cursors[self.last] = end
        return addr

    def regions(self, addr: int, size: int) -> set[int]:
        return set(range(addr // self.region, (addr + size - 1) // self.region + 1))

    def _take(self, addr: int, size: int) -> None:
        for i, (lo, hi) in enumerate(self.free):
            if lo <= addr and addr + size <= hi:
                self.free[i : i + 1] = [piece for piece in ((lo, addr), (addr + size, hi)) if piece[0] < piece[1]]
                return
        raise AssertionError(f"{addr} is not free")

    def release(self, addr: int, size: int) -> None:
        pieces = sorted([*self.free, (addr, addr + round_up(size, self.align))])
        self.free = pieces[:1]
        for lo, hi in pieces[1:]:
            if lo == self.free[-1][1]:
                self.free[-1] = (self.free[-1][0], hi)
            else:
                self.free.append((lo, hi))


class Placer:
    """Gives values their places in a chip's memories.

    Parameters
    ----------
    rotate
        Through the regions; else each place is the first that is free, which wastes the least.
    """

    def __init__(self, config: ChipConfig, *, rotate: bool = True) -> None:
        self.config, self.rotate = config, rotate
        self._spaces = {
            ACC: _Space(config.acc_rows, 1, config.acc_region_rows),
            VMEM: _Space(config.vmem_bytes, max(config.word_bytes, config.hbm_beat_bytes), config.vmem_region_bytes),
        }
        self.homes: dict[Value, dict[str, Home]] = {}

    def shape(self, value: Value, memory: str) -> Home:
        """Home of a value at address 0."""
        config, cols = self.config, self.config.cols
        rows, width = (value.cols, value.rows) if value.flipped else (value.rows, value.cols)
        blocks = ceil_div(width, cols)
        if memory == ACC:
            return Home(ACC, 0, rows * blocks, 1, rows)
        size = 2 if value.bf16 else 4
        pitch = round_up(width * size, config.word_bytes)
        return Home(VMEM, 0, rows * pitch, pitch, cols * size)

    def place(
        self, value: Value, memory: str, *, apart: Iterable[Home] = (), region: int | None = None, where: str = ""
    ) -> Home:
        """Take a place for a value, in ``region`` and in another one than ``apart`` where that can be.

        Raises
        ------
        DoesNotFit
            With sizes, and what is free.
        """
        form, space = self.shape(value, memory), self._spaces[memory]
        avoid = set()
        for other in apart:
            if other.memory == memory:
                avoid |= space.regions(other.addr, other.size)
        if region is not None:
            avoid |= set(range(space.count)) - {region}
        addr = space.alloc(form.size, avoid, self.rotate)
        if addr is None:
            raise self._does_not_fit(value, form, where)
        home = Home(memory, addr, form.size, form.row_step, form.block_step)
        self.homes.setdefault(value, {})[memory] = home
        return home

    def fits(self, value: Value, memory: str) -> bool:
        """Whether a place is free."""
        space = self._spaces[memory]
        size = round_up(self.shape(value, memory).size, space.align)
        return any(hi - lo >= size for lo, hi in space.free)

    def inside(self, home: Home, region: int) -> bool:
        """Whether a place lies in one region."""
        return self._spaces[home.memory].regions(home.addr, home.size) == {region}

    def adopt(self, value: Value, home: Home, old: Value) -> None:
        """Let a value take over the place of one that nobody reads any more."""
        del self.homes[old][home.memory]
        self.homes.setdefault(value, {})[home.memory] = home

    def partners(self, value: Value) -> list[Home]:
        """Homes of what is used together with a value."""
        return [home for other in value.partners for home in self.homes.get(other, {}).values()]

    def drop(self, value: Value, memory: str | None = None) -> None:
        """Give back the places of a value (or the one in ``memory``)."""
        homes = self.homes.get(value, {})
        for name in [memory] if memory else list(homes):
            home = homes.pop(name, None)
            if home is not None:
                self._spaces[name].release(home.addr, home.size)

    def _does_not_fit(self, value: Value, form: Home, where: str) -> DoesNotFit:
        space = self._spaces[form.memory]
        unit, name = (4 * self.config.cols, "the accumulators") if form.memory == ACC else (1, "VMEM")
        pieces = [hi - lo for lo, hi in space.free] or [0]
        return DoesNotFit(
            f"tensor {value!r}", needed=form.size * unit, free=sum(pieces) * unit, largest=max(pieces) * unit,
            memory=name, where=where,
        )  # fmt: skip
