"""Bench of the whole chip's host ports: accesses that a well-behaved master does not make, and backpressure."""

import random

import cocotb
from cocotb.triggers import with_timeout
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
