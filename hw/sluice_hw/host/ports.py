"""AXI ports as flat signals, with the names from which FPGA tools infer an interface."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Member, Out

from .. import csr

__all__ = ["AXI_PREFIX", "AXIL_PREFIX", "Burst", "Resp", "axi4_members", "axi_lite_members", "forward"]

AXIL_PREFIX = "s_axil"
AXI_PREFIX = "s_axi"


class Resp(enum.IntEnum):
    """AXI response codes used here."""

    OKAY = 0
    SLVERR = 2


class Burst(enum.IntEnum):
    """AXI burst types."""

    FIXED = 0
    INCR = 1
    WRAP = 2


def axi_lite_members() -> dict[str, Member]:
    """Ports of an AXI4-Lite subordinate with 32-bit data, ``s_axil_*``."""
    return _prefixed(AXIL_PREFIX, {
        "awaddr": In(csr.ADDRESS_BITS), "awprot": In(3), "awvalid": In(1), "awready": Out(1),
        "wdata": In(32), "wstrb": In(4), "wvalid": In(1), "wready": Out(1),
        "bresp": Out(2), "bvalid": Out(1), "bready": In(1),
        "araddr": In(csr.ADDRESS_BITS), "arprot": In(3), "arvalid": In(1), "arready": Out(1),
        "rdata": Out(32), "rresp": Out(2), "rvalid": Out(1), "rready": In(1),
    })


def axi4_members(
    id_bits: int, *, address_bits: int = csr.HostMap.ADDRESS_BITS, data_bytes: int = 8
) -> dict[str, Member]:
    """Ports of an AXI4 subordinate, ``s_axi_*``; by default the host's, with 64-bit data."""
    def address(x: str) -> dict[str, Member]:
        return {
            f"{x}id": In(id_bits), f"{x}addr": In(address_bits), f"{x}len": In(8), f"{x}size": In(3),
            f"{x}burst": In(2), f"{x}lock": In(1), f"{x}cache": In(4), f"{x}prot": In(3), f"{x}qos": In(4),
            f"{x}valid": In(1), f"{x}ready": Out(1),
        }

    return _prefixed(AXI_PREFIX, {
        **address("aw"),
        "wdata": In(8 * data_bytes), "wstrb": In(data_bytes), "wlast": In(1), "wvalid": In(1), "wready": Out(1),
        "bid": Out(id_bits), "bresp": Out(2), "bvalid": Out(1), "bready": In(1),
        **address("ar"),
        "rid": Out(id_bits), "rdata": Out(8 * data_bytes), "rresp": Out(2), "rlast": Out(1), "rvalid": Out(1),
        "rready": In(1),
    })


def _prefixed(prefix: str, members: dict[str, Member]) -> dict[str, Member]:
    return {f"{prefix}_{name}": member for name, member in members.items()}


def forward(m: Module, outer: wiring.Component, inner: wiring.Component, names: Iterable[str]) -> None:
    """Connect ports of a component to ports of the same names and directions of a part of it."""
    for name in names:
        if outer.signature.members[name].flow is In:
            m.d.comb += getattr(inner, name).eq(getattr(outer, name))
        else:
            m.d.comb += getattr(outer, name).eq(getattr(inner, name))
