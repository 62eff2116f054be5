"""A few cycles to look at."""

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles


@cocotb.test
async def run(dut):
    dut.rst.value = 0
    dut.s_axi_awvalid.value = 0
    Clock(dut.clk, 10, unit="ns").start()
    await ClockCycles(dut.clk, 200)
