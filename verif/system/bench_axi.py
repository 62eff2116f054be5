"""Bench of the whole chip's host ports: accesses that a well-behaved master does not make, and backpressure."""

import random

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiBurstType, AxiResp

from sluice.asm import assemble
from sluice_hw import csr
from sluice_hw.csr import HostMap
from verif.system.bench_program import Host
from verif.system.configs import CONFIGS
from verif.transactors import random_pauses, seeded, start_up

CONFIG = CONFIGS["tiny"]
CSR = csr.csr_map(CONFIG)
HBM, STORE = CONFIG.hbm_bytes, HostMap.UCODE_BASE
STORE_END = STORE + CONFIG.microcode_words * HostMap.WORD_BYTES
LIMIT_NS = 100_000


async def begin(dut) -> Host:
    await start_up(dut)
    return Host(dut)


async def resp(transaction) -> AxiResp:
    """Answer of a transaction; one that never comes is an error and no hang."""
    return AxiResp((await with_timeout(transaction, LIMIT_NS, "ns")).resp)


async def still_works(host: Host, rng: random.Random) -> None:
    data = rng.randbytes(512)
    assert await resp(host.axi.write(0x1000, data)) == AxiResp.OKAY
    assert (await with_timeout(host.axi.read(0x1000, 512), LIMIT_NS, "ns")).data == data
    assert await host.read("ID") == csr.CHIP_ID


@cocotb.test
async def data_out_of_range(dut) -> None:
    """Outside of HBM and store: SLVERR for reads and writes, single words and bursts, also those that begin inside."""
    host, rng = await begin(dut), seeded("range")
    inside = rng.randbytes(64)
    assert await resp(host.axi.write(HBM - 64, inside)) == AxiResp.OKAY
    places = [HBM, HBM + 4096, STORE - 8, STORE - 4096, STORE_END, STORE_END + 0x10000, (1 << 40) - 8, 1 << 35]
    for address in places:
        for size in (8, 64):
            if address + size > 1 << 40:
                continue
            assert await resp(host.axi.read(address, size)) == AxiResp.SLVERR, hex(address)
            assert await resp(host.axi.write(address, bytes(size))) == AxiResp.SLVERR, hex(address)
    assert (await with_timeout(host.axi.read(HBM - 64, 64), LIMIT_NS, "ns")).data == inside
    await still_works(host, rng)


@cocotb.test
async def data_of_a_wrong_size(dut) -> None:
    """Narrow beats, part of a word, unaligned addresses, fixed and wrapping bursts: SLVERR, and memory as it was."""
    host, rng = await begin(dut), seeded("size")
    before = rng.randbytes(64)
    assert await resp(host.axi.write(0x2000, before)) == AxiResp.OKAY
    for base in (0x2000, STORE):
        for size in (0, 1, 2):
            assert await resp(host.axi.read(base, 8, size=size)) == AxiResp.SLVERR, (base, size)
            assert await resp(host.axi.write(base, bytes(8), size=size)) == AxiResp.SLVERR, (base, size)
        assert await resp(host.axi.write(base + 4, bytes(4))) == AxiResp.SLVERR
        assert await resp(host.axi.write(base, bytes(3))) == AxiResp.SLVERR
        assert await resp(host.axi.read(base + 3, 8)) == AxiResp.SLVERR
        for burst in (AxiBurstType.FIXED, AxiBurstType.WRAP):
            assert await resp(host.axi.read(base, 32, burst=burst)) == AxiResp.SLVERR, burst
            assert await resp(host.axi.write(base, bytes(32), burst=burst)) == AxiResp.SLVERR, burst
    assert (await with_timeout(host.axi.read(0x2000, 64), LIMIT_NS, "ns")).data == before
    await still_works(host, rng)


@cocotb.test
async def registers(dut) -> None:
    """Offsets that are none, registers that only read, part of a register: SLVERR and no effect."""
    host, rng = await begin(dut), seeded("registers")
    known = {r.offset for r in CSR.values()}
    last = max(known)
    holes = [at for at in range(0, last + 64, 4) if at not in known]
    for at in [*rng.sample(holes, min(12, len(holes))), last + 4, 0xFFC]:
        assert await resp(host.axil.read(at, 4)) == AxiResp.SLVERR, hex(at)
        assert await resp(host.axil.write(at, bytes(4))) == AxiResp.SLVERR, hex(at)
    for name in ("ID", "ROWS", "STATUS", "CYCLES_LO", "ERROR_PC", "PC"):
        value = await host.read(name)
        assert await resp(host.axil.write(CSR[name].offset, b"\xff" * 4)) == AxiResp.SLVERR, name
        assert await host.read(name) == value
    await host.write("PARAM3", 0x12345678)
    for size in (1, 2, 3):
        assert await resp(host.axil.write(CSR["PARAM3"].offset, b"\xff" * size)) == AxiResp.SLVERR, size
    assert await host.read("PARAM3") == 0x12345678
    for value in (3, 0x1F, 9):  # more than one command
        assert await resp(host.axil.write(CSR["CTRL"].offset, value.to_bytes(4, "little"))) == AxiResp.SLVERR
    await still_works(host, rng)


@cocotb.test
async def a_program_under_backpressure(dut) -> None:
    """All ten channels pause at random while a program is loaded, run and read back, with the host in HBM meanwhile."""
    host, rng = await begin(dut), seeded("backpressure")
    for master in (host.axi, host.axil):
        for channel in (master.write_if.aw_channel, master.write_if.w_channel, master.write_if.b_channel,
                        master.read_if.ar_channel, master.read_if.r_channel):  # fmt: skip
            channel.set_pause_generator(random_pauses(rng.uniform(0.2, 0.6), rng))
    size = CONFIG.slice_bytes
    program = assemble(f"""
        addr r0 base=8
        addr r1 base=0
        addr r2 base=16
        dma_shape unit=ld row_bytes={4 * size} rows=1
        dma_shape unit=st row_bytes={4 * size} rows=1
        hbm_read_slice hbm=r0 vmem=r1 count=4 signal=st
        hbm_write_slice hbm=r2 vmem=r1 count=4 wait=ld
        halt code=3
    """, CONFIG)
    source, other = rng.randbytes(4 * size), rng.randbytes(size)
    await host.axi.write(STORE, program.to_bytes())
    assert (await host.axi.read(STORE, 64)).data == program.to_bytes()[:64]
    await host.axi.write(8 * size, source)
    running = cocotb.start_soon(host.run())
    assert await resp(host.axi.write(40 * size, other)) == AxiResp.OKAY
    assert (await host.axi.read(40 * size, size)).data == other
    status = await with_timeout(running, 10 * LIMIT_NS, "ns")
    assert status["done"] and not status["error"] and await host.read("HALT_CODE") == 3
    assert (await host.axi.read(16 * size, 4 * size)).data == source


class RawMaster:
    """Bursts on the data port just as they are asked for: a model of a master would split or refuse them."""

    def __init__(self, dut) -> None:
        self.dut = dut
        for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
            self._signal(name).value = 0

    def _signal(self, name: str):
        return getattr(self.dut, f"s_axi_{name}")

    async def _give(self, channel: str, **fields: int) -> None:
        for name, value in fields.items():
            self._signal(channel + name).value = value
        self._signal(channel + "valid").value = 1
        while True:
            await RisingEdge(self.dut.clk)
            if int(self._signal(channel + "ready").value):
                break
        self._signal(channel + "valid").value = 0

    async def _take(self, channel: str, *names: str) -> list[int]:
        self._signal(channel + "ready").value = 1
        while True:
            await RisingEdge(self.dut.clk)
            if int(self._signal(channel + "valid").value):
                break
        self._signal(channel + "ready").value = 0
        return [int(self._signal(channel + name).value) for name in names]

    async def write(self, address: int, data: bytes) -> AxiResp:
        beats = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
        await self._give("aw", addr=address, len=len(beats) - 1, size=3, burst=1, id=1)
        for number, beat in enumerate(beats):
            await self._give("w", data=beat, strb=0xFF, last=int(number == len(beats) - 1))
        return AxiResp((await self._take("b", "resp"))[0])

    async def read(self, address: int, beats: int) -> tuple[AxiResp, bytes]:
        await self._give("ar", addr=address, len=beats - 1, size=3, burst=1, id=2)
        data, worst = b"", AxiResp.OKAY
        for beat in range(beats):
            value, answer, last = await self._take("r", "data", "resp", "last")
            assert last == (beat == beats - 1)
            data, worst = data + value.to_bytes(8, "little"), max(worst, AxiResp(answer))
        return worst, data


@cocotb.test
async def bursts_over_4_kib(dut) -> None:
    """Bursts that cross a boundary of 4 KiB, which AXI forbids, are served whole; beyond a window's edge none is."""
    await start_up(dut)
    raw, rng = RawMaster(dut), seeded("boundary")
    model = bytearray(3 * 4096)
    for at in range(0, len(model), 2048):
        assert await raw.write(at, bytes(2048)) == AxiResp.OKAY
    for _ in range(12):
        beats = rng.choice([2, 3, 16, 256, rng.randint(2, 256)])
        start = rng.choice([4096, 8192]) - 8 * rng.randint(1, beats - 1)
        data = rng.randbytes(8 * beats)
        assert await raw.write(start, data) == AxiResp.OKAY
        model[start : start + len(data)] = data
        assert await raw.read(start, beats) == (AxiResp.OKAY, data)
    for at in range(0, len(model), 2048):
        assert await raw.read(at, 256) == (AxiResp.OKAY, bytes(model[at : at + 2048]))
    # One beat inside of the window's end, and one outside.
    for end in (HBM, STORE_END):
        last = rng.randbytes(256 * 8)
        assert await raw.write(end - len(last), last) == AxiResp.OKAY
        for beats in (2, 17, 256):
            assert await raw.write(end - 8 * (beats - 1), bytes(8 * beats)) == AxiResp.SLVERR
            assert (await raw.read(end - 8 * (beats - 1), beats))[0] == AxiResp.SLVERR
        assert await raw.read(end - len(last), 256) == (AxiResp.OKAY, last)


@cocotb.test
async def soft_resets_under_bursts(dut) -> None:
    """Soft resets at random cycles while a program runs and bursts are under way: each burst is answered, and right."""
    host, rng = await begin(dut), seeded("soft")
    size = CONFIG.slice_bytes
    program = assemble(f"""
        addr r0 base=8
        addr r1 base=0
        dma_shape unit=ld row_bytes={size} rows=2
        dma_shape unit=st row_bytes={size} rows=2
        addr r2 base=100
        loop 0 count=100000 {{
          hbm_read_slice hbm=r0 vmem=r1 count=2
          hbm_write_slice hbm=r2 vmem=r1 count=2
        }}
        halt
    """, CONFIG)
    await host.axi.write(STORE, program.to_bytes())
    base, ended, bursts, ran = 400 * size, False, 0, 0

    async def traffic() -> None:
        nonlocal bursts
        while not ended:
            at, data = base + 8 * rng.randrange(2000), rng.randbytes(8 * rng.randint(1, 200))
            assert await resp(host.axi.write(at, data)) == AxiResp.OKAY
            got = await with_timeout(host.axi.read(at, len(data)), LIMIT_NS, "ns")
            assert (got.resp, got.data) == (AxiResp.OKAY, data)
            bursts += 1

    busy = cocotb.start_soon(traffic())
    for _ in range(12):
        for _ in range(200):  # refused while the reset waits for trains that memory has accepted
            start = CSR["CTRL"].field("start").mask.to_bytes(4, "little")
            if await resp(host.axil.write(CSR["CTRL"].offset, start)) == AxiResp.OKAY:
                break
        else:
            raise AssertionError(f"the reset does not end: {CSR['STATUS'].unpack(await host.read('STATUS'))}")
        await ClockCycles(dut.clk, rng.randint(1, 600))
        status = CSR["STATUS"].unpack(await host.read("STATUS"))
        assert status["running"] or status["starting"], status  # it starts when the burst under way has ended
        ran += status["running"]
        await host.command("soft_reset")
        await ClockCycles(dut.clk, rng.randint(1, 100))
    ended = True
    await with_timeout(busy, LIMIT_NS, "ns")
    assert bursts >= 3 and ran >= 4, (bursts, ran)
    await still_works(host, rng)


@cocotb.test
async def aborted_bursts(dut) -> None:
    """A master that gives up in the middle of a burst and resets all: what it had not written is as it was."""
    host, rng = await begin(dut), seeded("abort")
    size = CONFIG.slice_bytes
    before = rng.randbytes(8 * size)
    assert await resp(host.axi.write(0, before)) == AxiResp.OKAY
    assert (await host.axi.read(0, len(before))).data == before
    await ClockCycles(dut.clk, 400)
    for _ in range(8):
        cocotb.start_soon(host.axi.write(2 * size, rng.randbytes(4 * size)))
        cocotb.start_soon(host.axi.read(0, 8 * size))
        await ClockCycles(dut.clk, rng.randint(1, 150))
        dut.rst.value = 1
        await ClockCycles(dut.clk, rng.randint(1, 5))
        dut.rst.value = 0
        await ClockCycles(dut.clk, 5)
        got = (await with_timeout(host.axi.read(0, len(before)), LIMIT_NS, "ns")).data
        assert got[: 2 * size] + got[6 * size :] == before[: 2 * size] + before[6 * size :]
        await still_works(host, rng)
        assert await resp(host.axi.write(0, before)) == AxiResp.OKAY
