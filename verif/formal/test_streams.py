"""Streams inside the chip hold valid and payload until the transfer, and trains of slices have their shape.

- DMA load and store: requests, beats, accesses to VMEM, and the tokens they ask for (which a fault may withdraw).
- Weight loader: accesses to VMEM. (The feeder's are in ``test_address_bounds.py``.)
- Arbiter: what one port began is finished, whatever the others want; every port gets its own answers.
- Slice buffer: a write request is followed by one slice of beats and one answer, a read is taken to its last beat.

FIFOs inside are replaced by queues of any course, so these hold whatever is in them. Unbounded, by induction; 2 ports.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from sluice_hw.config import ChipConfig
from sluice_hw.dma.front import TrainFront
from sluice_hw.dma.load import DmaLoad
from sluice_hw.dma.store import DmaStore
from sluice_hw.hbm.arbiter import SliceArbiter
from sluice_hw.host.slice_buffer import SliceBuffer
from sluice_hw.weights import WeightLoader
from verif.formal.claims import AnyQueue, Check, altered, open_up, planted, prove_bites, prove_checks

pytestmark = pytest.mark.formal

CONFIG = ChipConfig(rows=2, cols=2, vmem_bytes=192, vmem_banks=8, acc_bytes=6 * 8, feed_ports=2)


#: Streams hold whatever the verdict on a train is, so that its products need not be products.
AnyFront = altered(TrainFront, ("total.eq(rows * row_bytes)", "total.eq(row_bytes)"),
                   ("span.eq((rows - 1) * pitch)", "span.eq(pitch)"))


class AnyRam(wiring.Component):
    """``Ram1R1W`` with any contents: ``rdata`` changes only with a read."""

    made: list = []

    def __init__(self, *, depth: int, width: int, granularity: int | None = None) -> None:
        bits = max(1, (depth - 1).bit_length())
        super().__init__({
            "re": In(1), "raddr": In(bits), "rdata": Out(width), "we": In(width // (granularity or width)),
            "waddr": In(bits), "wdata": In(width), "any": In(width),
        })
        self.made.append(self)

    def elaborate(self, platform) -> Module:
        m = Module()
        with m.If(self.re):
            m.d.sync += self.rdata.eq(self.any)
        return m


class LoadCheck(Check):
    """The load engine."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(DmaLoad, *bugs, SyncFIFO=AnyQueue, TrainFront=AnyFront)

    def describe(self, m: Module) -> None:
        dut = self.unit(CONFIG)
        m.submodules.dut, inside = open_up(dut)
        self.free_inputs(m, dut, but=("unit__op__valid", "unit__op__payload", "read_data__valid", "read_data__payload"))
        self.free_queues(m)
        self.held_stream(m, dut.unit.op, "op")
        self.held_stream(m, dut.read_data, "read_data")
        self.claim_held(m, dut.read, "read")
        self.claim_held(m, dut.vmem.req, "vmem")
        self.claim_held(m, dut.unit.take, "take", unless=inside["stopped"])


class StoreCheck(Check):
    """The store engine."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(DmaStore, *bugs, SyncFIFO=AnyQueue, TrainFront=AnyFront)

    def describe(self, m: Module) -> None:
        dut = self.unit(CONFIG)
        m.submodules.dut, inside = open_up(dut)
        self.free_inputs(m, dut, but=("unit__op__valid", "unit__op__payload"))
        self.free_queues(m)
        self.held_stream(m, dut.unit.op, "op")
        self.claim_held(m, dut.write, "write")
        self.claim_held(m, dut.write_data, "beat")
        self.claim_held(m, dut.vmem.req, "vmem")
        self.claim_held(m, dut.unit.take, "take", unless=inside["stopped"])


class LoaderCheck(Check):
    """The weight loader's accesses."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(WeightLoader, *bugs, fifo=SimpleNamespace(SyncFIFO=AnyQueue, SyncFIFOBuffered=AnyQueue))

    def describe(self, m: Module) -> None:
        m.submodules.dut = dut = self.unit(CONFIG)
        self.free_inputs(m, dut)
        self.free_queues(m)
        self.claim_held(m, dut.vmem.req, "vmem")


class ArbiterCheck(Check):
    """Two ports and a memory."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(SliceArbiter, *bugs, SyncFIFO=AnyQueue)

    def describe(self, m: Module) -> None:
        dut = self.unit(CONFIG, 2)
        m.submodules.dut, inside = open_up(dut)
        memory = dut.memory
        self.free_inputs(m, dut, but=tuple(
            f"{side}__{name}__{part}" for side, names in (
                ("ports__0", ("read", "write", "write_data")), ("ports__1", ("read", "write", "write_data")),
                ("memory", ("read_data", "write_done"))) for name in names for part in ("valid", "payload")))
        self.free_queues(m)
        for i, port in enumerate(dut.ports):
            for name in ("read", "write", "write_data"):
                self.held_stream(m, getattr(port, name), f"{name}{i}")
        for name in ("read_data", "write_done"):
            self.held_stream(m, getattr(memory, name), name)
        for name in ("read", "write", "write_data"):
            self.claim_held(m, getattr(memory, name), f"memory_{name}")
        for i, port in enumerate(dut.ports):
            for name in ("read_data", "write_done"):
                self.claim_held(m, getattr(port, name), f"port{i}_{name}")
        # A transfer on one side is one on the other, of exactly one port.
        for name in ("read", "write", "write_data", "read_data", "write_done"):
            mine = [getattr(port, name) for port in dut.ports]
            theirs = getattr(memory, name)
            moves = [p.valid & p.ready for p in mine]
            self.claim(m, ~(moves[0] & moves[1]) & ((moves[0] | moves[1]) == (theirs.valid & theirs.ready)))
            for p, move in zip(mine, moves, strict=True):
                with m.If(move):
                    self.claim(m, Value.cast(theirs.payload) == Value.cast(p.payload))
        # Who asked stands in a queue (whose order is the library's), and its answer goes to nobody else.
        for queue, ask, answer in (("readers", "read", "read_data"), ("writers", "write", "write_done")):
            owners = inside[queue]
            for i, port in enumerate(dut.ports):
                asked, answered = getattr(port, ask), getattr(port, answer)
                self.claim(m, ~(asked.valid & asked.ready) | (owners.w_en & (owners.w_data == i)))
                self.claim(m, ~answered.valid | (owners.r_rdy & (owners.r_data == i)))


class SliceBufferCheck(Check):
    """The slice buffer's port to memory."""

    def __init__(self, *bugs: tuple[str, str]) -> None:
        super().__init__()
        self.unit = altered(SliceBuffer, *bugs, Ram1R1W=AnyRam)

    def describe(self, m: Module) -> None:
        AnyRam.made.clear()
        dut = self.unit(config=CONFIG)
        m.submodules.dut, inside = open_up(dut)
        (ram,) = AnyRam.made
        m.d.comb += ram.any.eq(self.free(len(ram.any), "ram"))
        self.free_inputs(m, dut)
        hbm = dut.hbm
        self.claim_held(m, hbm.read, "read")
        self.claim_held(m, hbm.write, "write")
        self.claim_held(m, hbm.write_data, "beat")
        # After a write request one slice of beats, then the answer; nothing else meanwhile.
        beats, answers, reading = Signal(range(CONFIG.slice_beats + 1)), Signal(), Signal()
        with m.If(hbm.write.valid & hbm.write.ready):
            m.d.sync += [beats.eq(CONFIG.slice_beats), answers.eq(1)]
        with m.If(hbm.write_data.valid & hbm.write_data.ready):
            m.d.sync += beats.eq(beats - 1)
        with m.If(hbm.write_done.valid & hbm.write_done.ready):
            m.d.sync += answers.eq(0)
        with m.If(hbm.read.valid & hbm.read.ready):
            m.d.sync += reading.eq(1)
        with m.If(hbm.read_data.valid & hbm.read_data.ready & hbm.read_data.payload.last):
            m.d.sync += reading.eq(0)
        self.claim(m, ~(hbm.write.valid | hbm.read.valid) | (~answers & ~reading & (beats == 0)))
        self.claim(m, hbm.write_data.valid == (beats != 0))
        self.claim(m, hbm.write_done.ready == (answers & (beats == 0)))
        self.claim(m, hbm.read_data.ready == reading)
        self.claim(m, ~dut.idle | (~answers & ~reading))
        self.claim(m, (hbm.read.payload.count == 1) & (hbm.write.payload.count == 1))
        # Host and memory never meet in the RAM.
        self.claim(m, ~dut.hit | (~answers & ~reading))
        if not self.mutant:
            self.invariant(m, ~answers | (beats == 0) | (inside["index"] == CONFIG.slice_beats + 1 - beats))
            self.invariant(m, answers | (beats == 0))


CHECKS = {"load": LoadCheck, "store": StoreCheck, "loader": LoaderCheck, "arbiter": ArbiterCheck,
          "slice_buffer": SliceBufferCheck}


def test_streams():
    prove_checks("streams", {name: check() for name, check in CHECKS.items()}, depth=2)


BUGS = {
    "arbiter: changes its mind": (ArbiterCheck, ("locked.eq(~out.ready)", "locked.eq(0)")),
    "load: request withdrawn": (LoadCheck, ("with m.If(self.read.ready):", "if True:")),
    "load: line overwritten": (LoadCheck, ("out_free.eq(~writing | self.vmem.req.ready)", "out_free.eq(1)")),
    "store: reads without room": (StoreCheck, ("walk.active & packer.credit", "walk.active & ~self.write.ready")),
    "store: beat overwritten": (StoreCheck, ("free.eq(~out_valid | self.beat.ready)", "free.eq(1)")),
    "loader: does not wait": (LoaderCheck, ("(~asked_valid | done)", "(~asked_valid | asked_valid)")),
    "arbiter: both are served": (ArbiterCheck, ("r.ready.eq(room & mine & out.ready)", "r.ready.eq(room & out.ready)")),
    "arbiter: the other's answer": (ArbiterCheck, ("owns = owners.r_rdy & (owners.r_data == i)",
                                                   "owns = owners.r_rdy & (owners.r_data != i)")),
    "buffer: a beat too many": (SliceBufferCheck, ("with m.If(index == beats):", "with m.If(index == beats + 1):")),
    "buffer: beat changes": (SliceBufferCheck, (
        "                with m.If(hbm.write_data.ready):\n                    m.d.comb += [ram.re",
        "                if True:\n                    m.d.comb += [ram.re")),
    "buffer: no wait for the answer": (SliceBufferCheck, ('m.next = "WRITE_DONE"', 'm.next = "IDLE"')),
}


@pytest.mark.parametrize("bug", planted(BUGS))
def test_bug_is_found(bug):
    check, change = bug
    prove_bites("streams_bites", check(change), depth=14)
