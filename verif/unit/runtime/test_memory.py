"""Slices in use and free."""

from __future__ import annotations

import random

import pytest

from sluice.errors import OutOfMemory, UsageError
from sluice.runtime import SliceAllocator


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
    with pytest.raises(OutOfMemory, match=r"9 slices \(2304 bytes\) needed, 8 slices \(2048 bytes\) free of"):
        allocator.alloc(9)
    with pytest.raises(OutOfMemory, match="slices 6 to 8 are not free for x: 2 slices"):
        allocator.reserve(6, 3, "x")
