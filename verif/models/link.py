"""Two ends of a link as one compiled model, with routers, channels and clocks in C++ around them.

:func:`build` makes the model, :class:`Pair` runs it: millions of flits a minute, every one checked. The channel is
between the wires, one direction at a time; its faults are drawn from a seed.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from amaranth.hdl import DomainRenamer, Module
from amaranth.lib import wiring

from sluice_hw.emit.verilog import to_verilog
from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.frame import wire_bits
from sluice_hw.ici.link import COUNTERS, Link
from sluice_hw.ici.link_config import LinkConfig
from verif.models.driven import build_driven
from verif.models.part import defines

__all__ = ["Channel", "End", "Pair", "Router", "TORUS", "build", "cable_text"]

#: Torus of the tests: four channels, flits of 64 bits and their side bits.
TORUS = TorusConfig(data_bits=64, orders=1)


class _Ends(wiring.Component):
    """Links a and b, each with its own clock; with an elastic buffer the other's clock comes with the wire."""

    def __init__(self, a: Link, b: Link) -> None:
        self.links = {"a": a, "b": b}
        super().__init__({
            **{f"{end}_{name}": member for end, link in self.links.items()
               for name, member in link.signature.members.items()},
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        for end, link in self.links.items():
            other = "ba"["ab".index(end)]
            m.submodules[end] = DomainRenamer({"sync": end, "wire": other})(link)
            for name, member in link.signature.members.items():
                mine, its = getattr(self, f"{end}_{name}"), getattr(link, name)
                if member.is_port:
                    m.d.comb += mine.eq(its)
                else:
                    wiring.connect(m, wiring.flipped(mine), its)
        return m


class Fault(ctypes.Structure):
    """A :class:`Channel` for ``cable.hpp``."""

    _fields_ = [(name, kind) for name, kind in (
        ("latency", ctypes.c_uint32), ("jitter", ctypes.c_uint32), ("reach", ctypes.c_uint32),
        ("drop", ctypes.c_double), ("corrupt", ctypes.c_double), ("bit_errors", ctypes.c_double),
        ("twice", ctypes.c_double), ("late", ctypes.c_double), ("cut_at", ctypes.c_uint64),
    )]  # fmt: skip


class _Router(ctypes.Structure):
    _fields_ = [("rate", ctypes.c_double), ("take", ctypes.c_double), ("channels", ctypes.c_uint32),
                ("blocked", ctypes.c_uint32), ("flits", ctypes.c_uint64)]  # fmt: skip


class _Report(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("sent", "received", "wrong", "missing", "died_at", "ended_at",
                                              "over_credit", "first_latency")),
        *((name, ctypes.c_uint32) for name in ("state", "reason", "mismatch", "theirs", "dead", "ended")),
        ("counters", ctypes.c_uint32 * len(COUNTERS)),
        ("sent_vc", ctypes.c_uint64 * 16),
        ("received_vc", ctypes.c_uint64 * 16),
    ]  # fmt: skip


@dataclass(kw_only=True)
class Channel:
    """One direction of the cable.

    Rates are per word and below 1: ``drop``, ``corrupt`` (1 to 5 bits flip), ``twice`` (the word comes again in place
    of the next, which is lost), ``late`` (it comes up to ``reach`` words later than its followers). ``bit_errors`` is
    per bit. ``jitter`` is the most that the latency grows, by steps at random times; the order stays.
    """

    latency: int = 1
    jitter: int = 0
    reach: int = 0
    drop: float = 0.0
    corrupt: float = 0.0
    bit_errors: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    #: Cycle from which nothing passes.
    cut_at: int = 2**63

    def fault(self) -> Fault:
        """As the cable in C++ takes it."""
        return Fault(**vars(self))


@dataclass(kw_only=True)
class Router:
    """A router at one end: sends ``flits`` at most, at ``rate`` per cycle, on the ``channels`` of a mask; takes a flit
    off its buffer with probability ``take`` per cycle and channel, none of channels in the mask ``blocked``."""

    rate: float = 1.0
    take: float = 1.0
    channels: int = 0xFF
    blocked: int = 0
    flits: int = 2**63


@dataclass(kw_only=True)
class End:
    """What happened at one end: as a sender (``sent``) and as a receiver (the rest); times are its own cycles."""

    sent: int = 0
    received: int = 0
    #: Flits that were not the next of their channel, or altered.
    wrong: int = 0
    missing: int = 0
    died_at: int = 0
    ended_at: int = 0
    over_credit: int = 0
    #: Cycles from the first flit sent to its arrival.
    first_latency: int = 0
    state: int = 0
    reason: int = 0
    mismatch: int = 0
    theirs: int = 0
    dead: int = 0
    ended: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    sent_vc: list[int] = field(default_factory=list)
    received_vc: list[int] = field(default_factory=list)


def cable_text() -> str:
    """C++ text of the cable."""
    return (Path(__file__).parent / "cable.hpp").read_text()


@cache
def build(a: tuple, b: tuple = (), torus: TorusConfig = TORUS, torus_b: TorusConfig | None = None) -> Path:
    """The model of two ends whose :class:`LinkConfig` have these fields (as sorted pairs; empty `b`: like `a`)."""
    torus_b = torus_b or torus
    one = LinkConfig.for_torus(torus, **dict(a))
    two = LinkConfig.for_torus(torus_b, **dict(b or a))
    verilog = to_verilog(_Ends(Link(torus=torus, config=one), Link(torus=torus_b, config=two)), name="ends")
    text = cable_text() + (Path(__file__).parent / "link_driver.cpp").read_text()
    # Verilator's C++ names have no double underscores.
    text = re.sub(r"(?<=[a-z])__(?=[a-z])", "___05F", text)
    values = {
        "DATA_BITS_A": torus.data_bits, "DATA_BITS_B": torus_b.data_bits, "VC_BITS_A": torus.vc_bits,
        "VC_BITS_B": torus_b.vc_bits, "VCS_A": torus.vcs, "VCS_B": torus_b.vcs, "DEPTH": torus.vc_depth,
        "COUNTERS": len(COUNTERS), "WIRE_A": wire_bits(one), "WIRE_B": wire_bits(two),
    }  # fmt: skip
    return build_driven("link_pair", verilog, "ends", defines(values) + text, opt="-O2")


class Pair:
    """A running pair of links.

    Parameters
    ----------
    seed
        Of everything random.
    torus, torus_b, b, fields
        Torus and :class:`LinkConfig` fields of end a; `torus_b` and `b` where end b differs.
    periods
        Of the two clocks, in any unit; they may differ only with ``elastic``.
    """

    def __init__(self, *, seed: int, torus: TorusConfig = TORUS, torus_b: TorusConfig | None = None,
                 b: dict | None = None, periods: tuple[int, int] = (1000, 1000), **fields: int) -> None:  # fmt: skip
        def pairs(values):
            return tuple(sorted(values.items()))

        if periods[0] != periods[1] and not fields.get("elastic"):
            raise ValueError(f"periods must be equal without an elastic buffer, not {periods}")
        self.config = LinkConfig.for_torus(torus, **fields)
        lib = self._lib = ctypes.CDLL(str(build(pairs(fields), pairs(b) if b is not None else (), torus, torus_b)))
        lib.pair_new.restype = ctypes.c_void_p
        lib.pair_new.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64]
        lib.pair_delete.argtypes = [ctypes.c_void_p]
        lib.pair_run.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int]
        lib.pair_run.restype = ctypes.c_uint64
        lib.pair_channel.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(Fault)]
        lib.pair_router.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Router)]
        lib.pair_reset.argtypes = [ctypes.c_void_p, ctypes.c_int]
        lib.pair_report.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Report)]
        self._pair = lib.pair_new(seed, *periods)

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_) -> None:
        self._lib.pair_delete(self._pair)
        self._pair = None

    def channels(self, a_to_b: Channel, b_to_a: Channel | None = None) -> None:
        """Set the cable's two directions (the second like the first by default)."""
        for direction, channel in enumerate((a_to_b, b_to_a or a_to_b)):
            self._lib.pair_channel(self._pair, direction, channel.fault())

    def routers(self, a: Router, b: Router | None = None) -> None:
        """Set the traffic at both ends."""
        for end, router in enumerate((a, b or a)):
            self._lib.pair_router(self._pair, end, _Router(**vars(router)))

    def reset(self, end: int) -> None:
        """Hold end 0 or 1 in reset for three cycles, router and link."""
        self._lib.pair_reset(self._pair, end)

    def run(self, cycles: int, *, until_done: bool = False) -> int:
        """Run for so many cycles of end a, or (`until_done`) until all flits of both routers have arrived.

        Returns the cycles that were run.
        """
        return self._lib.pair_run(self._pair, cycles, until_done)

    def end(self, index: int) -> End:
        """Report of end 0 (a) or 1 (b)."""
        raw = _Report()
        self._lib.pair_report(self._pair, index, raw)
        values = {name: getattr(raw, name) for name, _ in _Report._fields_}
        values["counters"] = dict(zip(COUNTERS, raw.counters, strict=True))
        values["sent_vc"], values["received_vc"] = list(raw.sent_vc), list(raw.received_vc)
        return End(**values)
