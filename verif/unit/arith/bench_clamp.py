"""Zero-point and clamp lanes against golden numerics."""

from __future__ import annotations

import cocotb
import numpy as np

from verif.transactors import seeded, start_up
from verif.unit.arith.lanes import check


@cocotb.test()
async def values(dut):
    """Extremes, values around every bound, and random ones, with any zero point and bounds."""
    rng = np.random.default_rng(seeded("values").getrandbits(64))
    count = 100_000
    value = np.concatenate([
        np.resize([-(2**31), -(2**31) + 1, 2**31 - 1, 2**31 - 2, 0], 2000),
        np.resize(np.arange(-1030, 1031), 40_000),
        rng.integers(-(2**31), 2**31, count - 42_000) >> rng.integers(0, 32, count - 42_000),
    ])  # fmt: skip
    zero_point = np.where(rng.random(count) < 0.3, rng.choice([-128, 0, 127], count), rng.integers(-128, 128, count))
    bounds = np.sort(rng.integers(-128, 128, (2, count)), axis=0)
    wide = rng.random(count) < 0.5
    lo, hi = np.where(wide, -128, bounds[0]), np.where(wide, 127, bounds[1])
    expected = np.minimum(np.maximum(value + zero_point, lo), hi).astype(np.int8)
    await start_up(dut)
    await check(dut, rng, {"value": value, "zero_point": zero_point, "lo": lo, "hi": hi}, expected)
