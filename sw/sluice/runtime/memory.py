"""Which slices of HBM are in use, and by what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sluice.errors import OutOfMemory, UsageError
from sluice.sizes import size_text

from .banks import BankMap

__all__ = ["Piece", "SliceAllocator"]


@dataclass(frozen=True)
class Piece:
    """Consecutive slices in use."""

    first: int
    count: int
    what: str
    #: What it consists of, where that is known.
    parts: tuple[Piece, ...] = ()


class SliceAllocator:
    """First fit over whole slices; neighbours that are free are one hole at once.

    Parameters
    ----------
    slices
        How many there are.
    slice_bytes
        Bytes of one, for messages.
    banks
        Where slices lie; needed for ``apart``.

    Attributes
    ----------
    peak
        Most slices that were in use at a time.
    """

    def __init__(self, slices: int, slice_bytes: int, banks: BankMap | None = None) -> None:
        self.slices, self.slice_bytes, self.banks = slices, slice_bytes, banks
        self._used: dict[int, Piece] = {}  # by first slice, disjoint
        self.peak = 0

    @property
    def used(self) -> int:
        """Slices in use."""
        return sum(piece.count for piece in self._used.values())

    @property
    def free(self) -> int:
        """Slices not in use."""
        return self.slices - self.used

    @property
    def pieces(self) -> list[Piece]:
        """What is in use, by address."""
        return [piece for _, piece in sorted(self._used.items())]

    @property
    def largest(self) -> int:
        """Slices of the largest hole."""
        return max((size for _, size in self.holes()), default=0)

    @property
    def fragmentation(self) -> float:
        """Part of the free slices that lies outside the largest hole."""
        return 1 - self.largest / self.free if self.free else 0.0

    def holes(self) -> list[tuple[int, int]]:
        """Free pieces as (first, count), by address."""
        out, at = [], 0
        for piece in [*self.pieces, Piece(self.slices, 0, "")]:
            if piece.first > at:
                out.append((at, piece.first - at))
            at = piece.first + piece.count
        return out

    def alloc(self, count: int, what: str = "a buffer", *, apart: Sequence[int] = ()) -> int:
        """First of ``count`` consecutive slices that are free, now in use.

        Parameters
        ----------
        apart
            First slices of pieces that are read or written in turn with this one. Of the places within a period of
            the banks at the start of each hole, the first is taken that loses the least bandwidth.

        Raises
        ------
        OutOfMemory
            Saying how much is needed, how much is free, and the largest piece.
        """
        _check_count(count, what)
        places = [(first, size) for first, size in self.holes() if size >= count]
        if not places:
            why = "in one piece (fragmented)" if self.free >= count else "at all"
            raise OutOfMemory(
                f"HBM has no room {why} for {what}: needs {self._text(count)}, {self._text(self.free)} free of "
                f"{self._text(self.slices)}, largest hole {self._text(self.largest)}",
                needed=count,
                free=self.free,
                largest=self.largest,
            )
        first = places[0][0]
        if apart and self.banks is not None and self.banks.turn_clocks:
            others = [(other, self.piece(other).count) for other in apart]
            starts = [at + k for at, size in places for k in range(min(self.banks.period, size - count + 1))]
            first = max(starts, key=lambda at: self.banks.bandwidth([*others, (at, count)]))  # of equals the first
        return self._take(Piece(first, count, what))

    def reserve(self, first: int, count: int, what: str = "a buffer", parts: Sequence[Piece] = ()) -> int:
        """As :meth:`alloc`, at a place that is given; ``parts`` say what its slices hold.

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
                needed=count,
                free=self.free,
                largest=room,
            )
        return self._take(Piece(first, count, what, tuple(parts)))

    def what_at(self, number: int) -> str:
        """What a slice in use holds; "" for one that is free."""
        names, inside = [], self.pieces
        while piece := next((p for p in inside if p.first <= number < p.first + p.count), None):
            names.append(piece.what)
            inside = piece.parts
        return " of ".join(reversed(names))

    def release(self, first: int) -> None:
        """Give back what :meth:`alloc` or :meth:`reserve` returned."""
        del self._used[self.piece(first).first]

    def piece(self, first: int) -> Piece:
        """What :meth:`alloc` or :meth:`reserve` put there; ``UsageError`` where none begins."""
        if first not in self._used:
            raise UsageError(f"no buffer in use begins at slice {first}; in use: {sorted(self._used) or 'none'}")
        return self._used[first]

    def _take(self, piece: Piece) -> int:
        self._used[piece.first] = piece
        self.peak = max(self.peak, self.used)
        return piece.first

    def _text(self, slices: int) -> str:
        return f"{size_text(slices * self.slice_bytes)} ({slices} slices)"


def _check_count(count: int, what: str) -> None:
    if count < 1:
        raise UsageError(f"{what} must have at least one slice, not {count}")
