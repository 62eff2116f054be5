"""Cutting: lengths into tiles, blocks and runs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cut", "ceil_div", "round_up"]


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    return ceil_div(a, b) * b


@dataclass(frozen=True)
class Cut:
    """A length cut into pieces of ``step``; the last one may be shorter.

    Examples
    --------
    >>> Cut(10, 4).count, Cut(10, 4).full, Cut(10, 4).rest
    (3, 2, 2)
    """

    total: int
    step: int

    @property
    def full(self) -> int:
        """Pieces of the whole step."""
        return self.total // self.step

    @property
    def rest(self) -> int:
        """Length of the shorter piece behind them; 0 when there is none."""
        return self.total % self.step

    @property
    def count(self) -> int:
        return self.full + (self.rest > 0)

    def size(self, index: int) -> int:
        return self.step if index < self.full else self.rest

    def runs(self) -> list[tuple[int, int]]:
        """``(how many, size)`` of equal pieces in a row."""
        return [(n, size) for n, size in ((self.full, self.step), (1, self.rest)) if n and size]
