"""Sizes of a link. Every derived width has its home here."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.lib import data
from amaranth.utils import ceil_log2

from .config import TorusConfig, check_range
from .flit import flit_layout

__all__ = ["LinkConfig"]

#: Cycles of a round trip that are registers of the two ends and not of the cable; measured with every channel used.
_PIPELINE = 20


@dataclass(frozen=True, kw_only=True)
class LinkConfig:
    """Parameters that both ends of a link share; 0 for a size means that it follows from the others.

    Raises
    ------
    TypeError
        For a field that is not an integer.
    ValueError
        For a value outside its range; the message names field, value and range.
    """

    #: Layout of a flit, with a field ``vc``.
    flit: data.StructLayout
    #: Virtual channels.
    vcs: int
    #: Most credits of a channel that the router at the sending end can hold.
    vc_depth: int = 4
    #: Cycles on the way, one direction: cable or optics. The link works at any; the default sizes are made for it.
    latency: int = 1
    #: Flits accepted and not acknowledged, at most; a power of two.
    window: int = 0
    #: Flits that the receive pool holds.
    pool: int = 0
    #: Places of the pool that each channel has for itself.
    reserve: int = 0
    #: Transmissions whose fate each frame repeats; this many frames lost in a row cost needless retries, no more.
    map_bits: int = 16
    #: Cycles without any valid frame after which a link that was up is dead.
    dead_after: int = 0
    #: Cycles within which the handshake must end.
    hello_after: int = 0
    #: Cycles without an acknowledgement, while flits wait for one, after which the link is dead.
    stall_after: int = 0
    #: Places of the elastic buffer between the far end's clock and this end's; 0: both ends have one clock.
    elastic: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.flit, data.StructLayout) or "vc" not in self.flit.members:
            raise TypeError(f"link flit must be a StructLayout with a field 'vc', not {self.flit!r}")

        def check(name: str, low: int, high: int) -> None:
            check_range("link", name, getattr(self, name), low, high)

        def derive(name: str, value: int) -> None:
            if getattr(self, name) == 0:
                object.__setattr__(self, name, value)

        check("vcs", 1, min(16, 1 << data.Layout.cast(self.flit)["vc"].width))
        check("vc_depth", 1, 64)
        check("latency", 1, 4096)
        check("map_bits", 1, 32)
        derive("reserve", self.vc_depth)
        check("reserve", self.vc_depth, 1 << 12)
        # A flit holds its place for a round trip when nothing is lost. One that was lost once arrives a round trip
        # later, lost twice two, and those behind it wait: with three round trips neither holds anything up. The credits
        # that wait at the router are part of window and pool.
        waiting = self.vcs * self.vc_depth
        derive("window", 1 << ceil_log2(3 * self.round_trip + waiting))
        derive("pool", 3 * self.round_trip + self.vcs * self.reserve)
        check("window", 2, 1 << 13)
        if self.window & (self.window - 1):
            raise ValueError(f"link window must be a power of two, not {self.window}")
        check("pool", self.vcs * self.reserve, 1 << 14)
        # A channel that loses 99 of 100 frames is silent for so long once in 10^17 times.
        derive("dead_after", max(4096, 4 * self.round_trip))
        derive("hello_after", 8 * (self.dead_after + self.window))
        derive("stall_after", 8 * self.dead_after)
        for name in ("dead_after", "hello_after", "stall_after"):
            check(name, self.round_trip, 1 << 24)
        if self.elastic != 0:
            check("elastic", 4, 1 << 10)
            if self.elastic & (self.elastic - 1):
                raise ValueError(f"link elastic must be 0 or a power of two, not {self.elastic}")

    @classmethod
    def for_torus(cls, torus: TorusConfig, **fields: int) -> LinkConfig:
        """A link between routers of `torus`; `fields` are the others of this class."""
        return cls(flit=flit_layout(torus), vcs=torus.vcs, vc_depth=torus.vc_depth, **fields)

    @property
    def round_trip(self) -> int:
        """Cycles from a credit given to the router until its place can be given again, when nothing waits."""
        return 2 * self.latency + self.vcs + _PIPELINE

    @property
    def flit_bits(self) -> int:
        return self.flit.size

    @property
    def vc_bits(self) -> int:
        return max(1, ceil_log2(self.vcs))

    @property
    def window_bits(self) -> int:
        """Bits of a place in the window."""
        return ceil_log2(self.window)

    @property
    def seq_bits(self) -> int:
        """Bits of sequence and transmission numbers: twice the window, so that old and new can be told apart."""
        return self.window_bits + 1

    @property
    def slot_bits(self) -> int:
        """Bits of a place in the pool."""
        return max(1, ceil_log2(self.pool))

    @property
    def count_bits(self) -> int:
        """Bits of the counts of places freed: twice the pool."""
        return ceil_log2(self.pool + 1) + 1

    @property
    def shared(self) -> int:
        """Places of the pool that any channel may take."""
        return self.pool - self.vcs * self.reserve
