"""Slices in banks, and the map of a memory."""

from __future__ import annotations

import pytest

from sluice.compiler import compile as compile_graph
from sluice.errors import OutOfMemory, UsageError
from sluice.runtime import BankMap, CompiledModel, Device, SliceAllocator, compiled_memory
from sluice_hw.config import ChipConfig, preset
from sluice_hw.hbm.dram_config import DramConfig
from sluice_hw.hbm.timing import TIMINGS

TINY = preset("tiny")
OPEN = BankMap.of(TINY, "open-rows")


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("slice_bytes", [4096, 8192, 65536])
def test_as_the_slice_controller_places_them(timing, slice_bytes):
    chip = ChipConfig(slice_bytes=slice_bytes, hbm_bytes=1 << 26)
    try:
        dram = DramConfig(chip=chip, timing=timing)
    except ValueError:
        pytest.skip(f"{timing} takes no slices of {slice_bytes} bytes")
    banks = BankMap.of(chip, timing=timing)
    assert (banks.channels, banks.sets, banks.run) == (dram.channels, dram.sets, dram.run)
    for number in (*range(300), chip.hbm_slices - 1):
        bank_set, row, _ = dram.place(number)
        assert banks.place(number) == (bank_set, row), number
        assert row < banks.rows


def test_streams_that_meet():
    """Against the time line by hand: slices of 8 clocks, 28 to change a row, four sets, rows of 32 slices."""
    assert (OPEN.slice_clocks, OPEN.turn_clocks, OPEN.sets, OPEN.row_bytes // OPEN.slice_bytes) == (8, 28, 4, 32)
    far = 4 * 32  # the next row of the same sets
    assert OPEN.bandwidth([(0, 1000), (2, 1000)]) > OPEN.bandwidth([(0, 1000), (far, 1000)])
    # The second access of every step turns the set of the first, and the first one that of four steps ago.
    assert OPEN.bandwidth([(0, 1), (far, 1)]) == 16 / (8 + 28 + 8)
    assert OPEN.bandwidth([(0, 1), (1, 1), (far, 1)]) == 24 / (8 + 8 + 28 - 8 + 8)
    assert OPEN.bandwidth([(0, 32)]) == 1.0
    assert BankMap.of(TINY).bandwidth([(0, 1000), (far, 1000)]) == 1.0, "the schedule hides it"


def test_placement_knows_banks():
    def two(apart: bool) -> tuple[float, int]:
        allocator = SliceAllocator(1024, 256, OPEN)
        a = allocator.alloc(128, "a")
        b = allocator.alloc(128, "b", apart=[a] if apart else [])
        return OPEN.bandwidth([(a, 128), (b, 128)]), b

    blind, careful = two(False), two(True)
    assert blind[1] == 128 and careful[1] == 130 and careful[0] > 1.5 * blind[0]


def test_not_fitting_and_sharing_banks_are_told_apart():
    with Device(TINY, "golden") as device:
        a = device.alloc(128 * 256, name="a")
        with device.alloc(128 * 256, name="b") as b:
            info = device.memory_info([a, b], banks=OPEN)
            (warning,) = info.warnings
            assert warning == f"fits, but these tensors share banks: a, b: {100 * info.bandwidth:.0f} % of bandwidth"
            assert info.bandwidth < 0.5 and not device.memory_info([a, b]).warnings
            assert not device.memory_info([a], banks=OPEN).warnings, "one alone has nobody to share with"
        info = device.memory_info()
        assert (info.used, info.peak, info.fragmentation) == (128, 256, 0.0)
        assert [(p.first, p.count, p.what) for p in info.pieces] == [(0, 128, "a")]
        hole = device.alloc_at(40000, 256)
        device.alloc_at(20000, 256)
        hole.free()
        text = (
            r"needs 16.0 MiB \(65535 slices\), 16.0 MiB \(65407 slices\) free of 16 MiB \(65536 slices\), "
            r"largest hole 11.1 MiB \(45535 slices\)"
        )
        with pytest.raises(OutOfMemory, match=text):
            device.alloc(TINY.hbm_bytes - 256)
        text = str(device.memory_info())
        assert "largest hole 11.1 MiB, fragmentation 30 %" in text and "at most 64 KiB at a time" in text
        with pytest.raises(UsageError, match="freed"):
            device.memory_info([hole])


def test_map_of_a_network():
    from sluice.cli.digits import quantised

    compiled = compile_graph(quantised("mlp", 40), TINY)
    info = compiled_memory(compiled)
    assert info.used == compiled.hbm_slices - compiled.hbm_base
    names = [p.what for p in info.pieces]
    assert {"input image", "output logits"} < set(names)
    for before, after in zip(info.pieces, info.pieces[1:], strict=False):
        assert before.first + before.count == after.first
    assert "input image" in info.together and len(info.together) == 3


def test_what_lies_in_a_slice():
    from sluice.cli.digits import quantised

    compiled = compile_graph(quantised("mlp", 40), TINY)
    with Device(TINY, "golden") as device:
        other = device.alloc_at(compiled.hbm_slices, 256, name="other")
        with CompiledModel(compiled, device):
            for tensor in (*compiled.inputs.values(), *compiled.outputs.values(), *compiled.constants):
                for number in (tensor.slice_address, tensor.slice_address + tensor.slices - 1):
                    assert device.hbm.what_at(number).endswith(f" {tensor.name} of '{compiled.graph.name}'")
            assert device.hbm.what_at(other.slice) == "other" and device.hbm.what_at(other.slice + 1) == ""
        assert device.hbm.what_at(0) == ""


def test_mistakes():
    with pytest.raises(UsageError, match="banks must be slices or open-rows, not 'ddr'"):
        BankMap.of(TINY, "ddr")
    with pytest.raises(UsageError, match="timing must be one of hbm2-2gb"):
        BankMap.of(TINY, timing="ddr3")
    with pytest.raises(UsageError, match="sets of a bank map must be a positive integer, not 0"):
        BankMap(channels=1, sets=0, run=1, rows=1, row_bytes=1, slice_bytes=1, slice_clocks=1)
