"""Which slices of HBM are in use."""

from __future__ import annotations

from sluice.errors import OutOfMemory, UsageError

__all__ = ["SliceAllocator"]


class SliceAllocator:
    """First fit over whole slices.

    Parameters
    ----------
    slices
        How many there are.
    slice_bytes
        Bytes of one, for messages.
    """

    def __init__(self, slices: int, slice_bytes: int) -> None:
        self.slices, self.slice_bytes = slices, slice_bytes
        self._used: dict[int, int] = {}  # first slice -> count, disjoint

    @property
    def used(self) -> int:
        """Slices in use."""
        return sum(self._used.values())

    @property
    def free(self) -> int:
        """Slices not in use."""
        return self.slices - self.used

    def holes(self) -> list[tuple[int, int]]:
        """Free pieces as (first, count), by address."""
        out, at = [], 0
        for first, count in [*sorted(self._used.items()), (self.slices, 0)]:
            if first > at:
                out.append((at, first - at))
            at = first + count
        return out

    def alloc(self, count: int, what: str = "a buffer") -> int:
        """First of ``count`` consecutive slices that are free, now in use.

        Raises
        ------
        OutOfMemory
            Saying how much is needed, how much is free, and the largest piece.
        """
        _check_count(count, what)
        holes = self.holes()
        for first, size in holes:
            if size >= count:
                self._used[first] = count
                return first
        largest = max((size for _, size in holes), default=0)
        why = "in one piece (fragmented)" if self.free >= count else "at all"
        raise OutOfMemory(
            f"HBM has no room {why} for {what}: {self._text(count)} needed, {self._text(self.free)} free of "
            f"{self._text(self.slices)}, largest hole {self._text(largest)}",
            needed=count, free=self.free, largest=largest,
        )

    def reserve(self, first: int, count: int, what: str = "a buffer") -> int:
        """As :meth:`alloc`, at a place that is given.

        Raises
        ------
        OutOfMemory
            When some of it lies outside of HBM or is in use.
        """
        _check_count(count, what)
        hole = next(((at, size) for at, size in self.holes() if at <= first < at + size), (first, 0))
        room = max(0, hole[0] + hole[1] - first)
        if first < 0 or room < count:
            raise OutOfMemory(
                f"HBM slices {first} to {first + count - 1} are not free for {what}: {self._text(room)} free from "
                f"slice {first} on, of {self._text(self.slices)} in all",
                needed=count, free=self.free, largest=room,
            )
        self._used[first] = count
        return first

    def release(self, first: int) -> None:
        """Give back what :meth:`alloc` or :meth:`reserve` returned."""
        if first not in self._used:
            raise UsageError(f"no buffer in use begins at slice {first}; in use: {sorted(self._used) or 'none'}")
        del self._used[first]

    def _text(self, slices: int) -> str:
        return f"{slices} slices ({slices * self.slice_bytes} bytes)"


def _check_count(count: int, what: str) -> None:
    if count < 1:
        raise UsageError(f"{what} must have at least one slice, not {count}")
