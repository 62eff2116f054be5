"""A simulated torus: Verilated routers, wired and driven in C++, with every packet accounted for.

The router's module is compiled once; the driver makes an instance per node (``top=False``), or drives the Verilog torus
itself, small ones only, because Verilator flattens it (``top=True``).
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np

from sluice_hw.emit.verilog import to_verilog
from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.interface import Port
from sluice_hw.ici.router import Router
from sluice_hw.ici.routing import RoutePlan, neighbour
from sluice_hw.ici.torus import torus_verilog
from verif.models.driven import build_driven
from verif.models.part import Part, defines, pins_of, wrapper

__all__ = ["PATTERNS", "Counts", "Torus", "build", "build_router"]

#: Where packets go, by the number that the driver knows.
PATTERNS = {"uniform": 0, "tornado": 1, "transpose": 2, "hotspot": 3, "all-to-one": 4}

_FIELDS = ("cycles", "created", "delivered", "latency_sum", "packets_created", "packets_delivered", "packets_cut",
           "packets_returned", "packets_refused", "backlog", "hops", "wrong", "stuck", "longest")  # fmt: skip


class Counts(ctypes.Structure):
    """What happened since the last :meth:`Torus.clear`; see the driver's struct."""

    _fields_ = [(name, ctypes.c_uint64) for name in _FIELDS]

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in _FIELDS}


def build(config: TorusConfig, *, top: bool = False, latency: int = 1, opt: str = "-O2") -> Path:
    """Compile the model, or take it from the cache."""
    return _build(config, top, latency, opt).library


def build_router(config: TorusConfig, *, opt: str = "-O2") -> Part:
    """The router of the same library, for other simulations."""
    return _build(config, False, 1, opt)


def _build(config: TorusConfig, top: bool, latency: int, opt: str) -> Part:
    if not 32 < config.flit_bits <= 64:
        raise ValueError(f"the driver takes flits of 33 to 64 bits, not {config.flit_bits}")
    if top:
        text, pins = torus_verilog(config, latency=latency), ()
    else:
        router = Router(config)
        text, pins = to_verilog(router, name="sluice_router"), pins_of(router)
    constants = {
        "VC_BITS": config.vc_bits, "DATA_BITS": config.data_bits,
        "HEADER_BITS": config.header_bits, "X_BITS": config.x_bits, "Y_BITS": config.y_bits, "ORDERS": config.orders,
    }  # fmt: skip
    head = defines(constants) + "#define TORUS_TOP\n" * top
    driver = "".join((Path(__file__).parent / name).read_text() for name in ("flits.hpp", "torus_driver.cpp"))
    if not top:
        driver += wrapper(router)
    library = build_driven(
        "torus" if top else "router", text, "sluice_torus" if top else "sluice_router", head + driver, opt=opt,
        verilator_args=["-O3", "-Wno-WIDTHEXPAND", "-Wno-WIDTHTRUNC", "--output-split", "40000"],
    )  # fmt: skip
    return Part(library, pins)


class Torus:
    """One run of a torus.

    Parameters
    ----------
    config
        Its ``rows`` and ``cols`` are those of the run. One torus at a time.
    library
        From :func:`build`, with a config that differs in ``rows`` and ``cols`` alone, with as many bits of coordinates.
    plan
        Routes that the sources use at first.
    """

    def __init__(self, config: TorusConfig, library: Path, *, seed: int = 1, plan: RoutePlan | None = None) -> None:
        self.config = config
        lib = self._lib = ctypes.CDLL(str(library))
        lib.torus_new.restype = ctypes.c_void_p
        lib.torus_wrong.restype = ctypes.c_char_p
        lib.torus_new.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p]
        lib.torus_run.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.c_uint64]
        lib.torus_traffic.argtypes = [ctypes.c_void_p, ctypes.c_double, *[ctypes.c_int] * 8]
        lib.torus_kill.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
        lib.torus_hold.argtypes = [ctypes.c_void_p, ctypes.c_int]
        lib.torus_send.argtypes = [ctypes.c_void_p, *[ctypes.c_int] * 5]
        for name in ("torus_free", "torus_clear", "torus_wrong"):
            getattr(lib, name).argtypes = [ctypes.c_void_p]
        for name in ("torus_counts", "torus_arrived", "torus_routes"):
            getattr(lib, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._handle = lib.torus_new(config.rows, config.cols, seed, self._table(plan or RoutePlan(config)))

    def __enter__(self) -> Torus:
        return self

    def __exit__(self, *exc: object) -> None:
        self._lib.torus_free(self._handle)
        self._handle = None

    def _table(self, plan: RoutePlan) -> ctypes.c_char_p:
        return ctypes.c_char_p(route_bytes(plan))

    def traffic(self, load: float, *, length: int | tuple[int, int] = 1, pattern: str = "uniform", messages: int = 2,
                orders: int = 2, hot: int = 0, hot_percent: int = 10, backpressure: int = 0) -> None:  # fmt: skip
        """Set what :meth:`run` creates: ``load`` flits per node and cycle, packets of ``length`` flits (or a range).

        ``messages`` and ``orders`` 1: requests only, XY only. ``backpressure``: percent of the time in which a node's
        lanes do not take anything.
        """
        low, high = (length, length) if isinstance(length, int) else length
        orders = min(orders, self.config.orders)
        self._lib.torus_traffic(
            self._handle, load, low, high, PATTERNS[pattern], messages, orders, hot, hot_percent, backpressure
        )

    def routes(self, plan: RoutePlan) -> None:
        """Give all sources new routes."""
        self._lib.torus_routes(self._handle, self._table(plan))

    def kill(self, node: int, port: int) -> None:
        """A link dies, both directions."""
        for end in ((node, Port(port)), (neighbour(self.config, node, Port(port)), Port(port).opposite)):
            self._lib.torus_kill(self._handle, *end)

    def hold(self, *, requests: bool) -> None:
        """Whether requests that arrive are left where they are, at every node."""
        self._lib.torus_hold(self._handle, 0x55 if requests else 0)

    def send(self, src: int, dst: int, *, message: int = 0, order: int = 0, length: int = 1) -> None:
        """Put one packet into the queue of its source."""
        self._lib.torus_send(self._handle, src, dst, message, order, length)

    def run(self, cycles: int, *, generate: bool = True, patience: int = 20_000) -> Counts:
        """Run, with new packets or (not `generate`) without."""
        self._lib.torus_run(self._handle, cycles, generate, 0, patience)
        return self.counts()

    def drain(self, cycles: int = 1_000_000, *, patience: int = 20_000) -> Counts:
        """Run without new packets until all are accounted for."""
        self._lib.torus_run(self._handle, cycles, 0, 1, patience)
        return self.counts()

    def clear(self) -> None:
        """Begin to count anew."""
        self._lib.torus_clear(self._handle)

    def counts(self) -> Counts:
        counts = Counts()
        self._lib.torus_counts(self._handle, ctypes.byref(counts))
        return counts

    @property
    def first_wrong(self) -> str:
        """What went wrong first, or an empty text."""
        return self._lib.torus_wrong(self._handle).decode()

    def arrived(self) -> np.ndarray:
        """Flits by destination, port of the lane, and source."""
        out = np.zeros((self.config.nodes, 4, self.config.nodes), np.uint64)
        self._lib.torus_arrived(self._handle, out.ctypes.data_as(ctypes.c_void_p))
        return out


@cache
def route_bytes(plan: RoutePlan) -> bytes:
    """Tables of all nodes for the driver: ``[order][src][dst]``, 255 without a route."""
    rows = [plan.table(src, order) for order in (0, 1) for src in range(plan.config.nodes)]
    return bytes(255 if code is None else code for row in rows for code in row)
