"""Slices in use and free."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sluice.errors import OutOfMemory, UsageError
from sluice.runtime import Device, SliceAllocator
from sluice_hw.config import preset


def test_random_use_against_a_map(seed):
    rng = random.Random(seed)
    allocator = SliceAllocator(64, 256)
    owner: list[int | None] = [None] * 64
    live: dict[int, int] = {}
    for number in range(3000):
        if live and rng.random() < 0.48:
            first = rng.choice(list(live))
            allocator.release(first)
            for i in range(first, first + live.pop(first)):
                owner[i] = None
            continue
        count = rng.randint(1, 12)
        fits = [i for i in range(65 - count) if all(o is None for o in owner[i : i + count])]
        if rng.random() < 0.3:
            first = rng.randint(0, 63)
            if first in fits:
                assert allocator.reserve(first, count) == first
            else:
                with pytest.raises(OutOfMemory):
                    allocator.reserve(first, count)
                continue
        elif fits:
            first = allocator.alloc(count)
            assert first == fits[0], "first fit"
        else:
            with pytest.raises(OutOfMemory) as caught:
                allocator.alloc(count)
            free = owner.count(None)
            assert (caught.value.needed, caught.value.free) == (count, free) and caught.value.largest < count
            assert ("fragmented" in str(caught.value)) == (free >= count)
            continue
        live[first] = count
        owner[first : first + count] = [number] * count
        assert allocator.free == owner.count(None)


def test_mistakes():
    allocator = SliceAllocator(8, 256)
    first = allocator.alloc(3)
    allocator.release(first)
    with pytest.raises(UsageError, match="no buffer in use begins at slice 0; in use: none"):
        allocator.release(first)
    with pytest.raises(UsageError, match="at least one slice, not 0"):
        allocator.alloc(0)
    with pytest.raises(
        OutOfMemory,
        match=r"needs 2.2 KiB \(9 slices\), 2 KiB \(8 slices\) free of 2 KiB \(8 slices\), largest hole 2 KiB",
    ):
        allocator.alloc(9)
    with pytest.raises(OutOfMemory, match="slices 6 to 8 are not free for x: 512 bytes"):
        allocator.reserve(6, 3, "x")


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_buffers_come_back(seed, count):
    """Random buffers of a device, placed and freed in any order; a checker that knows bytes only follows them."""
    rng = random.Random(seed)
    config = preset("tiny").replace(name="soak", hbm_bytes=1 << 17)
    owner = np.zeros(config.hbm_slices, np.int64)  # whose every slice is, 0 nobody's
    live = {}
    refused = 0
    with Device(config, "golden") as device:
        for number in range(1, count + 1):
            if live and rng.random() < 0.5:
                buffer = live.pop(rng.choice(list(live)))
                mine = owner[buffer.slice : buffer.slice + buffer.slices]
                assert (mine == mine[0]).all() and mine[0] and (owner == mine[0]).sum() == buffer.slices
                mine[:] = 0
                if rng.random() < 0.5:
                    with buffer:
                        pass
                buffer.free()
            else:
                shape = [rng.randint(1, 40) for _ in range(rng.randint(1, 3))]
                dtype = rng.choice(["int8", "int32", "float32"])
                nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
                others = rng.sample(list(live.values()), min(len(live), rng.randint(0, 2)))
                need = -(-nbytes // 256)
                free = "".join("." if o == 0 else "x" for o in owner)
                try:
                    buffer = device.alloc(shape, dtype, apart=others)
                except OutOfMemory:
                    assert "." * need not in free
                    refused += 1
                    continue
                assert buffer.slices == need and free[buffer.slice : buffer.slice + need] == "." * need
                owner[buffer.slice : buffer.slice + need] = number
                live[number] = buffer
            info = device.memory_info()
            assert info.used == np.count_nonzero(owner) <= info.peak
            assert info.largest == max(map(len, "".join("." if o == 0 else "x" for o in owner).split("x")))
        for buffer in live.values():
            buffer.free()
        assert device.hbm.used == 0 and device.hbm.holes() == [(0, config.hbm_slices)]
    assert refused > count / 100, "the memory must have been full at times"
