"""Bench of the store engine against byte arrays: VMEM and HBM are models here."""

import itertools
from collections.abc import Iterable

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge, Timer

from sluice_hw import isa
from sluice_hw.interfaces import VMEM_LATENCY
from verif.transactors import (
    StreamDriver,
    StreamMonitor,
    StreamSink,
    bursts,
    parameter,
    random_pauses,
    seeded,
    start_up,
)
from verif.unit.dma.engine import Engine, Fault
from verif.unit.memory import CONFIGS, Rows, pick_rows, slice_shape, to_bytes, to_int

CONFIG = CONFIGS[parameter("CONFIG")]
D, SLICE, SLICES = CONFIG.hbm_beat_bytes, CONFIG.slice_bytes, CONFIG.hbm_slices
ST = isa.Unit.ST
MXU, VPU = 1 << isa.Unit.MXU, 1 << isa.Unit.VPU


class Reader:
    """VMEM's wide read port: grants with pauses, answers after VMEM_LATENCY, and knows only the bytes in the mask."""

    def __init__(self, dut, memory: bytes, rng, pauses: Iterable[bool] | None) -> None:
        self.dut, self.memory, self.rng = dut, memory, rng
        self.monitor = StreamMonitor(dut, "vmem__req")
        self._pauses = iter(pauses) if pauses is not None else None
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        dut, pipe = self.dut, [None] * VMEM_LATENCY
        dut.vmem__rsp_valid.value = 0
        while True:
            dut.vmem__req__ready.value = int(not (self._pauses is not None and next(self._pauses, False)))
            await RisingEdge(dut.clk)
            fires = int(dut.vmem__req__valid.value) and int(dut.vmem__req__ready.value)
            pipe = [int(dut.vmem__req__payload.value) if fires else None, *pipe[:-1]]
            request = pipe[VMEM_LATENCY - 1]
            dut.vmem__rsp_valid.value = int(request is not None)
            line = bytearray(self.rng.randbytes(D))
            if request is not None:
                addr, mask = request & 0xFFFFFFFF, request >> 32
                assert addr % D == 0 and mask
                for i in range(D):
                    if mask >> i & 1:
                        line[i] = self.memory[addr + i]
            dut.vmem__rsp_data.value = to_int(line)


class Bench:
    """Models around the engine, and the beats each train must give."""

    def __init__(self, dut, rng, *, op=None, take=None, read=None, request=None, beat=None, done=None) -> None:
        self.dut, self.rng = dut, rng
        self.vmem = rng.randbytes(CONFIG.vmem_bytes)
        self.engine = Engine(dut, "unit", ST, CONFIG, op_pauses=op, take_pauses=take)
        self.reads = Reader(dut, self.vmem, rng, read)
        self.requests = StreamSink(dut, "write", shape=slice_shape(CONFIG, "write"), pauses=request)
        self.beats = StreamSink(dut, "write_data", pauses=beat, callback=self._collect)
        self.dones = StreamDriver(dut, "write_done", pauses=done)
        self.done_monitor = StreamMonitor(dut, "write_done")
        self.refused: set[int] = set()
        #: Slice, count and bytes of each train, in order; bytes and trains that have arrived.
        self.trains: list[tuple[int, int, bytes]] = []
        self.arrived, self.complete = bytearray(), 0
        self.ops: list[tuple[int, int, int]] = []
        cocotb.start_soon(self._check_ends())

    def _collect(self, payload: int) -> None:
        self.arrived += to_bytes(payload, D)
        slice_, count, values = self.trains[self.complete]
        if len(self.arrived) == count * SLICE:
            assert self.arrived == values, f"train to slice {slice_}"
            self.arrived, self.complete = bytearray(), self.complete + 1
            self.dones.send_nowait(int(slice_ in self.refused))

    async def _check_ends(self) -> None:
        """An op ends after its train was answered, in order, with its tokens."""
        done = 0
        while True:
            await RisingEdge(self.dut.clk)
            await Timer(1, unit="ns")  # past all monitors of this edge
            for cycle, pc in self.engine.finished[done:]:
                want_pc, signal, trains = self.ops[done]
                assert pc == want_pc
                given = [mask for at, mask in self.engine.given if at == cycle]
                assert given == ([signal] if signal else []), f"op {pc} gave {given}, not {signal}"
                assert len(self.done_monitor.items) >= trains, f"op {pc} ended before HBM's answer"
                done += 1

    def send(self, rows: Rows, hbm: int, *, shape: bool = True, pad: int = 0, wait: int = 0, signal: int = 0) -> None:
        """Queue a shape and a train, and do in the model what it does."""
        pc = len(self.ops)
        if shape:
            self.engine.shape(rows, pad)
        self.engine.train(rows, hbm, wait=wait, signal=signal, pc=pc)
        values = bytes(self.vmem[a] for a in rows.addresses()).ljust(rows.count * SLICE, bytes([pad]))
        self.trains.append((hbm, rows.count, values))
        self.ops.append((pc, signal, len(self.trains)))

    def sync(self, *, wait: int = 0, signal: int = 0) -> None:
        self.engine.sync(wait=wait, signal=signal, pc=len(self.ops))
        self.ops.append((len(self.ops), signal, len(self.trains)))

    async def finish(self) -> None:
        """Wait for all ops; nothing may be left over."""
        await self.engine.ends(len(self.ops))
        assert not self.engine.faults, self.engine.faults
        await ClockCycles(self.dut.clk, 3)
        assert self.engine.is_idle()
        assert len(self.engine.finished) == len(self.engine.started) == len(self.ops)
        assert self.complete == len(self.trains) and not self.arrived
        assert [(r["slice"], r["count"]) for r in self.requests.items] == [t[:2] for t in self.trains]


async def started(dut, name: str, *, lo: int = 0, hi: int = SLICES, **pauses) -> tuple:
    await start_up(dut, hbm_lo=lo, hbm_hi=hi)
    rng = seeded(name)
    return Bench(dut, rng, **pauses), rng


async def random_run(dut, name: str, count: int, pauses) -> None:
    rng = seeded(f"{name} pauses")
    streams = ("op", "take", "read", "request", "beat", "done")
    bench, draw = await started(dut, name, **{key: pauses(rng) for key in streams})
    slices = 0
    for _ in range(count):
        if draw.random() < 0.15:
            bench.sync(wait=draw.getrandbits(4), signal=draw.getrandbits(4))
        rows = pick_rows(draw, CONFIG)
        slices += rows.count
        bench.send(
            rows, draw.randint(0, SLICES - rows.count), pad=draw.choice([0, 128, draw.getrandbits(8)]),
            wait=draw.choice([0, MXU, VPU | MXU]), signal=draw.getrandbits(4),
        )  # fmt: skip
    await bench.finish()
    waits = [op["wait"] for op in bench.engine.ops.sent if op["wait"]]
    assert bench.engine.takes.items == waits
    assert len(bench.engine.slices) == slices


@cocotb.test()
async def random_trains(dut):
    await random_run(dut, "trains", 150, lambda rng: random_pauses(rng.choice([0.1, 0.4]), rng))


@cocotb.test()
async def random_bursts(dut):
    await random_run(dut, "bursts", 100, lambda rng: bursts(rng, 12))


@cocotb.test()
async def without_pauses(dut):
    await random_run(dut, "straight", 150, lambda rng: None)


@cocotb.test()
async def every_alignment(dut):
    """Rows of each length around a line, from each offset in it, with an odd pitch."""
    bench, _ = await started(dut, "alignment")
    for offset, row_bytes in itertools.product(range(0, D, 1 if D <= 16 else 5), (1, 2, D - 1, D, D + 1)):
        rows = Rows(offset, 3, row_bytes, row_bytes + 3, -(-3 * row_bytes // SLICE))
        bench.send(rows, offset % (SLICES - rows.count), pad=offset + 1)
    await bench.finish()


@cocotb.test()
async def rates(dut):
    """One chunk read a cycle, one beat sent a cycle."""
    bench, _ = await started(dut, "rates")
    beats = SLICE // D
    for rows, cycles in (
        (Rows(0, 2, SLICE, SLICE, 2), 2 * beats),  # contiguous and aligned
        (Rows(0, SLICE, 1, 1, 1), beats),  # bytes that follow each other are one row
        (Rows(3, SLICE // 8, 8, 8, 1), beats + 1),  # contiguous, in a line more than there are beats
        (Rows(3 * D, 4, D, -D, -(-4 * D // SLICE)), 4),  # aligned rows, backwards
        (Rows(0, 3, D, 2 * D, -(-3 * D // SLICE)), 3),  # ... and apart
        (Rows(D - 2, 5, 4, D + 1, 1), 7),  # rows of two chunks while they cross the end of a line
        (Rows(0, 1, 1, 1, 3), 1),  # nearly all of it padding
    ):
        first, first_beat = len(bench.reads.monitor.items), len(bench.beats.items)
        bench.send(rows, 0)
        await bench.finish()
        read, sent = bench.reads.monitor.cycles[first:], bench.beats.cycles[first_beat:]
        assert rows.chunks(D) == cycles
        assert len(read) == cycles and read[-1] - read[0] == cycles - 1, (rows, read)
        # The last beat follows the last chunk at once, or its padding ends when all beats could have.
        total = rows.count * beats
        assert len(sent) == total
        packed = -(-rows.rows * rows.row_bytes // D)
        assert sent[-1] == read[-1] + VMEM_LATENCY + 2 + total - packed, (rows, read, sent)
    first = len(bench.beats.items)
    for i in range(6):
        bench.send(Rows(0, 1, SLICE, SLICE, 1), i, shape=i == 0)
    await bench.finish()
    sent = bench.beats.cycles[first:]
    apart = max(beats, 2)  # a train takes two cycles at the head of the queue
    assert len(sent) == 6 * beats and sent[-1] - sent[0] == 5 * apart + beats - 1, sent


@cocotb.test()
async def start_latency(dut):
    """Two cycles from a train at the head of the queue to its request and first read; with its shape two more."""
    bench, _ = await started(dut, "latency")
    rows = Rows(0, 1, D, D, 1)
    bench.send(rows, 0)
    for shape, cycles in ((True, 4), (False, 2)):
        await bench.finish()
        bench.send(rows, 1, shape=shape)
        offered = None
        while not int(dut.write__valid.value):
            await RisingEdge(dut.clk)
            if offered is None and int(dut.unit__op__valid.value):
                offered = bench.engine.cycle
        assert bench.engine.cycle - offered == cycles, (shape, offered, bench.engine.cycle)
        assert int(dut.vmem__req__valid.value)
    await bench.finish()


@cocotb.test()
async def starts_when_read(dut):
    """A train takes its tokens in the cycle of the last read of the one before, and not earlier."""
    rng = seeded("starts pauses")
    bench, _ = await started(dut, "starts", read=random_pauses(0.5, rng))
    rows = Rows(1, 6, 9, 11, 1)
    for i in range(8):
        bench.send(rows, i, shape=i == 0, wait=MXU)
    await bench.finish()
    chunks = rows.chunks(D)
    last_reads = bench.reads.monitor.cycles[chunks - 1 :: chunks]
    assert bench.engine.takes.cycles[1:] == last_reads[:-1]


@cocotb.test()
async def states(dut):
    """What the engine says it waits for."""
    bench, _ = await started(
        dut, "states", take=itertools.chain([True] * 20), read=itertools.chain([True] * 40),
        beat=itertools.chain([True] * 80), done=itertools.chain([True] * 20),
    )  # fmt: skip
    length = 12 * D  # more than the engine holds
    bench.engine.missing = isa.Unit.MXU
    bench.send(Rows(0, 1, length, length, -(-length // SLICE)), 0, wait=VPU | MXU | 2)
    await bench.finish()
    seen = [cause for cause, _ in itertools.groupby(bench.engine.states)]
    # The setup word; the check; the start; reads that fill the buffer; beats; the answer.
    C = isa.Cause
    expected = [C.BUSY, C.IDLE, C.TOKEN_MXU, C.BUSY, C.VMEM, C.BUSY, C.HBM, C.BUSY, C.HBM, C.BUSY, C.IDLE]
    assert seen == expected, seen


async def fails(dut, bench: Bench, fault: Fault, finished: int) -> None:
    """The engine reports ``fault``, has finished so many ops, is idle, and takes no more."""
    while not bench.engine.faults:
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, 60)
    assert [f for _, f in bench.engine.faults] == [fault]
    assert len(bench.engine.finished) == finished
    assert bench.engine.is_idle() and bench.engine.states[-1] == isa.Cause.IDLE
    taken = len(bench.engine.ops.sent)
    bench.engine.sync(signal=15, pc=99)
    await ClockCycles(dut.clk, 30)
    assert len(bench.engine.ops.sent) == taken and len(bench.engine.given) == finished


SIZE = CONFIG.vmem_bytes
COUNT = isa.field_index(isa.Op.HBM_WRITE_SLICE, "count")
#: Case: rows, first slice, fault. The checks are the load engine's, whose bench has more of them.
REFUSED = {
    "no_shape": (Rows(0, 0, 0, 0, 1), 4, isa.Error.ILLEGAL_FIELD, COUNT),
    "too_long": (Rows(0, 3, SLICE, 0, 2), 4, isa.Error.ILLEGAL_FIELD, COUNT),
    "below": (Rows(0, 1, 1, 0, 1), 1, isa.Error.HBM_RANGE, 1),
    "last_slice": (Rows(0, 1, 1, 0, 3), 10, isa.Error.HBM_RANGE, 10),
    "row_0": (Rows(SIZE - 3, 2, 4, -16, 1), 4, isa.Error.VMEM_RANGE, SIZE - 3),
    "last_row": (Rows(SIZE - 23, 3, 4, 10, 1), 4, isa.Error.VMEM_RANGE, SIZE - 3),
    "negative": (Rows(19, 3, 4, -10, 1), 4, isa.Error.VMEM_RANGE, (1 << 32) - 1),
}


@cocotb.test()
@cocotb.parametrize(case=list(REFUSED))
async def refused(dut, case):
    """Checks fail before anything moves; the train before is carried out."""
    rows, hbm, code, info = REFUSED[case]
    bench, _ = await started(dut, case, lo=2, hi=12)
    if rows.rows:
        bench.send(Rows(0, 1, SLICE, 0, 1), 5, signal=3)
        bench.engine.shape(rows)
    bench.engine.train(rows, hbm, signal=5, pc=77, wait=2)
    await fails(dut, bench, Fault(code, 77, info), 1 if rows.rows else 0)
    assert len(bench.requests.items) == len(bench.trains) == bench.complete and not bench.arrived


@cocotb.test()
async def on_the_bounds(dut):
    """The first and last slice, byte and row that are allowed are."""
    bench, _ = await started(dut, "bounds", lo=2, hi=12)
    bench.send(Rows(SIZE - 14, 2, 4, 10, 1), 2)
    bench.send(Rows(20, 3, 4, -10, 1), 11)
    bench.send(Rows(SIZE - 8, 2, 4, 4, 10), 2)
    bench.send(Rows(SIZE - SLICE, 1, SLICE, 0, 1), 11)
    await bench.finish()


@cocotb.test()
async def error_from_hbm(dut):
    """A train that HBM refuses gives no tokens; the one already on its way still ends."""
    bench, _ = await started(dut, "error", done=itertools.chain([False, *[True] * 60]))
    bench.refused.add(7)
    rows = Rows(5, 3, 3, 7, 1)
    for pc, (hbm, signal) in enumerate([(6, 1), (7, 2), (8, 4)]):
        bench.send(rows, hbm, shape=pc == 0, signal=signal)
    del bench.ops[1]
    await fails(dut, bench, Fault(isa.Error.HBM_ERROR, 1, 7), 2)
