"""Bench of the weight loader: tiles as they enter the array, and the order of tiles and swaps."""

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge, Timer

from sluice_hw.config import preset
from sluice_hw.feeder import FEED_LATENCY
from sluice_hw.interfaces import VMEM_LATENCY
from sluice_hw.weights import TILES, tile_layout
from verif.transactors import parameter, seeded, start_up
from verif.unit.mxu_model import random_bytes

CONFIG = preset("tiny").replace(
    name="test", rows=int(parameter("ROWS")), cols=int(parameter("COLS")), acc_bytes=64 * int(parameter("COLS")),
    dtype=parameter("DTYPE", "int8"))
R, C, SIZE = CONFIG.rows, CONFIG.cols, CONFIG.element_bytes
#: Bytes of an array row.
N = CONFIG.col_bytes


class Bench:
    def __init__(self, dut, stream: str) -> None:
        self.dut, self.rng = dut, seeded(stream)
        self.vmem = random_bytes(self.rng, CONFIG.vmem_bytes)
        self.refuse = 0.0
        self.patience = 0  # cycles a tile waits for its swap, at most
        self.tiles: list[dict[str, int]] = []
        self.taken = 0
        self.rows: list[tuple[int, int, bytes]] = []  # cycle, first, bytes
        self.swaps: list[int] = []  # cycles in which the swapping row enters the array
        self.macs: list[int] = []
        self.fed = 0
        self.faults: list[tuple[int, int]] = []
        self.cycle = 0

    async def start(self) -> None:
        await start_up(self.dut, swap=0)
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        dut, rng = self.dut, self.rng
        word = CONFIG.word_bytes
        layout = tile_layout(CONFIG)
        pipe: list[int | None] = [None] * (VMEM_LATENCY - 1)
        held, waiting, sending = None, None, False
        while True:
            await RisingEdge(dut.clk)
            self.cycle += 1
            answer = None
            if int(dut.vmem__req__valid.value):
                addr = int(dut.vmem__req__payload.value)
                assert held in (None, addr) and addr < CONFIG.vmem_bytes
                held = addr
                if int(dut.vmem__req__ready.value):
                    held, answer = None, addr
            else:
                assert held is None
            pipe.append(answer)
            addr = pipe.pop(0)
            data = rng.randbytes(word) if addr is None else self.vmem[addr : addr + word].tobytes().ljust(word, b"\0")
            dut.vmem__rsp_valid.value = int(addr is not None)
            dut.vmem__rsp_data.value = int.from_bytes(data, "little")
            dut.vmem__req__ready.value = int(rng.random() >= self.refuse)

            if int(dut.w_valid.value):
                row = int(dut.w_data.value).to_bytes(N, "little")
                self.rows.append((self.cycle, int(dut.w_start.value), row))
            if int(dut.fed.value):
                self.fed += 1
                assert len(self.rows) == self.fed * R and int(dut.w_valid.value), "fed with the last row"
            if int(dut.swap.value):
                assert int(dut.tile_ready.value)
                self.swaps.append(self.cycle + FEED_LATENCY)
                self.macs.append(int(dut.tile_macs.value))
            if int(dut.fault_valid.value):
                fault = int(dut.fault.value)
                self.faults.append((fault & 0xFFFFFFFF, fault >> 32))
            if sending and int(dut.start__ready.value):
                self.taken += 1
            sending = self.taken < len(self.tiles) and self.taken - self.fed < TILES
            dut.start__valid.value = int(sending)
            if sending:
                tile = self.tiles[self.taken]
                dut.start__payload.value = sum(
                    (tile.get(name, 0) & ((1 << f.width) - 1)) << f.offset for name, f in layout)
            # The swap of a cycle may depend on that cycle's tile_ready, as the feeder's does.
            dut.swap.value = 0
            await Timer(1, unit="ns")
            if int(dut.tile_ready.value):
                waiting = rng.randint(0, self.patience) if waiting is None else waiting - 1
                if waiting <= 0:
                    dut.swap.value, waiting = 1, None

    async def run(self, tiles: list[dict[str, int]]) -> None:
        self.tiles += tiles
        limit = self.cycle + 4000 + len(tiles) * 40 * max(R, C)
        while len(self.swaps) < len(self.tiles):
            await RisingEdge(self.dut.clk)
            assert self.cycle < limit, f"{self.fed} of {len(self.tiles)} tiles were fed"
        for _ in range(FEED_LATENCY):
            await RisingEdge(self.dut.clk)

    def expected(self, tile: dict[str, int]) -> np.ndarray:
        def read(rows: int, count: int) -> np.ndarray:
            block = np.zeros((rows, count), np.int8)
            for i in range(rows):
                at = tile["vmem"] + i * tile["pitch"]
                if 0 <= at <= CONFIG.vmem_bytes - count:
                    block[i] = self.vmem[at : at + count]
            return block

        k, n = tile["k"], tile["n"]
        if tile.get("transpose"):
            block = np.ascontiguousarray(read(n // 2, 2 * k).view(np.int16).T).view(np.int8)
        else:
            block = read(k, n)
        out = np.zeros((R, N), np.int8)
        out[:k, :n] = block
        return out

    def check(self) -> None:
        assert len(self.rows) == len(self.tiles) * R
        for number, tile in enumerate(self.tiles):
            rows = self.rows[number * R : (number + 1) * R]
            assert [first for _, first, _ in rows] == [1] + [0] * (R - 1)
            assert b"".join(row for _, _, row in rows) == self.expected(tile).tobytes(), f"tile {number}: {tile}"
            assert rows[-1][0] < self.swaps[number], "swapped in before its last row had entered"
            assert number == 0 or rows[0][0] >= self.swaps[number - 1], "entered before the one before was swapped in"
            assert self.macs[number] == tile["k"] * (tile["n"] // SIZE)


def tile_of(rng, transpose: int = 0) -> dict[str, int]:
    tile = {
        "vmem": rng.randint(2000, 30000), "pitch": rng.randint(-90, 90), "k": rng.randint(1, R), "n": rng.randint(1, N)}
    return tile | {"n": 2 * rng.randint(1, C), "transpose": 1} if transpose else tile


def spacing(cycles: list[int]) -> set[int]:
    """But for the first tile, which has to be read before anything runs."""
    return {b - a for a, b in zip(cycles[1:], cycles[2:], strict=False)}


@cocotb.test()
async def a_tile_every_r_cycles(dut) -> None:
    bench = Bench(dut, "rate")
    await bench.start()
    await bench.run([{**tile_of(bench.rng), "k": R, "n": N} for _ in range(20)])
    bench.check()
    assert spacing(bench.swaps) == {R}, bench.swaps


@cocotb.test()
async def a_transposed_tile_every_max_r_c_cycles(dut) -> None:
    bench = Bench(dut, "transposed rate")
    await bench.start()
    await bench.run([{**tile_of(bench.rng, 1), "k": R, "n": N} for _ in range(20)])
    bench.check()
    assert spacing(bench.swaps) == {max(R, C)}, bench.swaps


@cocotb.test()
async def by_turns(dut) -> None:
    """Direct tiles behind transposed ones, and ahead: in order, and the former at their rate."""
    bench = Bench(dut, "turns")
    await bench.start()
    kinds = [0, 1] * 6 + [0, 0, 1, 1] * 4 + [1] * 3 + [0] * 8
    await bench.run([{**tile_of(bench.rng, kind), "k": R, "n": N} for kind in kinds])
    bench.check()
    assert spacing(bench.swaps[-8:]) == {R}, bench.swaps
    # A tile crosses the square when the direct one before it has left, and then comes out.
    assert max(spacing(bench.swaps[:12])) <= R + max(R, C) + 8, bench.swaps


@cocotb.test()
async def random_mixes(dut) -> None:
    bench = Bench(dut, "mixes")
    await bench.start()
    for bench.refuse, bench.patience in ((0, 0), (0.5, 0), (0, 3 * R), (0.8, 5), (0.1, R)):
        await bench.run([tile_of(bench.rng, bench.rng.randrange(2)) for _ in range(25)])
    bench.check()
    assert not bench.faults


@cocotb.test()
async def the_end_of_vmem_transposed(dut) -> None:
    """Rows as they are read; one that is not counts as zeros, and the tile is as long as ever."""
    bench = Bench(dut, "end transposed")
    await bench.start()
    size = CONFIG.vmem_bytes
    await bench.run([{"vmem": size - 2 * k, "pitch": -2 * k, "k": k, "n": 2 * n, "transpose": 1, "pc": 5}
                     for k in (1, R) for n in (1, C)])  # fmt: skip
    assert not bench.faults
    await bench.run([{"vmem": size - 2 * R - 1, "pitch": 1, "k": R, "n": N, "transpose": 1, "pc": 6}])
    assert bench.faults == [(size - 2 * R + i - 1, 6) for i in range(2, C)]
    bench.faults.clear()
    await bench.run([{"vmem": -1, "pitch": 0, "k": 1, "n": 2, "transpose": 1, "pc": 7}])
    assert bench.faults == [(0xFFFFFFFF, 7)]
    bench.check()


@cocotb.test()
async def random_tiles(dut) -> None:
    bench = Bench(dut, "random")
    await bench.start()
    for bench.refuse, bench.patience in ((0, 0), (0.5, 0), (0, 3 * R), (0.8, 5), (0.1, R)):
        await bench.run([tile_of(bench.rng) for _ in range(25)])
    bench.check()
    assert not bench.faults


@cocotb.test()
async def the_end_of_vmem(dut) -> None:
    """Rows up to the last byte are legal; one byte further is a fault with the row's address."""
    bench = Bench(dut, "end")
    await bench.start()
    size = CONFIG.vmem_bytes
    await bench.run([{"vmem": size - n, "pitch": -n, "k": k, "n": n, "pc": 5} for k in (1, R) for n in (1, N)])
    assert not bench.faults
    await bench.run([{"vmem": size - N - 1, "pitch": 1, "k": R, "n": N, "pc": 6}])
    assert bench.faults == [(size - N + i - 1, 6) for i in range(2, R)]
    bench.faults.clear()
    await bench.run([{"vmem": -1, "pitch": 0, "k": 1, "n": 1, "pc": 7}])
    assert bench.faults == [(0xFFFFFFFF, 7)]
    bench.check()
