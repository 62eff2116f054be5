"""fp32 lanes against golden numerics, and lanes of a small format, exhaustively, against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import cocotb
import numpy as np

from sluice.golden import numerics as nx
from verif.transactors import parameter, seeded, start_up
from verif.unit.arith.exact import ExactFloat
from verif.unit.arith.lanes import check

UNIT = parameter("UNIT", "")
SMALL = parameter("SMALL", "")  # "exp_bits,man_bits[,width]", or empty for fp32 and int32
SIGN = np.uint32(0x80000000)
SPECIAL = np.array([
    0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x01000000, 0x0C000000, 0x33800000,
    0x3EFFFFFF, 0x3F000000, 0x3F000001, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FC00000, 0x4B000000, 0x4B000001,
    0x4B7FFFFF, 0x4B800000, 0x4EFFFFFF, 0x4F000000, 0x4F000001, 0x72800000, 0x7F000000, 0x7F7FFFFF, 0x7F800000,
    0x7F800001, 0x7FC00000, 0x7FFFFFFF,
], dtype=np.uint32)  # fmt: skip
SPECIAL = np.concatenate([SPECIAL, SPECIAL | SIGN])


def generator(name: str) -> np.random.Generator:
    return np.random.default_rng(seeded(name).getrandbits(64))


def patterns(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, 2**32, count, dtype=np.uint32)


def operands(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs where each part of the units decides: crossed specials, any patterns, close exponents, edges."""
    count = 25_000
    cross = [axis.ravel() for axis in np.meshgrid(SPECIAL, SPECIAL)]
    a = patterns(rng, count)
    # Close exponents and opposite signs: cancellation, alignment by every distance up to 31.
    close_exp = np.clip((a >> 23 & 255).astype(int) + rng.integers(-31, 32, count), 0, 255).astype(np.uint32)
    close = (patterns(rng, count) & np.uint32(0x807FFFFF)) | close_exp << np.uint32(23)
    # Few bits set: ties. The same magnitude but for the last bits: deep cancellation.
    sparse = patterns(rng, count) & patterns(rng, count) & np.uint32(0xFF800F01)
    sparse_b = (patterns(rng, count) & patterns(rng, count) & np.uint32(0x807FF801)) | (sparse & np.uint32(0x7F800000))
    last = rng.integers(0, 4, count, dtype=np.uint32)
    # Products near 2^-126 and near 2^128.
    low_exp = rng.integers(1, 127, count)
    product_exp = np.where(rng.random(count) < 0.5, 127, 381) + rng.integers(-2, 2, count)
    other_exp = np.clip(product_exp - low_exp, 0, 254)
    edge_a = low_exp.astype(np.uint32) << np.uint32(23) | patterns(rng, count) & np.uint32(0x7FFFFF)
    edge_b = other_exp.astype(np.uint32) << np.uint32(23) | patterns(rng, count) & np.uint32(0x807FFFFF)
    # All but the last bits set, times a power of two: round up to the smallest normal number, or not.
    ones = np.uint32(0x3F7FFFF0) | rng.integers(0, 32, count, dtype=np.uint32)
    least = np.full(count, 0x00800000, dtype=np.uint32) | (patterns(rng, count) & SIGN)
    # Short significands whose product has up to 26 bits: ties, and what stands one bit away from them.
    kept = rng.integers(3, 22, count)
    short_a = 0x3F800000 | (patterns(rng, count) >> 9 >> (24 - kept) << (24 - kept))
    short_b = 0x3F800000 | (patterns(rng, count) >> 9 >> (kept - 2) << (kept - 2))
    return (
        np.concatenate([cross[0], a, a, a, sparse, edge_a, ones, short_a.astype(np.uint32)]),
        np.concatenate([
            cross[1], patterns(rng, count), close, a ^ SIGN ^ last, sparse_b, edge_b, least, short_b.astype(np.uint32)
        ]),
    )  # fmt: skip


@cocotb.test(skip=SMALL != "" or UNIT not in ("add", "mul"))
async def two_operands(dut):
    rng = generator(UNIT)
    a, b = operands(rng)
    expected = nx.fp32_bits({"add": nx.fp32_add, "mul": nx.fp32_mul}[UNIT](a, b))
    await start_up(dut)
    await check(dut, rng, {"a": a, "b": b}, expected)


@cocotb.test(skip=SMALL != "" or UNIT != "from_int")
async def integers(dut):
    rng = generator(UNIT)
    powers = 2 ** np.arange(31)
    around = (powers[:, None] + np.arange(-3, 4)).ravel()
    ties = (2 * rng.integers(0, 2**24, 20_000) + 1) << rng.integers(0, 7, 20_000)
    value = np.concatenate([
        [-(2**31), -(2**31) + 1, 2**31 - 1], around, -around, ties, -ties,
        rng.integers(-(2**31), 2**31, 80_000) >> rng.integers(0, 32, 80_000),
    ])  # fmt: skip
    value = np.clip(value, -(2**31), 2**31 - 1)
    await start_up(dut)
    await check(dut, rng, {"value": value}, nx.fp32_bits(nx.int32_to_fp32(value)))


@cocotb.test(skip=SMALL != "" or UNIT != "to_int")
async def floats(dut):
    rng = generator(UNIT)
    halves = nx.fp32_bits((np.arange(-4000, 4001) / 4).astype(np.float32))
    big = (rng.integers(0, 2**24, 20_000) + 0.5) * 2.0 ** rng.integers(-3, 10, 20_000)
    big = nx.fp32_bits(big.astype(np.float32))
    value = np.concatenate([
        SPECIAL, halves, big, big ^ SIGN, patterns(rng, 20_000),
        rng.integers(0x3E000000, 0x50000000, 60_000, dtype=np.uint32) | (patterns(rng, 60_000) & SIGN),
    ])  # fmt: skip
    await start_up(dut)
    await check(dut, rng, {"value": value}, nx.fp32_to_int32(value))


@cocotb.test(skip=SMALL == "")
async def small_format(dut):
    """Every operand, or pair of operands."""
    rng = generator(SMALL)
    exp_bits, man_bits, *rest = (int(part) for part in SMALL.split(","))
    exact = ExactFloat(exp_bits, man_bits)
    everything = np.arange(2 ** (1 + exp_bits + man_bits))
    if UNIT in ("add", "mul"):
        a, b = (axis.ravel() for axis in np.meshgrid(everything, everything))
        operation = getattr(exact, UNIT)
        results = [operation(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        inputs, expected = {"a": a, "b": b}, np.array(results, dtype=np.uint64)
    elif UNIT == "to_int":
        results = [exact.to_int(x, rest[0]) for x in everything.tolist()]
        inputs, expected = {"value": everything}, np.array(results, dtype=np.int64)
    else:
        value = np.arange(-(2 ** (rest[0] - 1)), 2 ** (rest[0] - 1))
        results = [exact.encode(Fraction(x)) for x in value.tolist()]
        inputs, expected = {"value": value}, np.array(results, dtype=np.uint64)
    await start_up(dut)
    await check(dut, rng, inputs, expected)
