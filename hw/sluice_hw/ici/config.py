"""Configuration of the torus: sizes, virtual channels, flit widths. Every derived width has its home here."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.utils import ceil_log2

__all__ = ["TorusConfig", "check_range"]

_RANGES = {
    "rows": (1, 16), "cols": (1, 16), "data_bits": (16, 1024), "orders": (1, 2), "vc_depth": (1, 64),
    "stamp_bits": (4, 16), "patience_bits": (1, 16),
}  # fmt: skip


def check_range(who: str, name: str, value: object, low: int, high: int) -> None:
    """Refuse a parameter `name` of `who` that is not an integer from `low` to `high`.

    Raises
    ------
    TypeError, ValueError
        Whose message names all of these.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{who} {name} must be an integer, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{who} {name} must be {low} to {high}, not {value}")


@dataclass(frozen=True, kw_only=True)
class TorusConfig:
    """Parameters that all routers of one torus share.

    Raises
    ------
    TypeError
        For a field that is not an integer.
    ValueError
        For a value outside its range; the message names field, value and range.
    """

    #: Nodes along y.
    rows: int = 8
    #: Nodes along x.
    cols: int = 8
    #: Payload bits of a flit. The head flit of a packet carries the header in its low bits.
    data_bits: int = 128
    #: 2: packets may go x first (XY) or y first (YX), in separate virtual channels; 1: XY only, half as many channels.
    orders: int = 2
    #: Flits that a router keeps for each virtual channel of each link, a power of two.
    vc_depth: int = 4
    #: Bits of the stamp by which the packet whose turn it is is chosen, see :mod:`.fair`.
    stamp_bits: int = 12
    #: A packet that was passed over for ``2 ** patience_bits`` cycles goes first, whatever its stamp.
    patience_bits: int = 8

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            check_range("torus", name, getattr(self, name), low, high)
        if self.vc_depth & (self.vc_depth - 1):
            raise ValueError(f"torus vc_depth must be a power of two, not {self.vc_depth}")
        if self.data_bits < self.header_bits:
            raise ValueError(f"torus data_bits must hold the header, {self.header_bits} bits, not {self.data_bits}")

    @property
    def nodes(self) -> int:
        return self.rows * self.cols

    @property
    def x_bits(self) -> int:
        """Bits of an x coordinate, at least 1."""
        return max(1, ceil_log2(self.cols))

    @property
    def y_bits(self) -> int:
        """Bits of a y coordinate, at least 1."""
        return max(1, ceil_log2(self.rows))

    @property
    def vcs(self) -> int:
        """Virtual channels of a link: message classes x orders x dateline."""
        return 2 * self.orders * 2

    @property
    def vc_bits(self) -> int:
        return ceil_log2(self.vcs)

    @property
    def header_bits(self) -> int:
        """Bits of the header at the low end of a head flit's data."""
        return 2 * (self.x_bits + self.y_bits) + 2 + 2 + self.stamp_bits

    @property
    def flit_bits(self) -> int:
        """Bits of a flit with its side bits."""
        return self.data_bits + self.vc_bits + 3
