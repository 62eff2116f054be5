"""Bench of the accumulators: rows of sums at any time on one side, reads at any time on the other."""

from collections.abc import Callable

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from sluice_hw.accumulator import PASSES, pass_layout
from sluice_hw.config import preset
from verif.transactors import parameter, seeded, start_up

CONFIG = preset("tiny").replace(
    name="test", rows=int(parameter("ROWS")), cols=int(parameter("COLS")), acc_bytes=int(parameter("ACC_BYTES")))
C, WIDTH, HALF = CONFIG.cols, CONFIG.psum_width, CONFIG.acc_region_rows
LEAST, MOST = -(1 << WIDTH - 1), (1 << WIDTH - 1) - 1
#: Cycles from a pass's start to its first row of sums, at least: much less than the array takes.
LEAD = 3


def int32(values: np.ndarray) -> np.ndarray:
    return values.astype(np.uint64).astype(np.uint32).view(np.int32)


class Bench:
    """Passes are started in time, sums follow with bubbles; a model keeps what each row must hold, and when.

    A row of sums that leaves the array in cycle t is seen by reads taken from t + 2 on.
    """

    def __init__(self, dut, stream: str) -> None:
        self.dut, self.rng = dut, seeded(stream)
        self.numpy = np.random.default_rng(self.rng.getrandbits(64))
        self.sums: Callable[[], np.ndarray] = lambda: self.numpy.integers(LEAST, MOST + 1, C)
        self.acc = np.zeros((CONFIG.acc_rows, C), np.int64)  # with all that has left the array
        self.memory = self.acc.copy()  # what a read sees
        self.written = np.zeros(CONFIG.acc_rows, bool)
        self.bubbles = self.reading = 0.0
        self.finished = self.reads = self.waits = 0

    async def run(self, passes: list[tuple[int, int, int]]) -> None:
        """Play passes of (first row, rows, accumulate), until the last is finished and the last read answered."""
        dut, rng, layout = self.dut, self.rng, pass_layout(CONFIG)
        started: list[int] = []  # cycles in which passes were started
        number = q = 0  # the pass and its row that leaves the array next
        ended = finished = cycle = 0
        on_the_way: list[tuple[int, int, np.ndarray]] = []  # cycle from which reads see it, row, value
        ends_next = False
        want: int | None = None
        answer: np.ndarray | None = None
        while finished < len(passes) or want is not None or answer is not None:
            assert cycle < 300_000
            sending = len(started) < len(passes) and len(started) - ended < PASSES
            dut.start__valid.value = int(sending)
            if sending:
                values = dict(zip(("first", "rows", "accumulate"), passes[len(started)], strict=True))
                dut.start__payload.value = sum(values[name] << f.offset for name, f in layout)
            valid = number < len(started) and cycle >= started[number] + LEAD and rng.random() >= self.bubbles
            sums = self.sums()
            dut.p_valid.value = int(valid)
            dut.p_data.value = sum((int(v) & ((1 << WIDTH) - 1)) << c * WIDTH for c, v in enumerate(sums))
            if want is None and finished < len(passes) and self.written.any() and rng.random() < self.reading:
                want = int(rng.choice(list(np.flatnonzero(self.written))))
            dut.acc__req__valid.value = int(want is not None)
            dut.acc__req__payload.value = want if want is not None else rng.getrandbits(32)

            await RisingEdge(dut.clk)
            for item in [item for item in on_the_way if item[0] <= cycle]:
                self.memory[item[1]] = item[2]
                self.written[item[1]] = True
                on_the_way.remove(item)
            assert bool(int(dut.finished.value)) == ends_next, f"cycle {cycle}: finished"
            finished += ends_next
            assert bool(int(dut.acc__rsp_valid.value)) == (answer is not None), f"cycle {cycle}: rsp_valid"
            if answer is not None:
                got = np.frombuffer(int(dut.acc__rsp_data.value).to_bytes(4 * C, "little"), np.int32)
                assert (got == answer).all(), f"cycle {cycle}: {got}, expected {answer}"
                self.reads += 1
                answer = None
            if want is not None:
                first, _, accumulate = passes[min(number, len(passes) - 1)]
                clash = bool(valid and accumulate and (first + q >= HALF) == (want >= HALF))
                assert bool(int(dut.acc__req__ready.value)) != clash, f"cycle {cycle}: waits for the array's read only"
                self.waits += clash
                if not clash:
                    answer, want = int32(self.memory[want]), None
            ends_next = False
            if valid:
                first, rows, accumulate = passes[number]
                self.acc[first + q] = sums + (self.acc[first + q] if accumulate else 0)
                on_the_way.append((cycle + 2, first + q, self.acc[first + q].copy()))
                q += 1
                if q == rows:
                    number, q, ends_next = number + 1, 0, True
                    ended += 1
            if sending:
                assert int(dut.start__ready.value), "must take PASSES"
                started.append(cycle)
            cycle += 1
        dut.p_valid.value = 0
        dut.acc__req__valid.value = 0
        for _ in range(2):
            await RisingEdge(dut.clk)
        for _, row, value in on_the_way:
            self.memory[row] = value
            self.written[row] = True
        self.finished += finished


async def begin(dut, stream: str) -> Bench:
    await start_up(dut, p_valid=0)
    return Bench(dut, stream)


@cocotb.test()
async def everything_at_once(dut) -> None:
    """Passes anywhere, in both regions and across, read all the time."""
    bench = await begin(dut, "random")
    rng = bench.rng
    await bench.run([(0, CONFIG.acc_rows, 0)])
    for bench.bubbles, bench.reading in ((0, 0), (0, 1), (0.5, 0.5), (0.1, 0.9)):
        passes = []
        for _ in range(60):
            first = rng.randrange(CONFIG.acc_rows)
            count = min(CONFIG.acc_rows - first, rng.choice([1, 2, 3, 8, 20]))
            passes.append((first, count, int(rng.random() < 0.7)))
        await bench.run(passes)
    assert bench.reads > 100 and bench.waits > 10
    assert bench.finished == 241


@cocotb.test()
async def the_same_row_in_consecutive_cycles(dut) -> None:
    bench = await begin(dut, "forward")
    bench.reading = 0.5
    for pattern in ([3], [3, 4], [3, 4, 2], [HALF - 1, HALF], [0, HALF], [3, 3, 4]):
        passes = [(row, 1, 0) for row in dict.fromkeys(pattern)]
        passes += [(pattern[n % len(pattern)], 1, int(bench.rng.random() < 0.9)) for n in range(60)]
        await bench.run(passes)
    assert bench.reads > 50


@cocotb.test()
async def sums_wrap(dut) -> None:
    """int32 two's complement, both ways, more than once around."""
    bench = await begin(dut, "wrap")
    bench.reading = 0.05
    for edge in (LEAST, MOST):
        bench.sums = lambda edge=edge: np.full(C, edge)
        await bench.run([(2, 1, 0)] + [(2, 1, 1)] * (1 << 34 - WIDTH))
        assert abs(bench.acc[2, 0]) > 1 << 32
