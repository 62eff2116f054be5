"""Bench of the slice arbiter: requesters on one side, a model of HBM on the other."""

from collections import deque

import cocotb
from cocotb.triggers import ClockCycles, with_timeout

from verif.transactors import StreamDriver, StreamSink, bursts, parameter, random_pauses, seeded, start_up
from verif.unit.hbm.slices import Requester
from verif.unit.memory import CONFIGS, slice_shape, to_bytes, to_int

CONFIG = CONFIGS[parameter("CONFIG")]
PORTS = int(parameter("PORTS"))
D, SLICE, SLICES = CONFIG.hbm_beat_bytes, CONFIG.slice_bytes, CONFIG.hbm_slices


class Memory:
    """Serves trains in order, reads and writes apart; refuses those outside."""

    def __init__(self, dut, rng, pauses) -> None:
        self.contents = bytearray(rng.randbytes(CONFIG.hbm_bytes))
        self._beats = StreamDriver(dut, "memory__read_data", pauses=pauses())
        self._dones = StreamDriver(dut, "memory__write_done", pauses=pauses())
        self.reads = StreamSink(dut, "memory__read", shape=slice_shape(CONFIG, "read"), pauses=pauses(),
                                callback=self._read)  # fmt: skip
        self.writes = StreamSink(dut, "memory__write", shape=slice_shape(CONFIG, "write"), pauses=pauses(),
                                 callback=self._write)  # fmt: skip
        self.data = StreamSink(dut, "memory__write_data", pauses=pauses(), callback=self._data)
        self._open: deque[tuple[int, int]] = deque()
        self._bytes: deque[bytes] = deque()

    def _read(self, request: dict) -> None:
        if request["slice"] + request["count"] > SLICES or not request["count"]:
            self._beats.send_nowait(3 << 8 * D)
            return
        last = (request["slice"] + request["count"]) * SLICE
        for at in range(request["slice"] * SLICE, last, D):
            self._beats.send_nowait(to_int(self.contents[at : at + D]) | (at + D == last) << 8 * D)

    def _write(self, request: dict) -> None:
        self._open.append((request["slice"], request["count"]))
        self._settle()

    def _data(self, payload: int) -> None:
        self._bytes.append(to_bytes(payload, D))
        self._settle()

    def _settle(self) -> None:
        while self._open and len(self._bytes) * D >= self._open[0][1] * SLICE:
            first, count = self._open.popleft()
            values = b"".join(self._bytes.popleft() for _ in range(count * SLICE // D))
            good = count and first + count <= SLICES
            if good:
                self.contents[first * SLICE : (first + count) * SLICE] = values
            self._dones.send_nowait(int(not good))


async def random_run(dut, name: str, pauses) -> None:
    """Each port works on slices of its own, so that what it must see does not depend on the others."""
    await start_up(dut)
    rng = seeded(name)
    memory = Memory(dut, rng, pauses)
    expected = bytearray(memory.contents)
    ports = [Requester(dut, f"ports__{i}", CONFIG, pauses=pauses) for i in range(PORTS)]
    share = SLICES // PORTS
    trains, answers = [[] for _ in ports], [[] for _ in ports]
    for _ in range(25):
        waiting = []
        for i, port in enumerate(ports):
            taken: set[int] = set()
            for _ in range(rng.randint(0, 6)):
                count = rng.choice([1, 1, 2, 3])
                first = rng.randint(i * share, (i + 1) * share - count)
                if taken & set(range(first, first + count)):
                    continue
                taken.update(range(first, first + count))
                span = slice(first * SLICE, (first + count) * SLICE)
                kind = rng.random()
                if kind < 0.1:
                    waiting.append(port.read(SLICES, rng.choice([0, 1])))
                    trains[i].append(None)
                elif kind < 0.2:
                    waiting.append(port.write(SLICES - 1, bytes(rng.choice([0, 2]) * SLICE)))
                    answers[i].append(1)
                elif kind < 0.6:
                    waiting.append(port.read(first, count))
                    trains[i].append(bytes(expected[span]))
                else:
                    expected[span] = rng.randbytes(count * SLICE)
                    waiting.append(port.write(first, bytes(expected[span])))
                    answers[i].append(0)
        for event in waiting:
            await with_timeout(event.wait(), 200_000, "ns")
    for i, port in enumerate(ports):
        assert port.read_trains == trains[i] and port.answers == answers[i], f"port {i}"
        assert len(trains[i]) > 10 and len(answers[i]) > 10
    assert memory.contents == expected


@cocotb.test()
async def random_trains(dut):
    rng = seeded("trains pauses")
    await random_run(dut, "trains", lambda: random_pauses(0.3, rng))


@cocotb.test()
async def random_bursts(dut):
    rng = seeded("bursts pauses")
    await random_run(dut, "bursts", lambda: bursts(rng, 20))


@cocotb.test()
async def without_pauses(dut):
    await random_run(dut, "straight", lambda: None)


@cocotb.test()
async def fair(dut):
    """Ports that always ask are served in turn, and nothing waits in between."""
    await start_up(dut)
    memory = Memory(dut, seeded("fair"), lambda: None)
    ports = [Requester(dut, f"ports__{i}", CONFIG) for i in range(PORTS)]
    rounds = 6
    waiting = []
    for i, port in enumerate(ports):
        for _ in range(rounds):
            waiting += [port.read(i, 1), port.write(i, bytes([i]) * SLICE)]
    for event in waiting:
        await with_timeout(event.wait(), 100_000, "ns")
    for stream in (memory.reads, memory.writes):
        order = [request["slice"] for request in stream.items]
        assert sorted(order[:PORTS]) == list(range(PORTS)) and order == order[:PORTS] * rounds, order
    assert memory.reads.cycles[-1] - memory.reads.cycles[0] == PORTS * rounds - 1
    sent = memory.data.cycles
    assert sent[-1] - sent[0] == len(sent) - 1 == PORTS * rounds * CONFIG.slice_beats - 1


@cocotb.test()
async def no_latency(dut):
    """A request and its data pass in the cycle they come."""
    await start_up(dut)
    memory = Memory(dut, seeded("latency"), lambda: None)
    ports = [Requester(dut, f"ports__{i}", CONFIG) for i in range(PORTS)]
    await ClockCycles(dut.clk, 5)
    for i, port in enumerate(ports):
        await with_timeout(port.read(i, 1).wait(), 10_000, "ns")
        assert port.reads.cycles[-1] == memory.reads.cycles[-1]
