"""The simulator's side of the ``cocotb`` transport: AXI masters on the chip's ports, told what to do over a socket.

Runs inside the simulator as a cocotb test. While a program runs only the clock moves, in C++: Python sleeps until the
interrupt rises.
"""

from __future__ import annotations

import logging
import os
import socket
import time

import cocotb
from cocotb.clock import Clock
from cocotb.simtime import get_sim_time
from cocotb.triggers import First, ReadOnly, RisingEdge, Timer
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiMaster, AxiResp

from sluice.runtime import wire
from sluice.runtime.wire import PERIOD_NS, Request, Status

_RESET_CYCLES = 4
#: Bytes of one AXI transaction, of as many bursts as it takes.
_PIECE = 1 << 16


class Refused(Exception):
    """The chip answered SLVERR."""


class Server:
    """AXI masters, clock and reset of a simulated chip."""

    def __init__(self, dut) -> None:
        self.dut = dut
        self.cycles, self.seconds = 0, 0.0

    async def begin(self) -> None:
        dut = self.dut
        dut.rst.value = 1
        Clock(dut.clk, PERIOD_NS, unit="ns").start()
        memory_period = int(os.environ.get(wire.MEMORY_PERIOD_VARIABLE, "0"))
        if memory_period:
            dut.memory_rst.value = 1
            Clock(dut.memory_clk, memory_period, unit="ps").start()
        # Requests are held back until the reset has ended by not making any.
        self.lite = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.axi = AxiMaster(AxiBus.from_prefix(dut, "s_axi"), dut.clk, dut.rst)
        for name in ("s_axil", "s_axi"):
            logging.getLogger(f"cocotb.{dut._name}.{name}").setLevel(logging.WARNING)
        for _ in range(_RESET_CYCLES + 4 * memory_period // (1000 * PERIOD_NS)):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        if memory_period:
            dut.memory_rst.value = 0
        await RisingEdge(dut.clk)

    async def handle(self, kind: Request, a: int, b: int, data: bytes) -> tuple[int, bytes]:
        match kind:
            case Request.CSR_READ:
                return int.from_bytes(_checked(await self.lite.read(a, 4)).data, "little"), b""
            case Request.CSR_WRITE:
                _checked(await self.lite.write(a, b.to_bytes(4, "little")))
            case Request.MEM_READ:
                parts = []
                for at in range(a, a + b, _PIECE):
                    parts.append(bytes(_checked(await self.axi.read(at, min(_PIECE, a + b - at))).data))
                return 0, b"".join(parts)
            case Request.MEM_WRITE:
                for at in range(0, len(data), _PIECE):
                    _checked(await self.axi.write(a + at, data[at : at + _PIECE]))
            case Request.WAIT:
                return int(await self.wait(a, interrupt=True)), b""
            case Request.ADVANCE:
                await self.wait(a, interrupt=False)
        return 0, b""

    async def wait(self, cycles: int, *, interrupt: bool) -> bool:
        """Whether the interrupt is high, after ``cycles`` at most."""
        irq = self.dut.irq
        started, began = time.perf_counter(), get_sim_time("ns")
        timer = Timer(max(cycles, 1) * PERIOD_NS, unit="ns")
        if not interrupt:
            await timer
        elif not int(irq.value):
            await First(RisingEdge(irq), timer)
        await ReadOnly()
        high = bool(int(irq.value))
        self.cycles += round((get_sim_time("ns") - began) / PERIOD_NS)
        self.seconds += time.perf_counter() - started
        await RisingEdge(self.dut.clk)
        return high


def _checked(done):
    if done.resp != AxiResp.OKAY:
        raise Refused(f"{AxiResp(done.resp).name}")
    return done


@cocotb.test
async def serve(dut):
    """Serve requests until the driver goes."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ[wire.SOCKET_VARIABLE])
    server = Server(dut)
    await server.begin()
    while True:
        try:
            kind, a, b, data = wire.receive_request(connection)
        except (EOFError, ConnectionError):
            return
        if kind is Request.QUIT:
            wire.send_reply(connection, Status.OK, 0, server.cycles, server.seconds)
            return
        value, answer, status = 0, b"", Status.OK
        try:
            value, answer = await server.handle(kind, a, b, data)
        except Refused as error:
            status, answer = Status.REFUSED, str(error).encode()
        try:
            wire.send_reply(connection, status, value, server.cycles, server.seconds, answer)
        except ConnectionError:
            return
