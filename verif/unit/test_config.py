"""Configurations: presets, derived sizes, and a refusal for every combination that cannot be built."""

import dataclasses
import math

import pytest

from sluice_hw.config import PRESETS, ChipConfig, preset


def test_presets_follow_their_table() -> None:
    table = {
        # name: rows, cols, VMEM, accumulators, HBM bytes per cycle, slice
        "tiny": (8, 8, 64 << 10, 16 << 10, 32, 256),
        "small": (16, 16, 512 << 10, 64 << 10, 32, 256),
        "edgetpu": (64, 64, 8 << 20, 1 << 20, 16, 1 << 10),
        "mid128": (128, 128, 16 << 20, 2 << 20, 256, 4 << 10),
        "v1": (256, 256, 24 << 20, 4 << 20, 256, 4 << 10),
        "v1-ddr3": (256, 256, 24 << 20, 4 << 20, 48, 4 << 10),
        "v2": (128, 128, 16 << 20, 4 << 20, 512, 4 << 10),
        "tiny-hbm2": (8, 8, 64 << 10, 16 << 10, 32, 4 << 10),
    }
    assert set(table) == set(PRESETS)
    for name, want in table.items():
        c = preset(name)
        got = (c.rows, c.cols, c.vmem_bytes, c.acc_bytes, c.hbm_bytes_per_cycle, c.slice_bytes)
        assert got == want, name
        assert c.hbm_latency >= 40 and c.vmem_banks >= 8


@pytest.mark.parametrize("c", PRESETS.values(), ids=lambda c: c.name)
def test_derived_sizes_fit_together(c: ChipConfig) -> None:
    assert c.vmem_regions * c.vmem_region_bytes == c.vmem_bytes
    assert c.vmem_banks * c.vmem_bank_rows * c.word_bytes == c.vmem_bytes
    assert (c.row_bytes, c.col_bytes) == (c.rows * c.element_bytes, c.cols * c.element_bytes)
    assert c.word_bytes >= max(c.row_bytes, c.col_bytes) and c.word_bytes & (c.word_bytes - 1) == 0
    assert c.vmem_interleave * c.word_bytes >= c.hbm_beat_bytes
    assert 2 * c.acc_region_rows == c.acc_rows and c.acc_rows * 4 * c.cols == c.acc_bytes
    assert c.slice_beats * c.hbm_beat_bytes == c.slice_bytes
    if c.is_float:
        assert c.psum_width == 32 and c.element_bytes == 2 and c.acc_revisit > c.pe_latency
        return
    # The longest column of -128 x -128 fits a partial sum.
    assert c.rows * 128 * 128 < 1 << (c.psum_width - 1) or c.rows * 128 * 128 == 1 << (c.psum_width - 2)


def test_memory_port_and_its_rate() -> None:
    for rate in range(8, 4097):
        c = ChipConfig(hbm_bytes_per_cycle=rate, slice_bytes=4096, vmem_banks=256, rows=128, cols=4, vmem_bytes=1 << 20)
        beat, (moves, cycles) = c.hbm_beat_bytes, c.hbm_beat_rate
        assert beat & (beat - 1) == 0 and beat // 2 < rate <= beat
        assert moves * beat == rate * cycles and math.gcd(moves, cycles) == 1
        assert c.slice_beats * beat == c.slice_bytes
    assert preset("v1-ddr3").hbm_beat_bytes == 64 and preset("v1-ddr3").hbm_beat_rate == (3, 4)
    assert preset("v1").hbm_beat_bytes == 256 and preset("v1").hbm_beat_rate == (1, 1)
    with pytest.raises(ValueError, match=r"slice_bytes must be at least max\(64, bytes of an HBM beat = 128\), not 64"):
        ChipConfig(hbm_bytes_per_cycle=65, slice_bytes=64)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rows", 1), ("rows", 1025), ("cols", 0), ("cols", 1025), ("dtype", "int4"), ("clock_mhz", 0),
        ("hbm_bytes_per_cycle", 7), ("hbm_bytes_per_cycle", 4097), ("hbm_bytes_per_cycle", 0), ("hbm_latency", 39),
        ("slice_bytes", 100), ("slice_bytes", 32), ("slice_bytes", 1 << 17), ("hbm_bytes", 0), ("hbm_bytes", 1000),
        ("hbm_bytes", 1 << 37), ("vmem_banks", 6), ("vmem_banks", 34), ("vmem_banks", 512), ("vmem_bytes", 1000),
        ("vmem_bytes", 256), ("vmem_bytes", 1 << 26), ("acc_bytes", 63), ("acc_bytes", 64), ("acc_bytes", 1 << 23),
        ("feed_ports", 0), ("feed_ports", 17), ("pe_latency", 2), ("microcode_words", 15),
        ("microcode_words", (1 << 16) + 1), ("ld_queue", 1), ("st_queue", 65), ("mxu_queue", 0), ("vpu_queue", -1),
        ("token_max", 0), ("token_max", 256), ("watchdog_cycles", 63), ("event_ring", 3), ("event_ring", 8192),
    ],
)
def test_refuses_by_name_and_value(field: str, value: object) -> None:
    with pytest.raises(ValueError) as error:
        ChipConfig(**{field: value})
    assert str(error.value).startswith(field) and repr(value) in str(error.value), error.value


HBM2 = {"memory": "hbm2", "slice_bytes": 4096}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"memory": "ddr3"}, "memory must be 'sram' or 'hbm2' or 'hbm3' or 'axi4', not 'ddr3'"),
        ({"memory": "hbm2"}, "slice_bytes with 1 channels of hbm2-4gb must be 4096 times a power of two, not 256"),
        ({"memory": "hbm3", "slice_bytes": 4096}, "slice_bytes with 1 channels of hbm3-4gb must be 8192 times"),
        ({**HBM2, "slice_bytes": 65536, "hbm_bytes_per_cycle": 48}, "hbm_bytes_per_cycle of a chip with DRAM must be "
         "32 times a power of two, not 48"),
        ({**HBM2, "hbm_bytes": 1 << 30}, "hbm_bytes must be at most 536870912, what 1 channels of hbm2-4gb hold"),
        ({**HBM2, "hbm_latency": 41}, "hbm_latency must be 40 with memory 'hbm2', whose latency follows from its"),
        ({**HBM2, "dram_gigabits": 3}, "dram_gigabits must be 2 or 4 or 8 with memory 'hbm2', not 3"),
        ({**HBM2, "dram_refresh": "never"}, "dram_refresh must be 'per-bank' or 'all-bank', not 'never'"),
        ({**HBM2, "memory_clocks": 0}, "memory_clocks must be 1 to 64, not 0"),
        ({**HBM2, "core_clocks": 65}, "core_clocks must be 1 to 64, not 65"),
        ({**HBM2, "ecc": "inband"}, "ecc must be one that memory 'hbm2' has (sram: off, sideband; hbm2: off, sideband; "
         "hbm3: off, sideband; axi4: off, inband, device), not 'inband'"),
        ({"memory": "axi4", "ecc": "sideband"}, "ecc must be one that memory 'axi4' has"),
        ({"ecc": "device"}, "ecc must be one that memory 'sram' has"),
        ({"memory": "axi4", "hbm_bytes_per_cycle": 64}, "hbm_bytes_per_cycle must be 32 with memory 'axi4', the width"),
        ({"dram_gigabits": 8}, "dram_gigabits must be 4 with memory 'sram', which is no DRAM, not 8"),
        ({"memory": "axi4", "core_clocks": 2}, "core_clocks must be 1 with memory 'axi4', which is no DRAM, not 2"),
        ({"memory": "axi4", "ecc": "inband", "hbm_bytes": 1 << 36}, "hbm_bytes must be at most 8 of 9 parts of 2**36"),
    ],
)
def test_memories_refuse_what_they_cannot_be(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as error:
        ChipConfig(**fields)
    assert str(error.value).startswith(message), error.value


def test_memories() -> None:
    """What follows from the memory: latency, rate, slices beside those of data."""
    dram = preset("tiny-hbm2")
    assert dram.is_dram and not dram.memory_crosses and dram.hbm_beat_rate == (1, 1)
    assert dram.hbm_read_latency == dram.hbm_first_beat + 2 == 41
    slow = dram.replace(memory_clocks=2, core_clocks=3)
    assert slow.memory_crosses and slow.hbm_beat_rate == (2, 3) and slow.hbm_first_beat > dram.hbm_first_beat
    assert dram.replace(memory_clocks=3, core_clocks=2).hbm_beat_rate == (1, 1)
    inband = ChipConfig(memory="axi4", ecc="inband", hbm_bytes=256 * 17)
    assert (inband.hbm_slices, inband.memory_slices) == (17, 20)
    for slices in range(1, 100):
        assert inband.replace(hbm_bytes=256 * slices).memory_slices * 8 // 9 == slices


def test_bf16() -> None:
    c = ChipConfig(dtype="bf16", rows=5, cols=12, pe_latency=3, acc_bytes=96 * 20)
    assert (c.row_bytes, c.col_bytes, c.word_bytes, c.acc_rows) == (10, 24, 32, 40)
    with pytest.raises(ValueError, match="rows must be 2 to 512, not 513"):
        ChipConfig(dtype="bf16", rows=513)
    with pytest.raises(ValueError, match="pe_latency must be 1 to 6, not 7"):
        ChipConfig(dtype="bf16", pe_latency=7)
    with pytest.raises(ValueError, match="dtype must be 'int8' or 'bf16' or 'int8.bf16', not 'fp8'"):
        ChipConfig(dtype="fp8")
    assert [ChipConfig(dtype=kind).both for kind in ("int8", "bf16", "int8+bf16")] == [False, False, True]


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(ChipConfig)])
def test_refuses_other_types(field: str) -> None:
    for value in (None, 1.5, True, [8]):
        with pytest.raises(TypeError, match=field):
            ChipConfig(**{field: value})


def test_unknown_names_are_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown config 'huge'.*tiny"):
        preset("huge")
    with pytest.raises(ValueError, match="unknown config field 'colums'.*cols"):
        preset("tiny").replace(colums=3)
    assert preset("tiny").replace(cols=12, acc_bytes=96 * 8).cols == 12
