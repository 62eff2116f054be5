"""Requantiser lanes against golden numerics."""

from __future__ import annotations

import cocotb
import numpy as np

from sluice.golden import numerics as nx
from sluice_hw.arith import RequantFixed, Rounding
from verif.transactors import parameter, seeded, start_up
from verif.unit.arith.lanes import check

ROUNDINGS = {Rounding.HALF_UP.value: "half_up", Rounding.AWAY.value: "away"}


async def compare(dut, rng, acc, mul, shift, rounding) -> None:
    expected = np.select(
        [rounding == code for code in ROUNDINGS],
        [nx.rescale_fixed(acc, mul, shift, name) for name in ROUNDINGS.values()],
    ).astype(np.int32)
    await start_up(dut)
    await check(dut, rng, {"acc": acc, "mul": mul, "shift": shift, "rounding": rounding}, expected)


@cocotb.test()
async def edges(dut):
    """Every shift with extreme accumulators and factors, both roundings."""
    rng = np.random.default_rng(seeded("edges").getrandbits(64))
    low, high = -(2**31), 2**31 - 1
    acc = [low, low + 1, -(2**30) - 1, -65537, -65536, -3, -2, -1, 0, 1, 2, 3, 65535, 65536, 2**30, high - 1, high]
    mul = [low, -1, 0, 1, 2, 2**30, 2**30 + 1, 2**31 - 2, high]
    grid = np.meshgrid(acc, mul, np.arange(1, 63), list(ROUNDINGS))
    await compare(dut, rng, *(axis.ravel() for axis in grid))


@cocotb.test()
async def ties(dut):
    """Accumulators that land exactly between two results, and one product step to either side."""
    rng = np.random.default_rng(seeded("ties").getrandbits(64))
    count = 20_000
    shift = rng.integers(1, 31, count)
    # mul = 2^j and acc an odd multiple of 2^(shift-1-j): acc * mul / 2^shift ends in one half.
    j = rng.integers(0, shift)
    acc = (2 * rng.integers(-(2**15), 2**15, count) + 1) * 2 ** (shift - 1 - j)
    acc = np.where(np.abs(acc) < 2**31 - 1, acc, 2 ** (shift - 1 - j))
    acc += np.where(rng.random(count) < 0.5, 0, rng.integers(-1, 2, count))
    await compare(dut, rng, acc, 2**j, shift, rng.integers(0, 2, count))


@cocotb.test()
async def random(dut):
    """Factors as the quantiser makes them and arbitrary ones, accumulators of every magnitude."""
    rng = np.random.default_rng(seeded("random").getrandbits(64))
    count = 100_000
    acc = rng.integers(-(2**31), 2**31, count) >> rng.integers(0, 32, count)
    mul = np.where(rng.random(count) < 0.7, rng.integers(2**30, 2**31, count), rng.integers(-(2**31), 2**31, count))
    # Mostly shifts that leave a result of a few bits, where rounding shows.
    size = np.ceil(np.log2(np.abs(acc) + 1)).astype(int)
    shift = np.where(rng.random(count) < 0.7, np.clip(size + 31 - rng.integers(0, 10, count), 1, 62),
                     rng.integers(1, 63, count))  # fmt: skip
    await compare(dut, rng, acc, mul, shift, rng.integers(0, 2, count))


@cocotb.test()
async def first_after_reset(dut):
    """A reset with inputs in flight drops them; the first input after it counts."""
    rng = np.random.default_rng(seeded("reset").getrandbits(64))
    await start_up(dut)
    dut.in_valid.value = 1
    for _ in range(int(parameter("LATENCY")) - 1):
        await cocotb.triggers.RisingEdge(dut.clk)
    dut.in_valid.value = 0
    dut.rst.value = 1
    await cocotb.triggers.RisingEdge(dut.clk)
    dut.rst.value = 0
    acc = np.arange(16)
    await check(
        dut, rng, {"acc": acc, "mul": acc * 0 + 3, "shift": acc * 0 + 1, "rounding": acc * 0},
        nx.rescale_fixed(acc, 3, 1),
    )  # fmt: skip
    assert RequantFixed.LATENCY == int(parameter("LATENCY"))
