"""Bench of the vector memory: all ports at once against a byte array and the rules of the banks, cycle by cycle."""

import random

import cocotb
from cocotb.triggers import RisingEdge

from sluice_hw.interfaces import VMEM_LATENCY
from sluice_hw.vmem import NARROW_READS, PORTS
from verif.transactors import parameter, seeded, start_up
from verif.unit.memory import CONFIGS, Bytes, to_bytes, to_int

CONFIG = CONFIGS[parameter("CONFIG")]
W, D, G = CONFIG.word_bytes, CONFIG.hbm_beat_bytes, CONFIG.vmem_interleave
WRITES = ("result", "ld")


def width_of(port: str) -> int:
    return D if port in ("ld", "st") else W


def bank_of(addr: int) -> int:
    """Bank of a byte, from the architecture's words: region by division, banks of a region in turn."""
    return addr // CONFIG.vmem_region_bytes * G + addr // W % G


class Request:
    """What stands on a port: address, mask, data."""

    def __init__(self, port: str, addr: int, mask: int | None = None, data: bytes = b""):
        self.port, self.addr, self.data = port, addr, data
        self.mask = (1 << width_of(port)) - 1 if mask is None else mask

    def used(self) -> list[int]:
        """Addresses of the bytes in the mask."""
        return [self.addr + i for i in range(width_of(self.port)) if self.mask >> i & 1]

    def fault(self) -> bool:
        if self.port in NARROW_READS:
            return self.addr >= CONFIG.vmem_bytes
        return any(a >= CONFIG.vmem_bytes for a in self.used())

    def banks(self) -> set[int]:
        return set() if self.fault() else {bank_of(a) for a in self.used() if a < CONFIG.vmem_bytes}

    def payload(self) -> int:
        width = width_of(self.port)
        if self.port in NARROW_READS:
            return self.addr
        if self.port == "st":
            return self.addr | self.mask << 32
        return self.addr | to_int(self.data) << 32 | self.mask << (32 + 8 * width)


class Bench:
    """Drives every port, and at each edge compares ready, responses and faults with the model."""

    def __init__(self, dut) -> None:
        self.dut, self.memory, self.cycle = dut, Bytes(CONFIG.vmem_bytes), 0
        self.requests: dict[str, Request | None] = dict.fromkeys(PORTS)
        self.responses: dict[str, dict[int, tuple[bytes, int]]] = {p: {} for p in (*NARROW_READS, "st")}
        self.faults: dict[int, tuple[int, int]] = {}
        self.conflicts = self.moved = 0

    def put(self, request: Request) -> None:
        port = request.port
        assert self.requests[port] is None
        self.requests[port] = request
        getattr(self.dut, f"{port}__req__payload").value = request.payload()
        getattr(self.dut, f"{port}__req__valid").value = 1

    async def step(self) -> list[Request]:
        """One cycle; returns the requests transferred in it."""
        await RisingEdge(self.dut.clk)
        taken: set[int] = set()
        granted = []
        for port in PORTS:
            request = self.requests[port]
            if request is None:
                continue
            banks = request.banks()
            ready = int(getattr(self.dut, f"{port}__req__ready").value)
            assert ready == int(not banks & taken), f"{port} at {request.addr:#x}: ready is {ready}, banks {banks}"
            taken |= banks
            if ready:
                granted.append(request)
            else:
                self.conflicts += 1
        self._check_outputs()
        faults, fault_addr = 0, 0
        for request in reversed(granted):
            if request.fault():
                faults |= 1 << PORTS.index(request.port)
                fault_addr = request.addr
        self.faults[self.cycle + 1] = faults, fault_addr
        for request in granted:
            if request.port not in WRITES:
                at = self.cycle + VMEM_LATENCY
                self.responses[request.port][at] = self.memory.read(request.addr, width_of(request.port)), request.mask
        for request in granted:
            if request.port in WRITES and not request.fault():
                for addr in request.used():
                    self.memory.data[addr] = request.data[addr - request.addr]
        for request in granted:
            self.requests[request.port] = None
            getattr(self.dut, f"{request.port}__req__valid").value = 0
        self.cycle += 1
        self.moved += len(granted)
        return granted

    def _check_outputs(self) -> None:
        faults, fault_addr = self.faults.pop(self.cycle, (0, 0))
        assert int(self.dut.fault.value) == faults, f"cycle {self.cycle}: faults"
        if faults:
            assert int(self.dut.fault_addr.value) == fault_addr
        for port, expected in self.responses.items():
            valid = int(getattr(self.dut, f"{port}__rsp_valid").value)
            assert valid == int(self.cycle in expected), f"{port}: rsp_valid is {valid} in cycle {self.cycle}"
            if valid:
                want, mask = expected.pop(self.cycle)
                got = to_bytes(int(getattr(self.dut, f"{port}__rsp_data").value), width_of(port))
                for i in range(width_of(port)):
                    if mask >> i & 1:
                        assert got[i] == want[i], f"{port}, byte {i}: {got.hex()} instead of {want.hex()}"

    async def drain(self) -> None:
        while any(self.requests.values()):
            await self.step()
        for _ in range(VMEM_LATENCY + 1):
            await self.step()


async def started(dut) -> tuple[Bench, random.Random]:
    """A bench whose memory holds random bytes, written through the LD port."""
    await start_up(dut)
    bench, rng = Bench(dut), seeded("vmem")
    for addr in range(0, CONFIG.vmem_bytes, D):
        bench.put(Request("ld", addr, data=rng.randbytes(D)))
        assert await bench.step(), "a lone port never waits"
    return bench, rng


def pick_addr(rng: random.Random, port: str, hot: list[int]) -> int:
    """Anywhere, near the edges of regions and of the memory, near the others' addresses, or outside."""
    size, region = CONFIG.vmem_bytes, CONFIG.vmem_region_bytes
    kind = rng.random()
    if kind < 0.35:
        addr = rng.randrange(size)
    elif kind < 0.55:
        addr = rng.randrange(0, size + 1, region) + rng.randint(-W - 1, W + 1)
    elif kind < 0.85:
        addr = rng.choice(hot) + rng.randint(-W, W)
    elif kind < 0.95:
        addr = size + rng.randint(-W, 2 * W)
    else:
        addr = rng.choice([1 << 31, (1 << 32) - rng.randint(1, 2 * W), size * 2 + rng.randrange(W), 1 << 25])
    addr %= 1 << 32
    return addr // D * D if port in ("ld", "st") else addr


def pick_mask(rng: random.Random, width: int) -> int:
    full = (1 << width) - 1
    kind = rng.random()
    if kind < 0.4:
        return full
    if kind < 0.7:  # a run of bytes
        low = rng.randrange(width)
        return full >> rng.randrange(width) << low & full
    return rng.getrandbits(width) if kind < 0.9 else 0 if kind < 0.95 else 1 << rng.randrange(width)


@cocotb.test()
async def random_traffic(dut):
    """Everything at once, with pauses that change, against the model."""
    bench, rng = await started(dut)
    for _ in range(60):
        busy = {port: rng.choice([0, 0.1, 0.5, 1]) for port in PORTS}
        hot = [rng.randrange(CONFIG.vmem_bytes) for _ in range(2)]
        for _ in range(60):
            for port in PORTS:
                if bench.requests[port] is None and rng.random() < busy[port]:
                    mask = None if port in NARROW_READS else pick_mask(rng, width_of(port))
                    data = rng.randbytes(width_of(port)) if port in WRITES else b""
                    bench.put(Request(port, pick_addr(rng, port, hot), mask, data))
            await bench.step()
    await bench.drain()
    assert bench.conflicts > 100 and bench.moved > 2000, (bench.conflicts, bench.moved)


@cocotb.test()
async def every_offset(dut):
    """Each alignment of a narrow write and of a read of every port, across the edge of each region."""
    bench, rng = await started(dut)
    for edge in range(0, CONFIG.vmem_bytes, CONFIG.vmem_region_bytes):
        for offset in range(-W, W + 1):
            if edge + offset < 0:
                continue
            bench.put(Request("result", edge + offset, data=rng.randbytes(W)))
            await bench.step()
            for port in NARROW_READS:
                bench.put(Request(port, edge + offset))
                await bench.step()
    await bench.drain()


@cocotb.test()
async def five_streams_do_not_wait(dut):
    """Streams in regions of their own move a word each, every cycle."""
    bench, rng = await started(dut)
    streams = ["act", "weights", "result", "ld", "st"][: CONFIG.vmem_regions]
    length = CONFIG.vmem_region_bytes
    for i in range(length // max(W, D)):
        for region, port in enumerate(streams):
            addr = region * length + i * width_of(port)
            bench.put(Request(port, addr, data=rng.randbytes(width_of(port)) if port in WRITES else b""))
        assert len(await bench.step()) == len(streams)
    await bench.drain()
    assert bench.conflicts == 0


@cocotb.test()
async def outside(dut):
    """Requests beyond the end change nothing, give 0 and a fault; masked bytes do not count."""
    bench, rng = await started(dut)
    size = CONFIG.vmem_bytes
    before = bench.memory.data.copy()
    for addr in (size, size + 1, size + W, 2 * size, 1 << 31, (1 << 32) - 1, (1 << 32) - W):
        for port in PORTS:
            at = addr // D * D if port in ("ld", "st") else addr
            bench.put(Request(port, at, data=rng.randbytes(width_of(port))))
            await bench.step()
    bench.put(Request("result", size - 1, data=rng.randbytes(W)))
    await bench.drain()
    assert (bench.memory.data == before).all()
    bench.put(Request("result", size - 1, mask=1, data=b"\x5a" * W))
    bench.put(Request("ld", size, mask=0, data=bytes(D)))
    await bench.drain()
    assert bench.memory.data[-1] == 0x5A
    for addr in range(0, size, W):
        bench.put(Request("act", addr))
        await bench.step()
    await bench.drain()
