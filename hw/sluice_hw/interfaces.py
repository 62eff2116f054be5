"""Signatures and layouts on the seams between units; each is described once, here."""

from __future__ import annotations

from amaranth.hdl import unsigned
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, Signature

from . import isa
from .config import ChipConfig

__all__ = [
    "VMEM_LATENCY", "AccReadSignature", "AccWriteSignature", "SlicePortSignature", "UnitSignature",
    "VmemReadSignature", "VmemWriteSignature",
    "op_layout", "vmem_write_layout",
]

#: Cycles from the transfer of a VMEM read request to its data.
VMEM_LATENCY = 2
#: Cycles from the transfer of an accumulator read request to its data.
ACC_LATENCY = 1
ADDR_BITS = 32


def op_layout() -> data.StructLayout:
    """A micro-op as the sequencer puts it into a unit's queue: the word, with addresses and predicates resolved.

    ``a``, ``b``, ``c`` are the values of the op's address registers in the order of its table; ``wait`` and
    ``signal`` have
    a bit per :class:`isa.Unit`; ``accumulate`` and ``swap`` are PULSE_ARRAY's, resolved; ``pc`` names the word in
    errors.
    """
    return data.StructLayout({
        "word": unsigned(isa.WORD_BITS),
        "a": unsigned(ADDR_BITS),
        "b": unsigned(ADDR_BITS),
        "c": unsigned(ADDR_BITS),
        "wait": unsigned(len(isa.Unit)),
        "signal": unsigned(len(isa.Unit)),
        "accumulate": unsigned(1),
        "swap": unsigned(1),
        "pc": unsigned(16),
    })


class VmemReadSignature(Signature):
    """Requester's view of a VMEM read port of ``width`` bytes at any byte address.

    The data of a request transferred in cycle t stands on ``rsp_data`` (byte 0 first) in cycle t + VMEM_LATENCY, with
    ``rsp_valid``; there is no way to hold it back. A ``masked`` port also says which bytes it uses, so that the banks
    of the others stay free for other ports.
    """

    def __init__(self, width: int, *, masked: bool = False) -> None:
        self.width = width
        self.masked = masked
        request = {"addr": ADDR_BITS, "mask": width} if masked else {"addr": ADDR_BITS}
        super().__init__({
            "req": Out(stream.Signature(data.StructLayout(request))),
            "rsp_valid": In(1),
            "rsp_data": In(data.ArrayLayout(8, width)),
        })


def vmem_write_layout(width: int) -> data.StructLayout:
    """Payload of a VMEM write: byte i of ``data`` goes to ``addr + i`` where bit i of ``mask`` is set."""
    return data.StructLayout({"addr": ADDR_BITS, "data": data.ArrayLayout(8, width), "mask": width})


class VmemWriteSignature(Signature):
    """Requester's view of a VMEM write port of ``width`` bytes."""

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__({"req": Out(stream.Signature(vmem_write_layout(width)))})


class AccReadSignature(Signature):
    """Requester's view of the accumulators' read port: a row of ``cols`` int32, ACC_LATENCY cycles after the
    transfer."""

    def __init__(self, cols: int) -> None:
        self.cols = cols
        super().__init__({
            "req": Out(stream.Signature(data.StructLayout({"row": ADDR_BITS}))),
            "rsp_valid": In(1),
            "rsp_data": In(data.ArrayLayout(32, cols)),
        })


class AccWriteSignature(Signature):
    """Requester's view of the accumulators' write port (chips of bf16): whole rows, seen by reads granted later."""

    def __init__(self, cols: int) -> None:
        self.cols = cols
        super().__init__({
            "req": Out(stream.Signature(data.StructLayout({"row": ADDR_BITS, "data": data.ArrayLayout(32, cols)}))),
        })


class SlicePortSignature(Signature):
    """Requester's view of HBM: trains of whole slices, in beats of ``hbm_beat_bytes`` bytes.

    A read request is answered by ``count x slice_beats`` beats, or by a single beat with ``error`` and ``last`` when
    the train is refused. A write request is followed by its beats on ``write_data`` (also when it will be refused) and
    answered once on ``write_done``. Requests of a kind are served in order.
    """

    def __init__(self, config: ChipConfig) -> None:
        beat = data.ArrayLayout(8, config.hbm_beat_bytes)
        request = data.StructLayout({"slice": ADDR_BITS, "count": 16})
        super().__init__({
            "read": Out(stream.Signature(request)),
            "read_data": In(stream.Signature(data.StructLayout({"data": beat, "last": 1, "error": 1}))),
            "write": Out(stream.Signature(request)),
            "write_data": Out(stream.Signature(data.StructLayout({"data": beat}))),
            "write_done": In(stream.Signature(data.StructLayout({"error": 1}))),
        })


def fault_layout() -> data.StructLayout:
    """Why a unit stopped: an :class:`isa.Error`, the word's address, and a value that helps (an address, a field)."""
    return data.StructLayout({"code": isa.Error, "pc": 16, "info": 32})


class UnitSignature(Signature):
    """A unit's connection to the sequencer side, from the unit's view.

    ``op``: its queue. ``take``: the unit holds ``take.valid`` with the mask of units it needs a token from, and has
    them when ``ready``; ``missing`` is the part of the mask that has none. ``give``: a bit per unit, one cycle per
    token. ``state``: the unit's :class:`isa.Cause` this cycle. ``idle``: nothing started and not finished (the queue is
    not the unit's business). ``fault``: pulses with its payload. ``started`` / ``finished``: pulse per op (setup words
    excluded), with the ``pc``, for the event ring.
    """

    def __init__(self) -> None:
        n = len(isa.Unit)
        super().__init__({
            "op": In(stream.Signature(op_layout())),
            "take": Out(stream.Signature(unsigned(n))),
            "missing": In(n),
            "give": Out(n),
            "state": Out(isa.Cause),
            "idle": Out(1, init=1),
            "fault_valid": Out(1),
            "fault": Out(fault_layout()),
            "started": Out(1),
            "started_pc": Out(16),
            "finished": Out(1),
            "finished_pc": Out(16),
        })
