"""A simulated torus of routers, network interfaces and real links, each module compiled once, and cables with faults.

:func:`build` makes the parts, :class:`Network` runs them; ``network_driver.cpp`` makes the traffic and accounts for
every packet.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sluice.build import build_shared
from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.frame import Reason, State, wire_bits
from sluice_hw.ici.interface import Port
from sluice_hw.ici.link import COUNTERS, Link
from sluice_hw.ici.link_config import LinkConfig
from sluice_hw.ici.network_interface import NetworkInterface
from sluice_hw.ici.route_table import route_entry
from sluice_hw.ici.routing import RoutePlan, neighbour
from verif.models.link import Channel, cable_text
from verif.models.part import PART_HEADER, Part, build_part, defines
from verif.models.torus import build_router

__all__ = ["Flow", "Model", "Network", "Totals", "build"]

_TOTALS = ("cycles", "created", "delivered", "cut", "answered", "cut_answered", "missing", "unanswered", "flits",
           "wrong", "stuck", "answers_made", "responses_dropped", "lost", "retries", "bad_frames")  # fmt: skip


class Totals(ctypes.Structure):
    """Packets: ``created`` = ``delivered`` + ``cut`` + ``answered`` (requests that came back) + ``missing``. Requests
    that were cut are answered, too (``cut_answered``), or are ``unanswered``. The last five are the hardware's counts.
    """

    _fields_ = [(name, ctypes.c_uint64) for name in _TOTALS]


@dataclass(frozen=True)
class Flow:
    """Packets from one node to another."""

    created: int
    delivered: int
    cut: int
    answered: int


@dataclass(frozen=True)
class Model:
    """Compiled parts and driver, for tori up to the size of `torus`."""

    torus: TorusConfig
    link: LinkConfig
    router_part: Part
    interface_part: Part
    link_part: Part
    driver: Path


def build(torus: TorusConfig, link: LinkConfig, *, opt: str = "-O1") -> Model:
    """Compile the model, or take it from the cache."""
    if torus.data_bits < torus.header_bits + 24:
        raise ValueError(
            f"the driver needs 24 bits behind the header of {torus.header_bits}, not {torus.data_bits} in all"
        )
    router = build_router(torus, opt=opt)
    interface = build_part(NetworkInterface(torus), name="interface", opt=opt)
    end = build_part(Link(torus=torus, config=link), name="link", opt=opt)
    names = list(COUNTERS)
    constants = {
        "VC_BITS": torus.vc_bits, "DATA_BITS": torus.data_bits, "HEADER_BITS": torus.header_bits,
        "X_BITS": torus.x_bits, "Y_BITS": torus.y_bits, "FLIT_BITS": torus.flit_bits, "VCS": torus.vcs,
        "WIRE_BITS": wire_bits(link), "COUNTERS": len(names),
        **{name.upper(): names.index(name) for name in ("lost", "retries", "bad_frames")},
    }  # fmt: skip
    text = defines(constants) + PART_HEADER
    text += router.pin_names("R") + interface.pin_names("I") + end.pin_names("L") + cable_text()
    text += "".join((Path(__file__).parent / name).read_text() for name in ("flits.hpp", "network_driver.cpp"))
    # The driver has no Verilog of its own.
    driver = build_shared("network", "module none(input clk);\nendmodule\n", "none", text, opt=opt)
    return Model(torus, link, router, interface, end, driver)


class Network:
    """A running torus. Routes are unknown until :meth:`routes`.

    Parameters
    ----------
    model
        From :func:`build`.
    rows, cols
        Up to those of the model's torus.
    seed
        Of everything random.
    """

    def __init__(self, model: Model, rows: int, cols: int, *, seed: int) -> None:
        #: Of this run; bits of coordinates are the model's.
        self.config = dataclasses.replace(model.torus, rows=rows, cols=cols)
        self.link = model.link
        lib = self._lib = ctypes.CDLL(str(model.driver))
        lib.network_new.restype = ctypes.c_void_p
        lib.network_wrong.restype = ctypes.c_char_p
        lib.network_status.restype = ctypes.c_uint32
        lib.network_new.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_uint64, *[ctypes.c_void_p] * 3]
        lib.network_cable.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
        lib.network_traffic.argtypes = [ctypes.c_void_p, ctypes.c_double, *[ctypes.c_int] * 4]
        lib.network_send.argtypes = [ctypes.c_void_p, *[ctypes.c_int] * 4]
        lib.network_run.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.c_uint64]
        lib.network_status.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
        for name in ("network_free", "network_expect_faults", "network_wrong"):
            getattr(lib, name).argtypes = [ctypes.c_void_p]
        for name in ("network_routes", "network_totals", "network_flows"):
            getattr(lib, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._types = [part.load() for part in (model.router_part, model.interface_part, model.link_part)]
        self._handle = lib.network_new(rows, cols, seed, *(ctypes.addressof(kind) for kind in self._types))

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *exc: object) -> None:
        self._lib.network_free(self._handle)
        self._handle = None

    def cables(self, channel: Channel, links: Iterable[tuple[int, int]] | None = None) -> None:
        """Set the cables that leave by these ports of these nodes; all by default."""
        every = [(node, port) for node in range(self.config.nodes) for port in Port]
        for node, port in every if links is None else links:
            self._lib.network_cable(self._handle, node, int(port), ctypes.byref(channel.fault()))

    def cut(self, node: int, port: int, *, both: bool = True) -> None:
        """Cut a cable, in both directions or only in the one that leaves here."""
        far = neighbour(self.config, node, Port(port)), Port(port).opposite
        self.cables(Channel(latency=self.link.latency, cut_at=0), [(node, port), far][: 1 + both])
        self._lib.network_expect_faults(self._handle)

    def traffic(self, load: float, *, length: tuple[int, int] = (1, 1), messages: int = 2,
                backpressure: int = 0) -> None:  # fmt: skip
        """What :meth:`run` creates: `load` flits per node and cycle to random nodes. `backpressure`: percent of the
        time in which a node takes from some lanes only."""
        self._lib.network_traffic(self._handle, load, *length, messages, backpressure)

    def send(self, src: int, dst: int, *, message: int = 0, length: int = 1) -> None:
        """Put one packet into the queue of its source."""
        self._lib.network_send(self._handle, src, dst, message, length)

    def routes(self, plan: RoutePlan) -> None:
        """Write the tables of all nodes, one entry per node and cycle; that takes place in the next :meth:`run`."""
        entries = bytes(
            route_entry(code) for order in (0, 1) for src in range(self.config.nodes) for code in plan.table(src, order)
        )
        self._lib.network_routes(self._handle, entries)
        self._lib.network_expect_faults(self._handle)  # where its route changes, packets of a flow may overtake others

    def run(self, cycles: int) -> None:
        """Run with new packets."""
        self._lib.network_run(self._handle, cycles, 1, 0, 1 << 40)

    def drain(self, *, patience: int, cycles: int = 1_000_000) -> Totals:
        """Run without new packets until nothing has moved for `patience` cycles."""
        self._lib.network_run(self._handle, cycles, 0, 1, patience)
        return self.totals()

    def totals(self) -> Totals:
        totals = Totals()
        self._lib.network_totals(self._handle, ctypes.byref(totals))
        return totals

    def status(self, node: int, port: int) -> tuple[State, Reason]:
        """What the end of the link at this port of this node says."""
        word = self._lib.network_status(self._handle, node, int(port))
        return State(word & 3), Reason(word >> 2 & 7)

    def states(self) -> Counter[State]:
        """How many ends of links are in each state."""
        return Counter(self.status(node, port)[0] for node in range(self.config.nodes) for port in Port)

    def dead_links(self) -> list[tuple[int, Port]]:
        """Links of which an end says that it is dead: what software reads to make a new plan."""
        return [(n, p) for n in range(self.config.nodes) for p in Port if self.status(n, p)[0] == State.DEAD]

    def flows(self) -> dict[tuple[int, int, int], Flow]:
        """By source, destination and message."""
        nodes = self.config.nodes
        counts = np.zeros((nodes, nodes, 2, 4), np.uint64)
        self._lib.network_flows(self._handle, counts.ctypes.data_as(ctypes.c_void_p))
        return {
            (src, dst, message): Flow(*(int(n) for n in counts[src, dst, message]))
            for src in range(nodes) for dst in range(nodes) for message in range(2)
        }  # fmt: skip

    @property
    def first_wrong(self) -> str:
        """What went wrong first, or an empty text."""
        return self._lib.network_wrong(self._handle).decode()
