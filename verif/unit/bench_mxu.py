"""Benches of the matrix unit; the bench is its queue, its token counters, VMEM and the vector unit's read port."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from sluice_hw.config import ChipConfig, preset
from sluice_hw.interfaces import VMEM_LATENCY
from sluice_hw.isa import Cause, Error, Op, Unit
from verif.transactors import parameter, seeded, start_up
from verif.unit.mxu_model import (
    Conv,
    MxuModel,
    UnitOp,
    conv_ops,
    matmul_ops,
    pack,
    random_bf16_bytes,
    random_bytes,
    run_ops,
    segment_op,
    shape_op,
)

#: Cycles without any event after which a bench gives up.
PATIENCE = 400


def config_of() -> ChipConfig:
    return preset("tiny").replace(
        name="test", rows=int(parameter("ROWS")), cols=int(parameter("COLS")), acc_bytes=int(parameter("ACC_BYTES")),
        dtype=parameter("DTYPE", "int8"), pe_latency=int(parameter("PE_LATENCY", "1")))


class Bench:
    """Everything around the unit, advanced by one coroutine so that all of it sees the same cycle."""

    def __init__(self, dut, config: ChipConfig, rng: random.Random) -> None:
        self.dut, self.config, self.rng = dut, config, rng
        self.vmem = (random_bf16_bytes if config.is_float else random_bytes)(rng, config.vmem_bytes)
        self.queue: list[int] = []
        self.queue_pause = 0.0
        self.refuse = {"act": 0.0, "weights": 0.0}
        self.tokens = [10**6] * len(Unit)
        self.late_tokens: list[tuple[int, int]] = []  # cycle, unit
        self.given = [0] * len(Unit)
        self.reads = {"act": 0, "weights": 0}
        self.started: list[int] = []
        self.finished: list[int] = []
        self.gives: list[tuple[int, int]] = []  # cycle, mask
        self.row_cycles: list[int] = []
        self.states: dict[Cause, int] = dict.fromkeys(Cause, 0)
        self.state_log: list[Cause] = []
        self.macs = self.tiles = 0
        self.faults: list[tuple[int, int, int]] = []
        self.acc_rows: list[int] = []
        self.acc_data: list[int] = []
        self.cycle = 0
        self.last_event = 0
        self.idle = True
        self._ops = 0

    async def start(self) -> None:
        await start_up(self.dut)
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        dut, rng, config = self.dut, self.rng, self.config
        word = config.word_bytes
        edge = RisingEdge(dut.clk)
        op_valid, op_ready, op_payload = dut.unit__op__valid, dut.unit__op__ready, dut.unit__op__payload
        ports = {}
        for name in ("act", "weights"):
            ports[name] = (
                getattr(dut, f"{name}__req__valid"), getattr(dut, f"{name}__req__ready"),
                getattr(dut, f"{name}__req__payload"), getattr(dut, f"{name}__rsp_valid"),
                getattr(dut, f"{name}__rsp_data"))
        pipes: dict[str, list[int | None]] = {name: [None] * (VMEM_LATENCY - 1) for name in ports}
        held: dict[str, int | None] = dict.fromkeys(ports)
        acc_asked = 0
        sending = False
        take_ready = False
        while True:
            await edge
            self.cycle += 1
            event = False
            # What happened in the cycle that ends here.
            if sending and not self.queue:
                sending = False
            if sending and int(op_ready.value):
                self.queue.pop(0)
                sending, event = False, True
            for name, (valid, ready, payload, rsp_valid, rsp_data) in ports.items():
                answer = None
                if int(valid.value):
                    addr = int(payload.value)
                    assert held[name] in (None, addr), f"{name}: address changed before its transfer"
                    assert addr < config.vmem_bytes, f"{name} asks for {addr:#x}, outside VMEM"
                    held[name] = addr
                    if int(ready.value):
                        held[name], answer, event = None, addr, True
                        self.reads[name] += 1
                else:
                    assert held[name] is None, f"{name}: valid fell before its transfer"
                pipes[name].append(answer)
                addr = pipes[name].pop(0)
                rsp_valid.value = int(addr is not None)
                if addr is None:
                    rsp_data.value = rng.getrandbits(8 * word)
                else:
                    data = self.vmem[addr : addr + word].tobytes().ljust(word, b"\0")
                    rsp_data.value = int.from_bytes(data, "little")
                ready.value = int(rng.random() >= self.refuse[name])
            if int(dut.unit__take__valid.value) and take_ready:
                event = True
                for unit in Unit:
                    self.tokens[unit] -= int(dut.unit__take__payload.value) >> unit & 1
            mask = int(dut.unit__give.value)
            if mask:
                event = True
                self.gives.append((self.cycle, mask))
                for unit in Unit:
                    self.given[unit] += mask >> unit & 1
            if int(dut.unit__started.value):
                self.started.append(int(dut.unit__started_pc.value))
            if int(dut.unit__finished.value):
                self.finished.append(int(dut.unit__finished_pc.value))
            state = Cause(int(dut.unit__state.value))
            self.states[state] += 1
            self.state_log.append(state)
            row = int(dut.array_rows.value)
            assert (state == Cause.BUSY) == bool(row), f"state {state.name}, row {row}"
            if row:
                event = True
                self.row_cycles.append(self.cycle)
                self.macs += int(dut.macs.value)
            else:
                assert not int(dut.macs.value)
            self.tiles += int(dut.weight_tiles.value)
            if int(dut.unit__fault_valid.value):
                fault = int(dut.unit__fault.value)
                width = len(dut.unit__fault) - 48
                self.faults.append((fault & ((1 << width) - 1), fault >> width & 0xFFFF, fault >> width + 16))
            self.idle = bool(int(dut.unit__idle.value))
            # Reads of accumulators: one after the other, answers in order.
            if int(dut.acc__rsp_valid.value):
                self.acc_data.append(int(dut.acc__rsp_data.value))
            if acc_asked < len(self.acc_rows) and int(dut.acc__req__valid.value) and int(dut.acc__req__ready.value):
                acc_asked += 1
                event = True
            dut.acc__req__valid.value = int(acc_asked < len(self.acc_rows))
            if acc_asked < len(self.acc_rows):
                dut.acc__req__payload.value = self.acc_rows[acc_asked]
            # The next cycle.
            for at, unit in [late for late in self.late_tokens if late[0] <= self.cycle]:
                self.tokens[unit] += 1
                self.late_tokens.remove((at, unit))
            if self.queue and (sending or rng.random() >= self.queue_pause):
                op_valid.value = 1
                op_payload.value = self.queue[0]
                sending = True
            else:
                op_valid.value = 0
            missing = self._missing_tokens()
            take_ready = bool(self.queue) and not missing
            dut.unit__missing.value = missing
            dut.unit__take__ready.value = int(take_ready)
            if event:
                self.last_event = self.cycle

    def _missing_tokens(self) -> int:
        """Mask for the op at the head of the queue, whose wait mask the bench knows."""
        wait = self.queue[0] >> _WAIT & 15 if self.queue else 0
        return sum(1 << unit for unit in Unit if wait >> unit & 1 and not self.tokens[unit])

    def send(self, ops: Sequence[UnitOp]) -> None:
        for op in ops:
            self._ops += 1
            op.pc = op.pc or self._ops & 0xFFFF
            self.queue.append(pack(op, self.config))

    async def until(self, done: Callable[[], bool]) -> None:
        edge = RisingEdge(self.dut.clk)
        self.last_event = self.cycle
        while not done():
            await edge
            assert self.cycle - self.last_event < PATIENCE, (
                f"nothing happens: {len(self.queue)} ops queued, idle {self.idle}, state {self.state_log[-1].name}")

    async def drain(self) -> None:
        await self.until(lambda: not self.queue)
        edge = RisingEdge(self.dut.clk)
        for _ in range(3):
            await edge
        await self.until(lambda: self.idle)
        await edge

    async def read(self, rows: Sequence[int]) -> np.ndarray:
        self.acc_rows += rows
        await self.until(lambda: len(self.acc_data) == len(self.acc_rows))
        width = 4 * self.config.cols
        raw = b"".join(value.to_bytes(width, "little") for value in self.acc_data[-len(rows):])
        return np.frombuffer(raw, np.int32).reshape(len(rows), self.config.cols)

    async def check(self, model: MxuModel) -> None:
        """Everything the model has written stands in the accumulators, and the work was counted."""
        await self.drain()
        rows = [int(row) for row in np.flatnonzero(model.written)]
        got = await self.read(rows)
        wrong = np.argwhere(got != model.acc[rows])
        assert not len(wrong), (
            f"{len(wrong)} of {got.size} sums differ, first: row {rows[wrong[0][0]]} column {wrong[0][1]}, "
            f"{got[tuple(wrong[0])]} instead of {model.acc[rows][tuple(wrong[0])]}")
        assert not self.faults, self.faults
        assert (len(self.row_cycles), self.macs, self.tiles) == (model.rows, model.macs, model.tiles)
        assert sum(self.states.values()) == self.cycle


def _offset(name: str) -> int:
    from sluice_hw.interfaces import op_layout

    return op_layout()[name].offset


_WAIT = _offset("wait")


async def bench_of(dut, name: str) -> tuple[Bench, MxuModel]:
    config = config_of()
    bench = Bench(dut, config, seeded(name))
    await bench.start()
    return bench, MxuModel(config, bench.vmem)


class Memory:
    """Places operands in the bench's VMEM, at odd addresses as often as not, round and round."""

    def __init__(self, bench: Bench) -> None:
        self._rng, self._size, self._next = bench.rng, bench.config.vmem_bytes, 0

    def take(self, count: int) -> int:
        start = self._next + self._rng.randrange(8)
        if start + count > self._size:
            start = self._rng.randrange(8)
        self._next = start + count
        return start


def random_matmul(bench: Bench, memory: Memory, m: int, k: int, n: int, acc: int, transpose: bool = False,
                  int8: bool = False) -> list[UnitOp]:
    size = 1 if int8 else bench.config.element_bytes
    lines, row = (n, k) if transpose else (k, n)
    x_pitch, w_pitch = k * size + bench.rng.randrange(4), row * size + bench.rng.randrange(4)
    return matmul_ops(bench.config, m, k, n, x=memory.take(m * x_pitch), x_pitch=x_pitch,
                      w=memory.take(lines * w_pitch), w_pitch=w_pitch, acc=acc, transpose=transpose,
                      int8=int8)  # fmt: skip


async def matmuls(
    bench: Bench, model: MxuModel, sizes: Sequence[tuple[int, int, int]],
    kind: Callable[[int], Mapping[str, bool]] = lambda number: {},
) -> None:  # fmt: skip
    """Run matmuls one right behind the other, the n-th of ``kind(n)``; compare whenever the accumulators are full."""
    memory = Memory(bench)
    config = bench.config
    acc = 0
    for number, (m, k, n) in enumerate(sizes):
        need = m * -(-n // config.cols)
        if acc + need > config.acc_rows:
            await bench.check(model)
            acc = 0
        ops = random_matmul(bench, memory, m, k, n, acc, **kind(number))
        run_ops(model, ops)
        bench.send(ops)
        acc += need
        # Operands of queued ops stay put: VMEM is larger than what fits into the accumulators' worth of work.
    await bench.check(model)


def random_sizes(bench: Bench, count: int) -> list[tuple[int, int, int]]:
    top = 2 * max(bench.config.rows, bench.config.cols) + 1
    return [tuple(bench.rng.randint(1, top) for _ in range(3)) for _ in range(count)]


def edges(size: int) -> list[int]:
    return sorted({1, 2, size - 1, size, size + 1, 2 * size - 1, 2 * size, 2 * size + 1} - {0})


@cocotb.test()
async def first_row_after_reset(dut) -> None:
    bench, model = await bench_of(dut, "first")
    await matmuls(bench, model, [(1, 1, 1)])
    await matmuls(bench, model, [(1, bench.config.rows, bench.config.cols)])


@cocotb.test()
async def every_edge_size(dut) -> None:
    bench, model = await bench_of(dut, "edges")
    rows, cols = edges(bench.config.rows), edges(bench.config.cols)
    sizes = [(m, k, n) for m in rows for k in rows for n in cols]
    bench.rng.shuffle(sizes)
    await matmuls(bench, model, sizes)


@cocotb.test()
async def random_sizes_with_refusals(dut) -> None:
    bench, model = await bench_of(dut, "refusals")
    for act, weights, queue in ((0.5, 0, 0), (0, 0.5, 0), (0.2, 0.2, 0.3), (0.8, 0.8, 0), (0, 0, 0.8)):
        bench.refuse = {"act": act, "weights": weights}
        bench.queue_pause = queue
        await matmuls(bench, model, random_sizes(bench, 25))


@cocotb.test()
async def transposed_weights(dut) -> None:
    """Matmuls whose weights lie as [n, k], among others, also where neither is a whole number of tiles."""
    bench, model = await bench_of(dut, "transposed")
    for refuse, queue in ((0, 0), (0.3, 0), (0.8, 0.3)):
        bench.refuse, bench.queue_pause = {"act": refuse, "weights": refuse}, queue
        await matmuls(bench, model, random_sizes(bench, 20), lambda number: {"transpose": number % 3 != 1})


@cocotb.test()
async def types_by_turns(dut) -> None:
    """Matmuls of int8 among those of bf16, one right behind the other, and passes of both types over one tile each
    that add to rows of their own."""
    bench, model = await bench_of(dut, "types")
    config = bench.config

    def kind(number: int) -> dict[str, bool]:
        int8 = number % 3 != 1
        return {"int8": int8, "transpose": not int8 and bool(number % 2)}

    for refuse, queue in ((0, 0), (0.3, 0), (0.8, 0.3)):
        bench.refuse, bench.queue_pause = {"act": refuse, "weights": refuse}, queue
        await matmuls(bench, model, random_sizes(bench, 24), kind)
    ops = [segment_op(0, 0, config.rows), shape_op(3, s0=5)]
    for number in range(12):
        int8 = int(number % 4 != 3)
        kind = {"int8": int8}
        ops += [UnitOp(Op.LOAD_WEIGHTS, {"pitch": 7, "k": config.rows, "n": config.cols, **kind}, a=33 * number),
                UnitOp(Op.PULSE_ARRAY, kind, a=11 * number, b=10 * int8, swap=1, accumulate=int(number not in (0, 3))),
                UnitOp(Op.PULSE_ARRAY, kind, a=13 * number, b=10 * int8, accumulate=1)]  # fmt: skip
    run_ops(model, ops)
    bench.send(ops)
    await bench.check(model)


@cocotb.test()
async def int8_over_the_longest_k(dut) -> None:
    """The largest sums, padding with a zero point, and what is behind the columns and rows read."""
    bench, model = await bench_of(dut, "longest")
    rows, cols = bench.config.rows, bench.config.cols
    for a, b in ((-128, -128), (-128, 127), (127, 127)):
        bench.vmem[: 8 * rows], bench.vmem[8 * rows : 10 * rows * cols + 8 * rows] = a, b
        ops = [shape_op(3, s0=rows, pad=1, zero_point=a, line_bytes=rows - 1, height=2), segment_op(0, 0, rows)]
        for tile in range(9):
            ops += [
                UnitOp(Op.LOAD_WEIGHTS, {"pitch": cols, "k": rows - tile % 2, "n": cols - tile % 2, "int8": 1},
                       a=8 * rows),
                UnitOp(Op.PULSE_ARRAY, {"int8": 1}, b=5, swap=1, accumulate=int(tile > 0)),
            ]  # fmt: skip
        run_ops(model, ops)
        assert model.acc[5, 0] == (9 * rows - 4) * a * b
        bench.send(ops)
        await bench.check(model)


@cocotb.test()
async def transposed_tiles_follow_without_a_bubble(dut) -> None:
    """Passes of 2 max(R, C) rows or more: as long as a tile takes through the square."""
    bench, model = await bench_of(dut, "transposed rate")
    config = bench.config
    rows, cols, size = config.rows, config.cols, config.element_bytes
    for m in (2 * max(rows, cols), 2 * max(rows, cols) + 3):
        first = len(bench.row_cycles)
        ops = [shape_op(m, s0=rows + 3), segment_op(0, 0, rows * size)]
        for tile in range(12):
            ops += [
                UnitOp(Op.LOAD_WEIGHTS, {"pitch": rows * size, "k": rows, "n": cols * size, "transpose": 1},
                       a=64 + 3 * tile),
                UnitOp(Op.PULSE_ARRAY, a=1 + tile, b=tile % 3 * m, swap=1, accumulate=int(tile > 2)),
            ]  # fmt: skip
        run_ops(model, ops)
        bench.send(ops)
        await bench.check(model)
        starts = bench.row_cycles[first::m]
        spacing = [b - a for a, b in zip(starts, starts[1:], strict=False)]
        assert set(spacing[1:]) == {m}, spacing


@cocotb.test()
async def extremes_over_the_longest_k(dut) -> None:
    bench, model = await bench_of(dut, "extremes")
    rows, cols = bench.config.rows, bench.config.cols
    for a, b in ((-128, -128), (-128, 127), (127, 127)):
        bench.vmem[: 8 * rows] = a
        bench.vmem[8 * rows : 8 * rows + rows * cols] = b
        ops = []
        for tile in range(40):
            ops += [
                UnitOp(Op.LOAD_WEIGHTS, {"pitch": cols, "k": rows, "n": cols}, a=8 * rows),
                shape_op(3, s0=rows), segment_op(0, 0, rows),
                UnitOp(Op.PULSE_ARRAY, b=5, swap=1, accumulate=int(tile > 0)),
            ]
        run_ops(model, ops)
        assert model.acc[5, 0] == 40 * rows * a * b
        bench.send(ops)
        await bench.check(model)


@cocotb.test()
async def tiles_of_every_k_back_to_back(dut) -> None:
    bench, model = await bench_of(dut, "every_k")
    await matmuls(bench, model, [(m, k, 3) for m in (1, 2, bench.config.rows) for k in range(1, 25)])


@cocotb.test()
async def short_passes_add_to_the_same_rows(dut) -> None:
    """Right behind each other, where an adder that takes longer than a row would read what is still on its way."""
    bench, model = await bench_of(dut, "short")
    rows, cols = bench.config.rows, bench.config.cols
    size = bench.config.element_bytes
    for m in (1, 2, 3):
        ops = [UnitOp(Op.LOAD_WEIGHTS, {"pitch": cols * size, "k": rows, "n": cols * size}, a=64),
               shape_op(m, s0=rows * size), segment_op(0, 0, rows * size)]  # fmt: skip
        ops += [UnitOp(Op.PULSE_ARRAY, a=8 * number, b=5 + number % 2, swap=int(not number), accumulate=int(number > 1))
                for number in range(12)]  # fmt: skip
        run_ops(model, ops)
        bench.send(ops)
        await bench.check(model)


@cocotb.test()
async def tiles_follow_without_a_bubble(dut) -> None:
    """A pass every max(M, R) cycles, for M at, above and below R."""
    bench, model = await bench_of(dut, "throughput")
    rows, cols = bench.config.rows, bench.config.cols
    for m in (rows, rows + 1, 2 * rows, rows - 1, 1):
        first = len(bench.row_cycles)
        tiles = 12
        ops = [shape_op(m, s0=rows + 3), segment_op(0, 0, rows)]
        for tile in range(tiles):
            ops += [
                UnitOp(Op.LOAD_WEIGHTS, {"pitch": cols, "k": rows, "n": cols}, a=64 + 3 * tile),
                UnitOp(Op.PULSE_ARRAY, a=1 + tile, b=tile % 3 * m, swap=1, accumulate=int(tile > 2)),
            ]
        run_ops(model, ops)
        bench.send(ops)
        await bench.check(model)
        cycles = bench.row_cycles[first:]
        starts = cycles[::m]
        spacing = [b - a for a, b in zip(starts, starts[1:], strict=False)]
        bench.dut._log.info("M = %d, R = %d: a pass every %s cycles", m, rows, sorted(set(spacing)))
        # The first tile has to be read before anything runs; the second is already on its way then.
        assert set(spacing[1:]) == {max(m, rows)}, spacing
        for number in range(tiles):
            rows_of = cycles[number * m : (number + 1) * m]
            assert rows_of[-1] - rows_of[0] == m - 1, "a bubble inside a pass"


@cocotb.test()
async def passes_without_swap_follow_without_a_bubble(dut) -> None:
    """One tile, many passes of a few rows each: row after row, until the passes on their way are too many."""
    bench, model = await bench_of(dut, "reuse")
    rows, cols = bench.config.rows, bench.config.cols
    ops = [
        UnitOp(Op.LOAD_WEIGHTS, {"pitch": cols, "k": rows, "n": cols}, a=0), segment_op(0, 0, rows), shape_op(4, s0=5)]
    ops += [UnitOp(Op.PULSE_ARRAY, a=number, b=4 * number, swap=int(number == 0)) for number in range(20)]
    run_ops(model, ops)
    bench.send(ops)
    await bench.check(model)
    assert bench.row_cycles[-1] - bench.row_cycles[0] == len(bench.row_cycles) - 1 == 79


@cocotb.test()
async def same_accumulator_row_again_and_again(dut) -> None:
    bench, model = await bench_of(dut, "again")
    rows, cols = bench.config.rows, bench.config.cols
    last = bench.config.acc_rows - 1
    for pattern in ([7], [7, 8], [7, 8, 9], [last], [0, last], [7, 7, 8]):
        ops = [UnitOp(Op.LOAD_WEIGHTS, {"pitch": cols, "k": rows, "n": cols}, a=bench.rng.randrange(999)),
               segment_op(0, 0, rows), shape_op(1)]
        seen: set[int] = set()
        for number in range(24):
            row = pattern[number % len(pattern)]
            ops.append(UnitOp(Op.PULSE_ARRAY, a=bench.rng.randrange(999), b=row, swap=int(number == 0),
                              accumulate=int(row in seen and bench.rng.random() < 0.9)))
            seen.add(row)
        run_ops(model, ops)
        bench.send(ops)
        await bench.check(model)


CONVS = [
    Conv(9, 11, 1, 3, 5, pad=1, zero_point=-7),
    Conv(9, 11, 1, 3, 8, stride=2, pad=1),
    Conv(10, 12, 1, 5, 4, pad=2, zero_point=127),
    Conv(8, 10, 1, 3, 2, dilation=2, pad=2, zero_point=-128),
    Conv(8, 9, 1, 1, 3, stride=3),
    Conv(7, 9, 3, 3, 8, pad=1, zero_point=3),
    Conv(9, 9, 3, 5, 7, stride=2, pad=2, zero_point=-1),
    Conv(9, 8, 3, 3, 3, dilation=2),
    Conv(6, 5, 3, 1, 8, images=2),
    Conv(5, 6, 8, 3, 8, pad=1, zero_point=11),
    Conv(5, 5, 8, 5, 6, pad=2, stride=2),
    Conv(4, 4, 8, 1, 1, images=3),
    Conv(4, 5, 64, 3, 8, pad=1, zero_point=-3),
    Conv(3, 4, 64, 1, 8, stride=2),
    Conv(5, 5, 64, 3, 4, dilation=2, pad=2, zero_point=9),
    Conv(4, 4, 5, 3, 5, pad=3, zero_point=77),
]


async def convolve(bench: Bench, model: MxuModel, conv: Conv, ports: int | None = None) -> list[int]:
    """Run a convolution, compare with the model and with a plain convolution; the cycles of its rows."""
    conv.n = min(conv.n, bench.config.cols)
    size = conv.images * conv.height * conv.width * conv.channels
    image = bench.rng.randrange(9)
    weights = image + size + bench.rng.randrange(9)
    ops = conv_ops(bench.config, conv, image=image, weights=weights, acc=1, ports=ports)
    run_ops(model, ops)
    plain = conv.expected(
        bench.vmem[image : image + size].reshape(conv.images, conv.height, conv.width, conv.channels),
        bench.vmem[weights : weights + conv.kernel**2 * conv.channels * conv.n].reshape(
            conv.kernel, conv.kernel, conv.channels, conv.n))
    assert (model.acc[1 : 1 + conv.rows, : conv.n] == plain).all(), f"the bench's own two answers differ: {conv}"
    first = len(bench.row_cycles)
    bench.send(ops)
    await bench.check(model)
    return bench.row_cycles[first:]


@cocotb.test()
async def convolutions(dut) -> None:
    bench, model = await bench_of(dut, "conv")
    for conv in CONVS:
        cycles = await convolve(bench, model, conv)
        dut._log.info("%s: %.3f rows a cycle", conv, len(cycles) / (cycles[-1] - cycles[0] + 1))


@cocotb.test()
async def convolutions_with_refusals(dut) -> None:
    bench, model = await bench_of(dut, "conv_refusals")
    for refuse in (0.3, 0.8):
        bench.refuse = {"act": refuse, "weights": refuse}
        for conv in CONVS:
            await convolve(bench, model, conv, ports=bench.rng.randint(1, bench.config.feed_ports))


@cocotb.test()
async def few_channels_stream_a_row_every_cycle(dut) -> None:
    """All rows of a convolution in one go: no cycle is lost once the first row has entered, at line starts either."""
    bench, model = await bench_of(dut, "one_channel")
    rows = bench.config.rows
    for conv in (Conv(16, 28, 1, 3, 8), Conv(16, 28, 1, 3, 8, pad=1, zero_point=5), Conv(14, 28, 1, 5, 8, pad=2)):
        first = len(bench.row_cycles)
        reads = bench.reads["act"]
        cycles = await convolve(bench, model, conv)
        assert len(cycles) % conv.rows == 0 and len(cycles) > rows
        span = cycles[-1] - cycles[0] + 1
        dut._log.info("%s: %d rows in %d cycles, %d reads", conv, len(cycles), span, bench.reads["act"] - reads)
        states = bench.state_log[bench.row_cycles[first] - 1 : bench.row_cycles[-1]]
        # Passes may wait for weights where an image is smaller than a tile; within them nothing waits.
        assert states.count(Cause.VMEM) == 0 and states.count(Cause.BUSY) == len(cycles)
        assert span == len(cycles), {cause.name: states.count(cause) for cause in set(states)}


@cocotb.test()
async def random_walks(dut) -> None:
    """Any strides and segments, also backwards and in circles, which no compiler would ask for."""
    bench, model = await bench_of(dut, "walks")
    rng, config = bench.rng, bench.config
    cols = config.col_bytes
    ops: list[UnitOp] = []
    for number in range(60):
        if number % 20 == 19:
            run_ops(model, ops)
            bench.send(ops)
            await bench.check(model)
            ops = []
            bench.refuse["act"] = rng.choice([0, 0.4])
        segments = rng.randint(1, config.feed_ports)
        cuts = sorted(rng.randrange(config.row_bytes + 1) for _ in range(2 * segments))
        runs = [(lo, hi) for lo, hi in zip(cuts[::2], cuts[1::2], strict=True) if lo < hi]
        if not runs:
            continue
        rng.shuffle(runs)
        small = rng.choice([2, 5, 12, 80])
        steps = {name: rng.randint(-small, small) for name in ("s0", "s1", "s2")}
        counts = {"n0": rng.randint(1, 12), "n1": rng.randint(1, 4), "n2": rng.randint(1, 2)}
        ops.append(UnitOp(Op.FEED_SHAPE, {
            **counts, **steps, "segments": len(runs), "pad": rng.randrange(2), "zero_point": rng.randint(-128, 127),
            "x_step": rng.choice([0, 1, 3, small]), "y_step": rng.choice([0, 1, 2]), "line_bytes": rng.randint(1, 40),
            "height": rng.randint(1, 6)}))
        for index, (lo, hi) in enumerate(runs):
            ops.append(segment_op(
                index, lo, hi, offset=rng.randint(-99, 99), x=rng.randint(-12, 12), y=rng.randint(-3, 3)))
        ops.append(UnitOp(Op.LOAD_WEIGHTS, {"pitch": rng.randint(-20, 20), "k": rng.randint(1, config.rows),
                                           "n": rng.randint(1, cols)}, a=rng.randint(600, 9000)))
        ops.append(UnitOp(Op.PULSE_ARRAY, a=rng.randint(3000, 9000), b=rng.randrange(config.acc_rows - 96), swap=1))
    run_ops(model, ops)
    bench.send(ops)
    await bench.check(model)


@cocotb.test()
async def last_bytes_of_vmem(dut) -> None:
    """Reads at the very end are legal however wide a word is."""
    bench, model = await bench_of(dut, "end")
    config = bench.config
    rows, cols = config.rows, config.cols
    for k, n in ((rows, cols), (1, 1), (2, max(1, cols - 1))):
        ops = [
            shape_op(5, s0=k), segment_op(0, 0, k),
            UnitOp(Op.LOAD_WEIGHTS, {"pitch": n, "k": k, "n": n}, a=config.vmem_bytes - k * n),
            UnitOp(Op.PULSE_ARRAY, a=config.vmem_bytes - 5 * k, b=0, swap=1),
        ]
        run_ops(model, ops)
        bench.send(ops)
        await bench.check(model)
    # Overlapping rows, so that a window is continued there.
    ops = [shape_op(40, s0=1), segment_op(0, 0, rows),
           UnitOp(Op.PULSE_ARRAY, a=config.vmem_bytes - 39 - rows, b=0)]
    run_ops(model, ops)
    bench.send(ops)
    await bench.check(model)


@cocotb.test()
async def tokens(dut) -> None:
    """Ops wait for all their tokens, in order; every end gives its tokens, also when ends coincide."""
    bench, model = await bench_of(dut, "tokens")
    rng, config = bench.rng, bench.config
    expected = [0] * len(Unit)
    memory = Memory(bench)
    ops: list[UnitOp] = []
    for _ in range(40):
        m = rng.choice([1, 2, config.rows, 3 * config.rows])
        some = random_matmul(bench, memory, m, rng.randint(1, 2 * config.rows), rng.randint(1, config.cols),
                             rng.randrange(config.acc_rows // 2))
        if rng.random() < 0.5:
            some.insert(rng.randrange(len(some)), UnitOp(Op.SYNC))
        ops += some
    bench.tokens = [0] * len(Unit)
    at = 100
    for op in ops:
        if not op.works:
            continue
        op.wait = rng.choice([0, 0, 1, 2, 8, 11])
        op.signal = rng.choice([0, 1, 2, 8, 9])
        at += rng.randrange(20)
        for unit in Unit:
            expected[unit] += op.signal >> unit & 1
            if op.wait >> unit & 1:
                bench.late_tokens.append((at, unit))
    bench.late_tokens.sort()
    run_ops(model, ops)
    bench.send(ops)
    await bench.until(lambda: not bench.late_tokens)
    await bench.check(model)
    assert bench.given == expected
    assert bench.tokens == [0] * len(Unit)
    working = [op for op in ops if op.works]
    assert bench.started == [op.pc for op in working]
    assert sorted(bench.finished) == sorted(op.pc for op in working)
    for kind in (Op.LOAD_WEIGHTS, Op.PULSE_ARRAY):
        pcs = [op.pc for op in working if op.op == kind]
        assert [pc for pc in bench.finished if pc in set(pcs)] == pcs
    place = {pc: number for number, pc in enumerate(bench.finished)}
    for number, op in enumerate(working):
        if op.op == Op.SYNC:
            assert all(place[before.pc] < place[op.pc] for before in working[:number])
    waited = {cause for cause, count in bench.states.items() if count}
    assert {Cause.BUSY, Cause.TOKEN_LD, Cause.TOKEN_ST, Cause.TOKEN_VPU} <= waited, waited


@cocotb.test()
async def a_token_comes_after_the_last_row(dut) -> None:
    """Whoever gets a pass's token and reads at once sees all of it."""
    bench, model = await bench_of(dut, "visible")
    config = bench.config
    memory = Memory(bench)
    for m in (1, 2, config.rows, 2 * config.rows):
        ops = random_matmul(bench, memory, m, config.rows, config.cols, 3)
        ops[-1].signal = 1 << Unit.VPU
        run_ops(model, ops)
        given = bench.given[Unit.VPU]
        bench.send(ops)
        while bench.given[Unit.VPU] == given:
            await RisingEdge(dut.clk)
        got = await bench.read([3 + m - 1])
        assert (got[0] == model.acc[3 + m - 1]).all()


@cocotb.test()
async def what_it_waits_for(dut) -> None:
    """The state names the cause: weights while a tile is slow, VMEM while activations are, tokens, else idle."""
    bench, model = await bench_of(dut, "causes")
    config = bench.config
    memory = Memory(bench)

    async def counts(ops: list[UnitOp]) -> dict[Cause, int]:
        before = dict(bench.states)
        run_ops(model, ops)
        bench.send(ops)
        await bench.check(model)
        return {cause: bench.states[cause] - before[cause] for cause in Cause}

    bench.refuse = {"act": 0, "weights": 0.9}
    got = await counts(random_matmul(bench, memory, 2, 4 * config.rows, config.cols, 0))
    assert got[Cause.WEIGHTS] > 10 * got[Cause.VMEM] and got[Cause.BUSY] == 8
    bench.refuse = {"act": 0.9, "weights": 0}
    got = await counts(random_matmul(bench, memory, 5 * config.rows, config.rows, config.cols, 0))
    assert got[Cause.VMEM] > 5 * got[Cause.WEIGHTS] and got[Cause.BUSY] == 5 * config.rows
    bench.refuse = {"act": 0, "weights": 0}
    before = dict(bench.states)
    for _ in range(50):
        await RisingEdge(dut.clk)
    assert bench.states[Cause.IDLE] - before[Cause.IDLE] in (49, 50, 51)


@cocotb.test()
async def blocked_as_the_rules_say(dut) -> None:
    """A second tile before a swap, and a swap without a tile, never start, nor does anything behind them."""
    kind = parameter("BLOCKED")
    bench, model = await bench_of(dut, "blocked")
    config = bench.config
    load = {"pitch": config.cols, "k": config.rows, "n": config.cols}
    setup = [shape_op(2, s0=1), segment_op(0, 0, config.rows)]
    if kind == "load":
        ops = [*setup, UnitOp(Op.LOAD_WEIGHTS, load), UnitOp(Op.LOAD_WEIGHTS, load), UnitOp(Op.PULSE_ARRAY, swap=1)]
        left = 2
    else:
        ops = [*setup, UnitOp(Op.LOAD_WEIGHTS, load), UnitOp(Op.PULSE_ARRAY, swap=1), UnitOp(Op.PULSE_ARRAY, swap=1),
               UnitOp(Op.LOAD_WEIGHTS, load)]
        left = 2
    bench.send(ops)
    for _ in range(300):
        await RisingEdge(dut.clk)
    assert len(bench.queue) == left and bench.idle
    assert bench.state_log[-1] == Cause.WEIGHTS, "the watchdog names the unit by its state"
    assert len(bench.started) == len(ops) - len(setup) - left


@cocotb.test()
async def faults(dut) -> None:
    kind = parameter("FAULT")
    bench, _ = await bench_of(dut, "faults")
    config = bench.config
    rows, cols, size = config.rows, config.cols, config.vmem_bytes
    load = UnitOp(Op.LOAD_WEIGHTS, {"pitch": cols, "k": rows, "n": cols}, a=0)
    pulse = UnitOp(Op.PULSE_ARRAY, a=0, b=0, swap=1)
    shape = shape_op(6, s0=rows)
    segment = segment_op(0, 0, rows)
    if kind == "act":
        pulse.a = size - 4 * rows + 1
        want = (Error.VMEM_RANGE, 4, size - rows + 1)
    elif kind == "act_negative":
        pulse.a = -1
        want = (Error.VMEM_RANGE, 4, 0xFFFFFFFF)
    elif kind == "weights":
        load.a = size - cols * (rows - 1) - 1
        want = (Error.VMEM_RANGE, 3, size - 1)
    elif kind == "weights_transposed":  # the last of the rows that are read
        load = UnitOp(Op.LOAD_WEIGHTS, {"pitch": 99, "k": rows, "n": config.col_bytes, "transpose": 1},
                      a=size - 99 * (cols - 1) - 2 * rows + 1)
        want = (Error.VMEM_RANGE, 3, size - 2 * rows + 1)
    elif kind == "acc":
        pulse.b = config.acc_rows - 5
        want = (Error.ACC_RANGE, 4, config.acc_rows)
    elif kind == "acc_far":
        pulse.b = 1 << 31
        want = (Error.ACC_RANGE, 4, pulse.b)
    else:
        shape = shape_op(0xFFFF, n1=0xFFFF, n2=0xFFFF)
        want = (Error.ACC_RANGE, 4, config.acc_rows)
    ops = [shape, segment, load, pulse, UnitOp(Op.FEED_SHAPE, shape.fields), UnitOp(Op.LOAD_WEIGHTS, load.fields, a=0)]
    for number, op in enumerate(ops):
        op.pc = number + 1
    bench.send(ops)
    for _ in range(200):
        await RisingEdge(dut.clk)
    assert bench.faults == [want], (bench.faults, want)
    assert bench.idle, "ops under way end"
    assert sorted(bench.started) == sorted(bench.finished)
    started = len(bench.started)
    bench.send([UnitOp(Op.SYNC), UnitOp(Op.PULSE_ARRAY)])
    for _ in range(50):
        await RisingEdge(dut.clk)
    assert len(bench.started) == started and bench.queue, "an op started after the fault"
    # A reset makes it usable.
    bench.queue.clear()
    dut.rst.value = 1
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    bench.started.clear()
    bench.send([UnitOp(Op.SYNC, pc=77)])
    for _ in range(10):
        await RisingEdge(dut.clk)
    assert bench.started == [77] and bench.idle and len(bench.faults) == 1
