"""Frames: what a link sends in every cycle, and the greeting by which its ends agree on it.

A frame carries one flit or none, and always the whole state of the other direction: what was received, which
transmissions were lost, how many places were freed. These are counts and not events, so that a lost frame loses
nothing: the next one says it again.
"""

from __future__ import annotations

import enum

from amaranth.hdl import unsigned
from amaranth.lib import data
from amaranth.lib.wiring import Out, Signature

from .crc import CRC_BITS
from .link_config import LinkConfig

__all__ = [
    "HELLO_BITS", "VERSION", "Kind", "Parameter", "Reason", "State", "WireSignature", "feedback_layout", "frame_layout",
    "hello_layout", "parameters", "wire_bits",
]  # fmt: skip

#: Of the protocol; raise it with any change of the layouts or of what they mean.
VERSION = 1


class Kind(enum.IntEnum):
    """Kind of a frame, its two lowest bits. 0 is no frame, so that a quiet wire is none."""

    DATA = 1
    IDLE = 2
    HELLO = 3


class State(enum.IntEnum):
    """State of one end of a link."""

    CLEAR = 0
    HELLO = 1
    UP = 2
    DEAD = 3


class Reason(enum.IntEnum):
    """Why an end is dead."""

    NONE = 0
    #: Nothing valid was heard for ``dead_after`` (in the handshake: ``hello_after``) cycles.
    SILENT = 1
    #: The ends differ in a :class:`Parameter`.
    MISMATCH = 2
    #: The other end says that it is dead.
    PEER_DEAD = 3
    #: The other end started anew.
    PEER_RESTART = 4
    #: Frames arrive, but nothing sent was acknowledged for ``stall_after`` cycles.
    NO_PROGRESS = 5
    #: The router at this end is gone.
    CLOSED = 6
    #: More flits arrived than the pool has places: the other end keeps other rules.
    OVERFLOW = 7


class Parameter(enum.IntEnum):
    """What both ends must have alike, in the order of the comparison."""

    NONE = 0
    VERSION = 1
    FLIT_BITS = 2
    VCS = 3
    POOL = 4
    RESERVE = 5
    SEQ_BITS = 6
    MAP_BITS = 7


_WIDTHS = {
    Parameter.VERSION: 8, Parameter.FLIT_BITS: 16, Parameter.VCS: 8, Parameter.POOL: 16, Parameter.RESERVE: 16,
    Parameter.SEQ_BITS: 8, Parameter.MAP_BITS: 8,
}  # fmt: skip


def parameters(config: LinkConfig) -> dict[Parameter, int]:
    """What an end with `config` says of itself."""
    return {
        Parameter.VERSION: VERSION, Parameter.FLIT_BITS: config.flit_bits, Parameter.VCS: config.vcs,
        Parameter.POOL: config.pool, Parameter.RESERVE: config.reserve, Parameter.SEQ_BITS: config.seq_bits,
        Parameter.MAP_BITS: config.map_bits,
    }  # fmt: skip


def hello_layout() -> data.StructLayout:
    """The greeting, the same whatever the parameters are, so that ends that differ can read each other.

    ``seen``: ``echo`` is the ``nonce`` of a greeting that this end heard. ``up``, ``dead``: so is this end.
    """
    fields = {"kind": unsigned(2), "seen": unsigned(1), "up": unsigned(1), "dead": unsigned(1)}
    fields |= {"nonce": unsigned(8), "echo": unsigned(8)}
    fields |= {parameter.name.lower(): unsigned(width) for parameter, width in _WIDTHS.items()}
    return data.StructLayout(fields | {"crc": unsigned(CRC_BITS)})


#: Bits of a greeting, its checksum included.
HELLO_BITS = hello_layout().size


def feedback_layout(config: LinkConfig) -> data.StructLayout:
    """What a frame says about the other direction.

    ``ack``: flits before this sequence number were received in order. ``heard``: next transmission expected. ``map``:
    bit i set: transmission ``heard - 1 - i`` arrived, else it was lost. ``freed``: how many flits of channel
    ``freed_vc`` have left the pool (modulo its width).
    """
    return data.StructLayout({
        "ack": unsigned(config.seq_bits),
        "heard": unsigned(config.seq_bits),
        "map": unsigned(config.map_bits),
        "freed_vc": unsigned(config.vc_bits),
        "freed": unsigned(config.count_bits),
    })


def frame_layout(config: LinkConfig) -> data.StructLayout:
    """A frame. ``number`` counts transmissions, an IDLE frame says the next one; ``seq``, ``flit`` matter for DATA."""
    return data.StructLayout({
        "kind": unsigned(2),
        "number": unsigned(config.seq_bits),
        "seq": unsigned(config.seq_bits),
        "feedback": feedback_layout(config),
        "flit": unsigned(config.flit_bits),
        "crc": unsigned(CRC_BITS),
    })


def wire_bits(config: LinkConfig) -> int:
    """Bits that cross the link in a cycle."""
    return max(frame_layout(config).size, HELLO_BITS)


class WireSignature(Signature):
    """Sender's view of one direction of the wire: a word per cycle, or none."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        super().__init__({"valid": Out(1), "word": Out(bits)})
