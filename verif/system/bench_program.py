"""Bench of the whole chip: a program and an HBM image through the host ports, compared with golden byte for byte.

Parameters: ``PROGRAM`` (file of microcode bytes), ``IMAGE`` (npz: ``hbm``, uint8 from slice 0; ``reach``, bytes to
compare), ``CONFIG``, ``REPEATS``.
"""

import dataclasses
import os

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, First, RisingEdge, Timer
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiMaster

from sluice.asm import Program
from sluice.golden import GoldenMachine
from sluice_hw import csr, isa
from verif.system.configs import CONFIGS
from verif.transactors import parameter, seeded, start_up

CONFIG = CONFIGS[parameter("CONFIG")]
CSR = csr.csr_map(CONFIG)
TIMEOUT_NS = 20_000_000


class Host:
    """The driver's moves, as plain as can be."""

    def __init__(self, dut) -> None:
        self.dut = dut
        self.axil = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.axi = AxiMaster(AxiBus.from_prefix(dut, "s_axi"), dut.clk, dut.rst)

    async def read(self, name: str) -> int:
        return await self.axil.read_dword(CSR[name].offset)

    async def write(self, name: str, value: int) -> None:
        await self.axil.write_dword(CSR[name].offset, value)

    async def counter(self, name: str) -> int:
        return await self.read(f"{name.upper()}_LO") | await self.read(f"{name.upper()}_HI") << 32

    async def command(self, name: str) -> None:
        await self.write("CTRL", CSR["CTRL"].field(name).mask)

    async def run(self) -> dict[str, int]:
        """Start at ENTRY, wait for the interrupt, return STATUS fields."""
        await self.write("IRQ_STATUS", 0xF)
        await self.write("IRQ_ENABLE", 0xF)
        await self.command("start")
        if not int(self.dut.irq.value):
            await First(RisingEdge(self.dut.irq), Timer(TIMEOUT_NS, "ns"))
        status = CSR["STATUS"].unpack(await self.read("STATUS"))
        assert int(self.dut.irq.value), f"no interrupt; STATUS {status}"
        return status

    async def stalls(self) -> dict[str, dict[str, int]]:
        out = {}
        for unit, causes in isa.UNIT_CAUSES.items():
            out[unit] = {c.name.lower(): await self.counter(f"{unit}_{c.name.lower()}") for c in causes}
        return out

    async def error(self) -> str:
        code, pc, field, info, unit = [await self.read(f"ERROR_{n}") for n in ("CODE", "PC", "FIELD", "INFO", "UNIT")]
        return f"{isa.Error(code).name} pc {pc} field {field} info {info:#x} unit {unit}"


async def load(host: Host, program: Program, hbm: np.ndarray) -> None:
    await host.axi.write(csr.HostMap.UCODE_BASE, program.to_bytes())
    for at in range(0, hbm.size, 2048):
        await host.axi.write(at, hbm[at:at + 2048].tobytes())


@cocotb.test()
async def program_equals_golden(dut) -> None:
    rng = seeded("program")
    with open(parameter("PROGRAM"), "rb") as f:
        program = Program.from_bytes(f.read(), CONFIG)
    with np.load(parameter("IMAGE")) as image:
        hbm, reach = image["hbm"], int(image["reach"])
    repeats = int(os.environ.get("REPEATS", "1"))
    await start_up(dut, limit_cycles=10_000_000)
    host = Host(dut)
    assert await host.read("ID") == csr.CHIP_ID
    assert await host.read("CONFIG_HASH") == csr.config_hash(CONFIG)
    await load(host, program, hbm)
    for _ in range(repeats):
        golden = GoldenMachine(CONFIG)
        golden.write_hbm(0, hbm)
        want = golden.run(program, schedule_seed=rng.getrandbits(16))
        assert want.error is None, want.error
        status = await host.run()
        assert status["done"] and not status["error"], await host.error()
        assert await host.read("HALT_CODE") == want.halt_code
        got = np.frombuffer((await host.axi.read(0, reach)).data, np.uint8)
        bad = np.flatnonzero(got != golden.hbm.data[:reach])
        assert not bad.size, f"{bad.size} bytes of HBM differ from golden, the first at {bad[0]}"
        for name, value in dataclasses.asdict(want.counters).items():
            assert await host.counter(name) == value, f"{name}: {await host.counter(name)} instead of {value}"
        cycles = await host.counter("cycles")
        stalls = await host.stalls()
        for unit, causes in stalls.items():
            assert sum(causes.values()) == cycles, f"{unit}: {causes} sum to {sum(causes.values())}, not {cycles}"
        dut._log.info("%d cycles, %s", cycles, {u: {k: v for k, v in c.items() if v} for u, c in stalls.items()})
        await FallingEdge(dut.clk)
