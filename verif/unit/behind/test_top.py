"""Ports of chips whose memory is outside, and of what stands behind them."""

from __future__ import annotations

import pytest
from amaranth.hdl import Shape
from amaranth.lib.wiring import In, Out

from sluice_hw.behind import Axi4Ram, ChipWithMemory, DramChannels
from sluice_hw.chip import Chip
from sluice_hw.config import ChipConfig, preset
from sluice_hw.hbm.back_end import BackEnd, memory_members
from sluice_hw.hbm.dram_config import DramConfig

DRAM, AXI = preset("tiny-hbm2"), ChipConfig(name="axi", memory="axi4")


def test_pins() -> None:
    assert not memory_members(preset("tiny"))
    pins = memory_members(DRAM)
    bits = {name: Shape.cast(member.shape).width for name, member in pins.items()}
    assert bits == {
        "dram_row_op": 3, "dram_row_pc": 1, "dram_row_bank": 4, "dram_row_row": 14, "dram_column_op": 2,
        "dram_column_pc": 1, "dram_column_bank": 4, "dram_column_column": 5, "dram_write_data0": 128,
        "dram_write_data1": 128, "dram_write_check0": 16, "dram_write_check1": 16, "dram_read_data0": 128,
        "dram_read_data1": 128, "dram_read_check0": 16, "dram_read_check1": 16, "dram_read_valid": 2,
    }  # fmt: skip
    inputs = {name for name, member in pins.items() if member.flow is In}
    assert inputs == {name for name in pins if name.startswith("dram_read")}
    assert "dram_read_check0" not in memory_members(DRAM.replace(ecc="off"))
    wide = memory_members(DRAM.replace(hbm_bytes_per_cycle=128, slice_bytes=16384))
    assert Shape.cast(wide["dram_write_data0"].shape).width == 4 * 128
    assert memory_members(AXI)["m_axi_araddr"].flow is Out


@pytest.mark.parametrize("config", [DRAM, AXI])
def test_who_has_them(config: ChipConfig) -> None:
    pins = memory_members(config)
    device = DramChannels(DramConfig.of(config)) if config.is_dram else Axi4Ram(config)
    assert pins.keys() <= Chip(config).signature.members.keys()
    assert pins.keys() <= BackEnd(config).signature.members.keys()
    assert all(device.signature.members[name] == member.flip() for name, member in pins.items())
    assert not pins.keys() & ChipWithMemory(config).signature.members.keys()


def test_what_needs_none() -> None:
    with pytest.raises(ValueError, match="memory of a chip with a device behind it must be outside, not 'sram'"):
        ChipWithMemory(preset("tiny"))
    with pytest.raises(ValueError, match="memory of a chip with a back end must be outside of the chip, not 'sram'"):
        BackEnd(preset("tiny"))
    with pytest.raises(ValueError, match="memory of a chip on AXI4 must be 'axi4', not 'hbm2'"):
        Axi4Ram(DRAM)
