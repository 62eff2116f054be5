"""Flits, virtual channels and the header of a packet.

A packet is one or more flits, in order on one virtual channel: the first has ``head``, the last ``tail``, a packet of
one flit both. The number of a virtual channel is made of three bits, from the low end:

- ``late``: 0 before the dateline of a ring, 1 behind it (a packet that does not cross it may be in either);
- ``order``: 0 for x first (XY), 1 for y first (YX); left out where ``TorusConfig.orders`` is 1;
- ``message``: 0 request, 1 response. Responses always sink, requests may wait for responses.
"""

from __future__ import annotations

import enum

from amaranth.hdl import Value, unsigned
from amaranth.lib import data

from .config import TorusConfig

__all__ = ["Message", "Order", "flit_layout", "header_layout", "header_of", "order_of", "vc_fields", "vc_number"]


class Message(enum.IntEnum):
    """Class of a message."""

    REQUEST = 0
    RESPONSE = 1


class Order(enum.IntEnum):
    """Order in which a packet goes through the dimensions."""

    XY = 0
    YX = 1


def vc_number(config: TorusConfig, *, message: int, order: int, late: int) -> int:
    """Number of a virtual channel.

    Raises
    ------
    ValueError
        For an order that the torus does not have.
    """
    if order >= config.orders:
        raise ValueError(f"order must be below {config.orders} in this torus, not {order}")
    return late | order << 1 | message << (2 if config.orders == 2 else 1)


def vc_fields(config: TorusConfig, vc: int) -> tuple[Message, Order, int]:
    """Message, order and late bit of a virtual channel."""
    order = (vc >> 1) & 1 if config.orders == 2 else 0
    return Message(vc >> (2 if config.orders == 2 else 1)), Order(order), vc & 1


def flit_layout(config: TorusConfig) -> data.StructLayout:
    """A flit: ``vc`` is the virtual channel of the buffer that the flit is sent to.

    ``error`` is set on a tail whose packet was cut short by a dead link, and on all flits of a packet that a router
    could not pass on and gave to its own node instead.
    """
    return data.StructLayout({
        "data": unsigned(config.data_bits),
        "vc": unsigned(config.vc_bits),
        "head": unsigned(1),
        "tail": unsigned(1),
        "error": unsigned(1),
    })


def header_layout(config: TorusConfig) -> data.StructLayout:
    """The header, at the low end of a head flit's data.

    ``x_down``/``y_down`` are the directions to go in each dimension (1: towards lower coordinates), chosen once, at the
    source, so that a change of routes never touches a packet under way. ``x_late``/``y_late`` are the late bits that
    the packet starts each dimension with. ``stamp``: its turn, see :mod:`.fair`; the
    router fills it in.
    """
    return data.StructLayout({
        "dst_x": unsigned(config.x_bits),
        "dst_y": unsigned(config.y_bits),
        "src_x": unsigned(config.x_bits),
        "src_y": unsigned(config.y_bits),
        "x_down": unsigned(1),
        "y_down": unsigned(1),
        "x_late": unsigned(1),
        "y_late": unsigned(1),
        "stamp": unsigned(config.stamp_bits),
    })


def header_of(config: TorusConfig, flit: data.View) -> data.View:
    """The header of a head flit."""
    return data.View(header_layout(config), flit.data[: config.header_bits])


def order_of(config: TorusConfig, vc: Value) -> Value | int:
    """The order that a virtual channel's number says."""
    return vc[1] if config.orders == 2 else 0
