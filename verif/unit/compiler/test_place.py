"""Placement: no two buffers of one time overlap, streams stay apart where there is room, and errors count bytes."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.compiler import DoesNotFit
from sluice.compiler.place import Buffer, HbmMap, VmemMap

from .run_golden import SMALL, TINY

REGION = TINY.vmem_region_bytes


def check_disjoint(memory: VmemMap) -> None:
    buffers = list(memory.buffers.values())
    for i, a in enumerate(buffers):
        for first, end in memory.pieces(a):
            assert 0 <= first < end <= memory.config.vmem_bytes
        for b in buffers[:i]:
            if a.overlaps(b):
                assert not any(f < h and g < e for f, e in memory.pieces(a) for g, h in memory.pieces(b)), (a, b)


def test_random_buffers_never_overlap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    full = 0
    for _ in range(40):
        memory = VmemMap(TINY)
        for number in range(12):
            born = int(rng.integers(0, 6))
            slots, spread = (int(v) for v in rng.integers(1, 4, 2))
            size = slots * int(rng.integers(1, 200 // spread)) * memory.align
            buffer = Buffer(f"b{number}", size, slots, spread, born, born + int(rng.integers(0, 4)))
            try:
                memory.place(buffer)
            except DoesNotFit:
                full += 1
        check_disjoint(memory)
        assert all(b.address % memory.align == 0 for b in memory.buffers.values() if b.slots == 1)
    assert full, "the test never filled the memory"


def test_streams_keep_to_their_own_regions() -> None:
    memory = VmemMap(TINY)
    apart = frozenset({"a", "b", "c"})
    for name in "abc":
        memory.place(Buffer(name, 2 * REGION, apart=apart))
    regions = [memory.regions(memory[n]) for n in "abc"]
    assert not regions[0] & regions[1] and not regions[1] & regions[2] and not memory.notes
    memory.place(Buffer("d", REGION))
    memory.place(Buffer("e", REGION, apart=frozenset("abcd")))
    assert not memory.notes
    small = VmemMap(TINY)
    for name in "abc":
        small.place(Buffer(name, 3 * REGION - 64 if name != "c" else 64, apart=apart))
    small.place(Buffer("f", REGION + 64, apart=frozenset("abc")))
    assert any("f shares banks with" in note for note in small.notes) and "note: f shares" in small.describe()


def test_slots_lie_in_two_regions() -> None:
    memory = VmemMap(TINY)
    b = memory.place(Buffer("ring", 2 * 640, 2))
    assert b.address // REGION != (b.address + b.slot) // REGION and (b.address + b.slot) % REGION == 0


def test_spread() -> None:
    memory = VmemMap(TINY)
    memory.place(Buffer("x", 100))
    b = memory.place(Buffer("tiles", 512, 1, 3, apart=frozenset("x")))
    assert [first - b.address for first, _ in memory.pieces(b)] == [0, REGION, 2 * REGION]
    assert not memory.regions(b) & memory.regions(memory["x"])


def test_times_share_a_place() -> None:
    memory = VmemMap(TINY)
    whole = TINY.vmem_bytes
    memory.place(Buffer("first", whole, born=0, dies=3))
    memory.place(Buffer("second", whole, born=4, dies=9))
    with pytest.raises(
        DoesNotFit, match=r"third does not fit in VMEM: needs 32 bytes, 0 bytes free, largest hole 0 bytes"
    ):
        memory.place(Buffer("third", 32, born=3, dies=4))


def test_fragmentation_is_not_lack_of_room() -> None:
    memory = VmemMap(TINY)
    half = TINY.vmem_bytes // 2
    memory.place(Buffer("a", 1024))
    memory.place(Buffer("b", half))
    memory.buffers["b"].address = half - 512
    with pytest.raises(DoesNotFit) as info:
        memory.place(Buffer("c", half - 1024))
    error = info.value
    assert error.needed <= error.free == half - 1024 and error.largest == half - 1536
    assert str(error.within("step 'x'")).startswith("step 'x': c does not fit in VMEM: needs")


def test_hbm() -> None:
    hbm = HbmMap(SMALL, 100)
    a, b = hbm.take("a", 3), hbm.take_bytes("b", 257)
    assert (a.first, b.first, b.count, hbm.next) == (100, 103, 2, 105)
    with pytest.raises(DoesNotFit, match=r"c does not fit in HBM: needs \S+ MiB, \S+ MiB free, largest hole") as info:
        hbm.take("c", SMALL.hbm_slices)
    assert info.value.free == (SMALL.hbm_slices - 105) * SMALL.slice_bytes
