"""Bench of a soft reset in the middle of a write burst: the memory path of a chip, seen from its AXI4 pins."""

import cocotb
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from verif.transactors import parameter, seeded, start_up
from verif.unit.hbm.backed import CONFIGS

CONFIG = CONFIGS[parameter("CONFIG")]


@cocotb.test
async def a_beat_that_waits_stays(dut):
    """The requester forgets its beats at the cut; the burst is completed, and no beat changes while it waits."""
    rng = seeded("cut")
    await start_up(
        dut, limit_cycles=5000, cut=0, m_axi_awready=1, m_axi_wready=0, m_axi_bvalid=0, port__write_done__ready=1)
    for taken in range(CONFIG.slice_beats):
        dut.port__write__payload.value = 1 << 32  # slice 0, one
        dut.port__write__valid.value = 1
        await RisingEdge(dut.clk)
        while not int(dut.port__write__ready.value):
            await RisingEdge(dut.clk)
        dut.port__write__valid.value = 0
        sent, want = 0, [rng.getrandbits(256) for _ in range(taken + 1)]
        dut.port__write_data__valid.value = 1
        dut.port__write_data__payload.value = want[0]
        got, lasts, shown, cut = [], [], None, False
        while len(got) < CONFIG.slice_beats:
            dut.m_axi_wready.value = int(len(got) < taken or (cut and rng.random() < 0.3))
            await ReadOnly()
            moves = int(dut.port__write_data__valid.value) and int(dut.port__write_data__ready.value)
            valid, ready = int(dut.m_axi_wvalid.value), int(dut.m_axi_wready.value)
            beat = (int(dut.m_axi_wdata.value), int(dut.m_axi_wlast.value)) if valid else None
            assert shown is None or beat == shown, f"beat {len(got)} changed from {shown} to {beat}"
            shown = beat if valid and not ready else None
            if valid and ready:
                got.append(beat[0])
                lasts.append(beat[1])
            await RisingEdge(dut.clk)
            dut.cut.value = 0
            if moves:
                sent += 1
                dut.port__write_data__payload.value = want[min(sent, taken)]
            if not cut and len(got) == taken and shown:
                cut = True
                dut.cut.value = 1
                await RisingEdge(dut.clk)
                dut.cut.value = 0
                dut.port__write_data__valid.value = 0
                dut.port__write_data__payload.value = rng.getrandbits(256)
        assert got[: taken + 1] == want and lasts == [0] * (CONFIG.slice_beats - 1) + [1]
        dut.m_axi_wready.value = 0
        dut.m_axi_bvalid.value, dut.m_axi_bid.value = 1, int(dut.m_axi_awid.value)
        await RisingEdge(dut.clk)
        dut.m_axi_bvalid.value = 0
        await ClockCycles(dut.clk, 40)
