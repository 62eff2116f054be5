"""The loop in Verilog against the reference."""

import cocotb
from cocotb.triggers import Timer

from sluice_hw.ici.crc import crc_value
from verif.transactors import parameter, seeded


@cocotb.test
async def same_as_reference(dut):
    length = int(parameter("LENGTH"))
    rng = seeded("crc")
    some = [rng.getrandbits(length) for _ in range(99)]
    for message in [0, (1 << length) - 1, *(1 << i for i in range(length)), *some]:
        dut.message.value = message
        await Timer(1, "ns")
        assert int(dut.crc.value) == crc_value(message, length)
