"""Bench of the memory path: HBM to VMEM and back, with the host and another VMEM port in the way."""

import cocotb
from cocotb.triggers import ClockCycles, with_timeout

from sluice_hw import isa
from sluice_hw.interfaces import VMEM_LATENCY
from verif.transactors import StreamDriver, bursts, parameter, random_pauses, seeded, start_up
from verif.unit.dma.engine import Engine
from verif.unit.hbm.slices import Requester
from verif.unit.memory import CONFIGS, Rows, pick_rows

CONFIG = CONFIGS[parameter("CONFIG")]
D, SLICE, SLICES = CONFIG.hbm_beat_bytes, CONFIG.slice_bytes, CONFIG.hbm_slices
LATENCY, BEATS = CONFIG.hbm_latency, CONFIG.slice_beats


class Path:
    """Both engines, the host, and what HBM and VMEM must hold."""

    def __init__(self, dut, rng, pauses=lambda: None) -> None:
        self.ld = Engine(dut, "ld", isa.Unit.LD, CONFIG, slices="ld_slices", op_pauses=pauses(), take_pauses=pauses())
        self.st = Engine(dut, "st", isa.Unit.ST, CONFIG, slices="st_slices", op_pauses=pauses(), take_pauses=pauses())
        self.host = Requester(dut, "host", CONFIG, pauses=pauses)
        self.act = StreamDriver(dut, "act__req", pauses=pauses())
        self.hbm = bytearray(rng.randbytes(CONFIG.hbm_bytes))
        self.vmem = bytearray(CONFIG.vmem_bytes)

    async def fill(self) -> None:
        """Random bytes in HBM, and all of VMEM loaded from its start."""
        await with_timeout(self.host.write(0, bytes(self.hbm)).wait(), 10_000_000, "ns")
        count = -(-CONFIG.vmem_bytes // SLICE)
        await self.load(Rows(0, 1, CONFIG.vmem_bytes, 0, count), 0)

    async def load(self, rows: Rows, hbm: int) -> None:
        self.ld.shape(rows)
        self.ld.train(rows, hbm)
        for i, addr in enumerate(rows.addresses()):
            self.vmem[addr] = self.hbm[hbm * SLICE + i]
        await self.ld.ends(len(self.ld.finished) + 1)

    async def store(self, rows: Rows, hbm: int, pad: int) -> None:
        self.st.shape(rows, pad)
        self.st.train(rows, hbm)
        values = bytes(self.vmem[a] for a in rows.addresses()).ljust(rows.count * SLICE, bytes([pad]))
        self.hbm[hbm * SLICE : (hbm + rows.count) * SLICE] = values
        await self.st.ends(len(self.st.finished) + 1)

    async def check(self) -> None:
        await with_timeout(self.host.read(0, SLICES).wait(), 10_000_000, "ns")
        assert self.host.read_trains[-1] == bytes(self.hbm)
        assert not self.ld.faults and not self.st.faults


async def started(dut, name: str, pauses=lambda: None) -> tuple:
    await start_up(dut)
    rng = seeded(name)
    path = Path(dut, rng, pauses)
    await path.fill()
    return path, rng


@cocotb.test()
async def random_copies(dut):
    """Loads and stores at once in halves of their own, then the other way round, while the host and act interfere."""
    pause = seeded("copies pauses")
    path, rng = await started(dut, "copies", lambda: pause.choice([random_pauses(0.3, pause), bursts(pause, 8)]))
    half = CONFIG.vmem_bytes // 2
    slices = SLICES // 4 * 2

    def pick(upper: bool) -> Rows:
        while True:
            rows = pick_rows(rng, CONFIG, 3)
            addresses = rows.addresses()
            if rows.count <= slices // 2 and (min(addresses) >= half if upper else max(addresses) < half):
                return rows

    for i in range(60):
        upper = bool(i & 1)
        for _ in range(rng.randint(0, 20)):
            path.act.send_nowait(rng.randrange(CONFIG.vmem_bytes))
        own = rng.choice([SLICES - 1, slices])
        mine = rng.randbytes(SLICE)
        path.hbm[own * SLICE : (own + 1) * SLICE] = mine
        host = path.host.write(own, mine)
        load, store = pick(upper), pick(not upper)
        # Loads read the lower slices of the first part while stores write the upper ones, and the reverse.
        low, high = rng.randint(0, slices // 2 - load.count), rng.randint(0, slices // 2 - store.count)
        low, high = (low + slices // 2, high) if upper else (low, high + slices // 2)
        tasks = [
            cocotb.start_soon(path.load(load, low)),
            cocotb.start_soon(path.store(store, high, rng.getrandbits(8))),
        ]
        for task in tasks:
            await with_timeout(task, 1_000_000, "ns")
        await with_timeout(host.wait(), 1_000_000, "ns")
    await path.check()


@cocotb.test()
async def cycles(dut):
    """A contiguous train: its beats and a constant, from start to end; trains back to back add their beats."""
    path, _ = await started(dut, "cycles")
    await ClockCycles(dut.clk, 10)
    for count in (1, 3):
        length = count * SLICE
        rows = Rows(0, 1, length, length, count)
        for engine, run, fixed in (
            # Request, latency, engine, VMEM: then the last beat is beats - 1 behind the first.
            (path.ld, lambda rows=rows: path.load(rows, 0), 1 + LATENCY + 1 + 1 - 1),
            # First read, VMEM, buffer, beat register, answer.
            (path.st, lambda rows=rows: path.store(rows, 4, 0), 1 + VMEM_LATENCY + 1 + 1 + 1 - 1),
        ):
            await run()
            spent = engine.finished[-1][0] - engine.started[-1][0]
            assert spent == count * BEATS + fixed, (engine.unit, count, spent)
            await ClockCycles(dut.clk, 10)
    trains = 8
    done = len(path.ld.finished)
    path.ld.shape(Rows(0, 1, SLICE, SLICE, 1))
    for i in range(trains):
        path.ld.train(Rows(0, 1, SLICE, SLICE, 1), i)
    await path.ld.ends(done + trains)
    spent = path.ld.finished[-1][0] - path.ld.started[done][0]
    assert spent == trains * BEATS + LATENCY + 2, "latency of later trains hides behind the data of earlier ones"


@cocotb.test()
async def states_add_up(dut):
    """Work counters, and a state in every cycle."""
    path, _ = await started(dut, "states")
    start, done = len(path.ld.slices), len(path.st.slices)
    await path.load(Rows(0, 1, 3 * D, 0, -(-3 * D // SLICE) + 1), 1)
    await path.store(Rows(0, 1, 3 * D, 0, -(-3 * D // SLICE) + 2), 1, 5)
    await ClockCycles(dut.clk, 2 * LATENCY)
    assert len(path.ld.slices) - start == -(-3 * D // SLICE) + 1
    assert len(path.st.slices) - done == -(-3 * D // SLICE) + 2
    await path.check()
