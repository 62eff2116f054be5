"""Bench of the activation feeder: rows as they enter the array, against the byte-by-byte walk of the model."""

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from sluice_hw.config import preset
from sluice_hw.feeder import FEED_LATENCY, segment_layout, shape_layout, start_layout
from sluice_hw.interfaces import VMEM_LATENCY
from sluice_hw.isa import Cause, Op
from verif.transactors import parameter, seeded, start_up
from verif.unit.mxu_model import Conv, MxuModel, UnitOp, conv_ops, random_bytes, segment_op, shape_op

CONFIG = preset("tiny").replace(
    name="test", rows=int(parameter("ROWS")), feed_ports=int(parameter("PORTS")), acc_bytes=1 << 14)


def bits(layout, values: dict[str, int]) -> int:
    return sum((values.get(name, 0) & ((1 << f.width) - 1)) << f.offset for name, f in layout)


class Bench:
    """Starts PULSE_ARRAYs, answers reads, and takes down rows."""

    def __init__(self, dut, stream: str) -> None:
        self.dut, self.rng = dut, seeded(stream)
        self.vmem = random_bytes(self.rng, CONFIG.vmem_bytes)
        self.model = MxuModel(CONFIG, self.vmem)
        self.refuse = self.no_tile = 0.0
        self.rows: list[tuple[int, int, bytes]] = []  # cycle, swap, bytes
        self.expected: list[tuple[int, bytes]] = []
        self.asked: list[int] = []
        self.faults: list[tuple[int, int]] = []
        self.cycle = 0
        self.waits: list[Cause] = []

    async def start(self) -> None:
        await start_up(self.dut, shape_valid=0, segment_valid=0, tile_ready=0)
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        dut, rng = self.dut, self.rng
        word = CONFIG.word_bytes
        pipe: list[int | None] = [None] * (VMEM_LATENCY - 1)
        held = None
        issues = [(0, 0)] * FEED_LATENCY
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            answer = None
            if int(dut.act__req__valid.value):
                addr = int(dut.act__req__payload.value)
                assert held in (None, addr) and addr < CONFIG.vmem_bytes, f"{addr:#x}, held {held}"
                held = addr
                if int(dut.act__req__ready.value):
                    held, answer = None, addr
                    self.asked.append(addr)
            else:
                assert held is None, "valid fell before the transfer"
            pipe.append(answer)
            addr = pipe.pop(0)
            dut.act__rsp_valid.value = int(addr is not None)
            data = rng.randbytes(word) if addr is None else self.vmem[addr : addr + word].tobytes().ljust(word, b"\0")
            dut.act__rsp_data.value = int.from_bytes(data, "little")
            dut.act__req__ready.value = int(rng.random() >= self.refuse)

            issue, swap = int(dut.issue.value), int(dut.issue_swap.value)
            assert not swap or (issue and int(dut.tile_ready.value)), "a swap without a tile"
            cause = Cause(int(dut.waits.value))
            self.waits.append(cause)
            assert (cause == Cause.BUSY) == bool(issue)
            issues.append((issue, swap))
            then, then_swap = issues.pop(0)
            assert int(dut.a_valid.value) == then, "a row enters FEED_LATENCY cycles after its issue"
            if then:
                assert int(dut.a_swap.value) == then_swap
                row = int(dut.a_data.value).to_bytes(CONFIG.rows, "little")
                self.rows.append((self.cycle, then_swap, row))
                number = len(self.rows) - 1
                assert (then_swap, row) == self.expected[number], (
                    f"row {number}: {list(row)}, expected {list(self.expected[number][1])}")
            dut.tile_ready.value = int(rng.random() >= self.no_tile)
            if int(dut.fault_valid.value):
                fault = int(dut.fault.value)
                self.faults.append((fault & 0xFFFFFFFF, fault >> 32))

    async def setup(self, op: UnitOp) -> None:
        self.model.run(op)
        name, layout = ("shape", shape_layout()) if op.op == Op.FEED_SHAPE else ("segment", segment_layout())
        getattr(self.dut, name).value = bits(layout, op.fields)
        getattr(self.dut, f"{name}_valid").value = 1
        await RisingEdge(self.dut.clk)
        getattr(self.dut, f"{name}_valid").value = 0

    async def pulse(self, vmem: int, swap: int, *, expect: bool = True, pc: int = 0) -> None:
        if expect:
            for number, row in enumerate(self.model.feed(vmem)):
                self.expected.append((int(swap and number == 0), row.astype(np.int8).tobytes()))
        dut = self.dut
        dut.start__valid.value = 1
        dut.start__payload.value = bits(start_layout(CONFIG), {"vmem": vmem, "swap": swap, "pc": pc})
        await RisingEdge(dut.clk)
        while not int(dut.start__ready.value):
            await RisingEdge(dut.clk)
        dut.start__valid.value = 0

    async def done(self) -> None:
        quiet, seen = 0, len(self.rows)
        while len(self.rows) < len(self.expected):
            await RisingEdge(self.dut.clk)
            quiet = quiet + 1 if len(self.rows) == seen else 0
            seen = len(self.rows)
            assert quiet < 300, f"row {seen} of {len(self.expected)} does not come"
        for _ in range(FEED_LATENCY + 2):
            await RisingEdge(self.dut.clk)
        assert len(self.rows) == len(self.expected), "more rows than asked for"


async def begin(dut, stream: str) -> Bench:
    bench = Bench(dut, stream)
    await bench.start()
    return bench


@cocotb.test()
async def plain_rows_stream_at_any_alignment(dut) -> None:
    """One segment, rows anywhere: one row and one access a cycle, from pass to pass as well."""
    bench = await begin(dut, "plain")
    await bench.setup(segment_op(0, 0, CONFIG.rows))
    for pitch in (1, 3, CONFIG.rows, CONFIG.rows + 1, 100, -7, 0):
        await bench.setup(shape_op(23, s0=pitch))
        first, reads = len(bench.rows), len(bench.asked)
        for number in range(4):
            await bench.pulse(5000 + bench.rng.randrange(64), number & 1)
        await bench.done()
        span = bench.rows[-1][0] - bench.rows[first][0] + 1
        dut._log.info("pitch %d: %d rows in %d cycles, %d reads", pitch, 92, span, len(bench.asked) - reads)
        assert span == 92
        assert len(bench.asked) - reads <= 92
        if pitch == 0:
            assert len(bench.asked) - reads == 4


@cocotb.test()
async def random_walks(dut) -> None:
    """Anything that stays in VMEM, with refused grants and late tiles."""
    bench = await begin(dut, "walks")
    rng = bench.rng
    for number in range(120):
        bench.refuse, bench.no_tile = rng.choice([(0, 0), (0.5, 0), (0, 0.9), (0.9, 0.5)])
        small = rng.choice([1, 3, 9, 100])
        segments = rng.randint(1, CONFIG.feed_ports)
        cuts = sorted(rng.randrange(CONFIG.rows + 1) for _ in range(2 * segments))
        runs = [(lo, hi) for lo, hi in zip(cuts[::2], cuts[1::2], strict=True) if lo < hi] or [(0, CONFIG.rows)]
        rng.shuffle(runs)
        await bench.setup(UnitOp(Op.FEED_SHAPE, {
            "n0": rng.randint(1, 14), "n1": rng.randint(1, 4), "n2": rng.randint(1, 3),
            "s0": rng.randint(-small, small), "s1": rng.randint(-small, small), "s2": rng.randint(-small, small),
            "segments": len(runs),
            "pad": rng.randrange(2), "zero_point": rng.randint(-128, 127), "x_step": rng.randint(0, small),
            "y_step": rng.randint(0, 3), "line_bytes": rng.randint(1, 50), "height": rng.randint(1, 8)}))
        for index, (lo, hi) in enumerate(runs):
            await bench.setup(segment_op(
                index, lo, hi, offset=rng.randint(-200, 200), x=rng.randint(-12, 12), y=rng.randint(-4, 4)))
        await bench.pulse(rng.randint(9000, 20000), rng.randrange(2))
        if number % 10 == 0:
            await bench.done()
    await bench.done()
    assert not bench.faults


@cocotb.test()
async def nothing_is_read_for_padding(dut) -> None:
    """Rows wholly outside the image cost no access, wherever their addresses point, and no fault."""
    bench = await begin(dut, "padding")
    image = {"pad": 1, "zero_point": -5, "x_step": 1, "y_step": 1}
    for line, height, x, y in (
            (4, 9, 10**4, 0), (4, 9, -(10**4), 0), (99, 3, 0, 7), (99, 3, 0, -20), (0, 9, -1, 0), (9, 0, -1, -1)):
        await bench.setup(shape_op(9, n1=3, s0=1, line_bytes=line, height=height, **image))
        await bench.setup(segment_op(0, 0, CONFIG.rows, x=x, y=y, offset=1 << 24))
        reads = len(bench.asked)
        await bench.pulse(0xFFFF0000, 0)
        await bench.done()
        assert len(bench.asked) == reads
        assert bench.rows[-1][2] == bytes([251]) * CONFIG.rows
    assert not bench.faults


@cocotb.test()
async def a_far_walk_stays_outside(dut) -> None:
    """Positions do not wrap around: the largest steps never come back into the image."""
    bench = await begin(dut, "far")
    await bench.setup(shape_op(40, n1=3, pad=1, zero_point=9, line_bytes=6, height=2, x_step=(1 << 20) - 1, y_step=255))
    await bench.setup(segment_op(0, 0, CONFIG.rows, x=-1, y=-1))
    await bench.pulse(100, 0)
    await bench.setup(shape_op(3, n1=600, pad=1, zero_point=9, line_bytes=6, height=2, x_step=1, y_step=255))
    await bench.pulse(100, 0)
    await bench.done()


@cocotb.test()
async def each_byte_is_read_once(dut) -> None:
    """One channel: a port's accesses are its bytes over the word width, from line to line too, and no cycle is lost."""
    bench = await begin(dut, "once")
    conv = Conv(10, 3 * CONFIG.word_bytes + 2, 1, 3, 1)
    ops = conv_ops(CONFIG, conv, image=40, weights=0, acc=0)
    for op in ops:
        if op.op in (Op.FEED_SHAPE, Op.FEED_SEGMENT):
            await bench.setup(op)
    await bench.pulse(40, 0)
    await bench.done()
    lines = conv.out_height
    assert len(bench.asked) == 3 * -(-lines * conv.width // CONFIG.word_bytes)
    span = bench.rows[-1][0] - bench.rows[0][0] + 1
    assert span == len(bench.rows) == lines * conv.out_width


@cocotb.test()
async def an_op_reads_anew(dut) -> None:
    """Bytes that have changed since the op before, also where its last window is the first of this one."""
    bench = await begin(dut, "anew")
    rows, rng = CONFIG.rows, seeded("anew")
    await bench.setup(shape_op(2, s0=1))
    await bench.setup(segment_op(0, 0, rows - 1))
    for _ in range(5):
        bench.vmem[64 : 64 + 2 * rows] = np.frombuffer(rng.randbytes(2 * rows), np.uint8)
        await bench.pulse(64, 0)
        await bench.done()


@cocotb.test()
async def counts_rows(dut) -> None:
    bench = await begin(dut, "rows")
    most = 2 * CONFIG.acc_rows
    top = (0xFFFF,) * 3
    for n in ((1, 1, 1), (5, 7, 3), (1, 1, most), (most, 1, 1), (1, most + 1, 1), top, (256, 256, 1), (2, 2, 2)):
        await bench.setup(UnitOp(Op.FEED_SHAPE, {"n0": n[0], "n1": n[1], "n2": n[2], "segments": 1}))
        for _ in range(4):
            await RisingEdge(dut.clk)
        assert int(dut.rows_valid.value)
        assert int(dut.rows.value) == min(n[0] * n[1] * n[2], most)


@cocotb.test()
async def faults(dut) -> None:
    """Bytes outside VMEM: reported with the first address of the run, not read, and the rows still come."""
    bench = await begin(dut, "faults")
    rows, size = CONFIG.rows, CONFIG.vmem_bytes
    await bench.setup(shape_op(4, s0=rows))
    await bench.setup(segment_op(0, 0, rows))
    starts = ((size - 3 * rows, size), (size - 4 * rows + 1, size - rows + 1), (-1, 0xFFFFFFFF), (1 << 31, 1 << 31))
    for vmem, first in starts:
        bench.faults.clear()
        for number in range(4):
            at = vmem + number * rows
            inside = 0 <= at <= size - rows
            bench.expected.append((0, bench.vmem[at : at + rows].tobytes() if inside else bytes(rows)))
        await bench.pulse(vmem, 0, expect=False, pc=321)
        await bench.done()
        assert bench.faults[0] == (first, 321), bench.faults
    assert all(addr + 1 <= size for addr in bench.asked)


@cocotb.test()
async def faults_of_every_port(dut) -> None:
    """Bytes of any one port outside VMEM: reported, not read, and the other ports' bytes still come."""
    bench = await begin(dut, "ports")
    ports, rows, size = CONFIG.feed_ports, CONFIG.rows, CONFIG.vmem_bytes
    await bench.setup(shape_op(1, segments=ports))
    for bad in range(ports):
        bench.faults.clear()
        row = bytearray(rows)
        for p in range(ports):
            lo, hi = p, p + 1 if p + 1 < ports else rows
            await bench.setup(segment_op(p, lo, hi, offset=size if p == bad else 20 * p))
            if p != bad:
                row[lo:hi] = bench.vmem[100 + 20 * p :][: hi - lo].tobytes()
        bench.expected.append((0, bytes(row)))
        await bench.pulse(100, 0, expect=False, pc=50 + bad)
        await bench.done()
        assert bench.faults == [(100 + size, 50 + bad)]
