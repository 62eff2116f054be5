"""Bench of the load engine against byte arrays: HBM and VMEM are models here."""

import itertools

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge, Timer

from sluice_hw import isa
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
from verif.unit.memory import CONFIGS, Bytes, Rows, pick_rows, slice_shape, to_bytes, to_int

CONFIG = CONFIGS[parameter("CONFIG")]
D, SLICE, SLICES = CONFIG.hbm_beat_bytes, CONFIG.slice_bytes, CONFIG.hbm_slices
LD = isa.Unit.LD
MXU, VPU = 1 << isa.Unit.MXU, 1 << isa.Unit.VPU


class Bench:
    """Models behind the engine's ports, and VMEM as it must be after each op."""

    def __init__(self, dut, rng, *, op=None, take=None, read=None, beat=None, line=None) -> None:
        self.dut = dut
        self.hbm = rng.randbytes(CONFIG.hbm_bytes)
        self.vmem, self.expected = Bytes(CONFIG.vmem_bytes), Bytes(CONFIG.vmem_bytes)
        self.engine = Engine(dut, "unit", LD, CONFIG, op_pauses=op, take_pauses=take)
        self.beats = StreamDriver(dut, "read_data", pauses=beat)
        self.beat_monitor = StreamMonitor(dut, "read_data")
        self.reads = StreamSink(dut, "read", shape=slice_shape(CONFIG, "read"), pauses=read, callback=self._serve)
        self.lines = StreamSink(dut, "vmem__req", pauses=line, callback=self._store)
        #: First slices of trains that HBM answers with an error.
        self.refused: set[int] = set()
        self.ops: list[tuple[int, int, bytes]] = []
        cocotb.start_soon(self._check_ends())

    def _serve(self, request: dict) -> None:
        if request["slice"] in self.refused:
            self.beats.send_nowait(3 << 8 * D)
            return
        first, last = request["slice"] * SLICE, (request["slice"] + request["count"]) * SLICE
        for at in range(first, last, D):
            self.beats.send_nowait(to_int(self.hbm[at : at + D]) | (at + D == last) << 8 * D)

    def _store(self, payload: int) -> None:
        addr, data, mask = payload & 0xFFFFFFFF, to_bytes(payload >> 32 & (1 << 8 * D) - 1, D), payload >> (32 + 8 * D)
        assert addr % D == 0 and mask
        for i in range(D):
            if mask >> i & 1:
                self.vmem.data[addr + i] = data[i]

    async def _check_ends(self) -> None:
        """When an op ends, VMEM holds all of its bytes and those of earlier ops, and nothing of later ones."""
        done = 0
        while True:
            await RisingEdge(self.dut.clk)
            await Timer(1, unit="ns")  # past all monitors of this edge
            for cycle, pc in self.engine.finished[done:]:
                want_pc, signal, vmem = self.ops[done]
                assert pc == want_pc
                given = [mask for at, mask in self.engine.given if at == cycle]
                assert given == ([signal] if signal else []), f"op {pc} gave {given}, not {signal}"
                assert self.vmem.data.tobytes() == vmem, f"VMEM after op {pc}"
                done += 1

    def send(self, rows: Rows, hbm: int, *, shape: bool = True, wait: int = 0, signal: int = 0) -> None:
        """Queue a shape and a train, and do in the model what it does."""
        pc = len(self.ops)
        if shape:
            self.engine.shape(rows)
        self.engine.train(rows, hbm, wait=wait, signal=signal, pc=pc)
        for i, addr in enumerate(rows.addresses()):
            self.expected.data[addr] = self.hbm[hbm * SLICE + i]
        self.ops.append((pc, signal, self.expected.data.tobytes()))

    def sync(self, *, wait: int = 0, signal: int = 0) -> None:
        self.engine.sync(wait=wait, signal=signal, pc=len(self.ops))
        self.ops.append((len(self.ops), signal, self.expected.data.tobytes()))

    async def finish(self) -> None:
        """Wait for all ops; nothing may be left over."""
        await self.engine.ends(len(self.ops))
        assert not self.engine.faults, self.engine.faults
        # The end of a train that nobody wants may still be arriving.
        while not self.engine.is_idle() or not self.beats.idle:
            await RisingEdge(self.dut.clk)
        await ClockCycles(self.dut.clk, 3)
        assert len(self.engine.finished) == len(self.engine.started) == len(self.ops)


async def started(dut, name: str, *, lo: int = 0, hi: int = SLICES, **pauses) -> tuple:
    await start_up(dut, hbm_lo=lo, hbm_hi=hi)
    rng = seeded(name)
    return Bench(dut, rng, **pauses), rng


def place(rng, rows: Rows) -> int:
    return rng.randint(0, SLICES - rows.count)


async def random_run(dut, name: str, count: int, pauses) -> None:
    rng = seeded(f"{name} pauses")
    bench, draw = await started(dut, name, **{key: pauses(rng) for key in ("op", "take", "read", "beat", "line")})
    slices = 0
    for _ in range(count):
        if draw.random() < 0.15:
            bench.sync(wait=draw.getrandbits(4), signal=draw.getrandbits(4))
        rows = pick_rows(draw, CONFIG)
        slices += rows.count
        bench.send(rows, place(draw, rows), wait=draw.choice([0, MXU, VPU | MXU]), signal=draw.getrandbits(4))
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
        bench.send(rows, offset % (SLICES - rows.count))
    await bench.finish()


@cocotb.test()
async def rates(dut):
    """One chunk a cycle; aligned or contiguous rows a beat a cycle; trains without a pause between them."""
    bench, rng = await started(dut, "rates")
    beats = SLICE // D
    for rows, cycles in (
        (Rows(0, 2, SLICE, SLICE, 2), 2 * beats),  # contiguous and aligned
        (Rows(0, SLICE, 1, 1, 1), beats),  # bytes that follow each other are one row
        (Rows(3, SLICE // 8, 8, 8, 1), beats + 1),  # contiguous, in a line more than there are beats
        (Rows(3 * D, 4, D, -D, -(-4 * D // SLICE)), 4),  # aligned rows, backwards
        (Rows(0, 3, D, 2 * D, -(-3 * D // SLICE)), 3),  # ... and apart
        (Rows(D - 2, 5, 4, D + 1, 1), 7),  # rows of two chunks while they cross the end of a line
    ):
        first = len(bench.lines.items)
        bench.send(rows, place(rng, rows))
        await bench.finish()
        moved = bench.lines.cycles[first:]
        assert rows.chunks(D) == cycles
        assert len(moved) == cycles and moved[-1] - moved[0] == cycles - 1, (rows, moved)
    first = len(bench.lines.items)
    one = Rows(0, 1, SLICE, SLICE, 1)
    for i in range(6):
        bench.send(one, i, shape=i == 0)
    await bench.finish()
    moved = bench.lines.cycles[first:]
    apart = max(beats, 2)  # a train takes two cycles at the head of the queue
    assert len(moved) == 6 * beats and moved[-1] - moved[0] == 5 * apart + beats - 1, moved


@cocotb.test()
async def start_latency(dut):
    """Two cycles from a train at the head of the queue to its request; a shape just before it costs one more."""
    bench, _ = await started(dut, "latency")
    rows = Rows(0, 1, D, D, 1)
    bench.send(rows, 0)
    for shape, cycles in ((True, 4), (False, 2)):
        await bench.finish()
        bench.send(rows, 1, shape=shape)
        offered = asked = None
        while asked is None:
            await RisingEdge(dut.clk)
            if offered is None and int(dut.unit__op__valid.value):
                offered = bench.engine.cycle
            if int(dut.read__valid.value):
                asked = bench.engine.cycle
        assert asked - offered == cycles, (shape, offered, asked)
    await bench.finish()


@cocotb.test()
async def trains_outstanding(dut):
    """Requests go out ahead of the data, four at least."""
    bench, _ = await started(dut, "outstanding", beat=itertools.chain([True] * 100))
    for i in range(6):
        bench.send(Rows(0, 1, D, D, 1), i, shape=i == 0)
    await ClockCycles(dut.clk, 50)
    assert len(bench.reads.items) >= 4 and not bench.lines.items
    await bench.finish()


@cocotb.test()
async def states(dut):
    """What the engine says it waits for."""
    bench, _ = await started(
        dut, "states", take=itertools.chain([True] * 20), beat=itertools.chain([True] * 60),
        line=itertools.chain([True] * 150),
    )  # fmt: skip
    bench.engine.missing = isa.Unit.MXU
    bench.send(Rows(0, 1, SLICE, SLICE, 1), 0, wait=VPU | MXU | 1)
    await bench.finish()
    causes = [cause for cause, _ in itertools.groupby(bench.engine.states)]
    tokens = bench.engine.states.count(isa.Cause.TOKEN_MXU)
    # The setup word; the check; the start; beats that fill the engine until VMEM grants.
    expected = [isa.Cause.BUSY, isa.Cause.IDLE, isa.Cause.TOKEN_MXU, isa.Cause.BUSY, isa.Cause.HBM,
                isa.Cause.BUSY, isa.Cause.VMEM, isa.Cause.BUSY, isa.Cause.IDLE]  # fmt: skip
    assert causes == expected, causes
    assert 10 < tokens < 20


async def fails(dut, bench: Bench, fault: Fault, finished: int) -> None:
    """The engine reports ``fault``, has finished so many ops, is idle, and takes no more."""
    while not bench.engine.faults:
        await RisingEdge(dut.clk)
    await ClockCycles(dut.clk, 30)
    assert [f for _, f in bench.engine.faults] == [fault]
    assert len(bench.engine.finished) == finished
    assert bench.engine.is_idle() and bench.engine.states[-1] == isa.Cause.IDLE
    taken = len(bench.engine.ops.sent)
    bench.engine.sync(signal=15, pc=99)
    await ClockCycles(dut.clk, 30)
    assert len(bench.engine.ops.sent) == taken and len(bench.engine.given) == finished


SIZE = CONFIG.vmem_bytes
COUNT = isa.field_index(isa.Op.HBM_READ_SLICE, "count")
#: Case: rows, first slice, fault.
REFUSED = {
    "no_shape": (Rows(0, 0, 0, 0, 1), 4, isa.Error.ILLEGAL_FIELD, COUNT),
    "too_long": (Rows(0, 1, SLICE + 1, 0, 1), 4, isa.Error.ILLEGAL_FIELD, COUNT),
    "too_long_by_far": (Rows(0, (1 << 20) - 1, SIZE, 0, 65535), 4, isa.Error.ILLEGAL_FIELD, COUNT),
    "below": (Rows(0, 1, 1, 0, 1), 1, isa.Error.HBM_RANGE, 1),
    "behind": (Rows(0, 1, 1, 0, 1), 12, isa.Error.HBM_RANGE, 12),
    "last_slice": (Rows(0, 1, 1, 0, 3), 10, isa.Error.HBM_RANGE, 10),
    "wrapped": (Rows(0, 1, 1, 0, 4), 0xFFFFFFFE, isa.Error.HBM_RANGE, 0xFFFFFFFE),
    "row_0": (Rows(SIZE - 3, 2, 4, -16, 1), 4, isa.Error.VMEM_RANGE, SIZE - 3),
    "far": (Rows(0xFFFFFFFF, 1, 1, 0, 1), 4, isa.Error.VMEM_RANGE, 0xFFFFFFFF),
    "contiguous": (Rows(SIZE - 15, 4, 4, 4, 1), 4, isa.Error.VMEM_RANGE, SIZE - 3),
    "last_row": (Rows(SIZE - 23, 3, 4, 10, 1), 4, isa.Error.VMEM_RANGE, SIZE - 3),
    "negative": (Rows(19, 3, 4, -10, 1), 4, isa.Error.VMEM_RANGE, (1 << 32) - 1),
    "wrapped_rows": (Rows(8, 33, 1, 1 << 24, 1), 4, isa.Error.VMEM_RANGE, 8 + (1 << 29)),
    "steep": (Rows(8, 2, 1, -(1 << 25), 1), 4, isa.Error.VMEM_RANGE, (1 << 32) + 8 - (1 << 25)),
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
    assert bench.vmem.data.tobytes() == bench.expected.data.tobytes()
    assert len(bench.reads.items) == len(bench.ops)


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
    """A train that HBM refuses gives no tokens; those asked for already still come."""
    bench, _ = await started(dut, "error")
    bench.refused.add(7)
    rows = Rows(5, 3, 3, 7, 1)
    bench.send(rows, 6, signal=1)
    await bench.finish()
    bench.engine.train(rows, 7, signal=2, pc=50)
    bench.engine.train(rows, 8, signal=4, pc=51)
    for i, addr in enumerate(rows.addresses()):
        bench.expected.data[addr] = bench.hbm[8 * SLICE + i]
    bench.ops.append((51, 4, bench.expected.data.tobytes()))
    await fails(dut, bench, Fault(isa.Error.HBM_ERROR, 50, 7), 2)
    assert bench.vmem.data.tobytes() == bench.expected.data.tobytes()
