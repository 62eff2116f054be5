"""The programs in examples/asm do what their comments say, in the golden machine, under any schedule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sluice.asm import assemble, check, disassemble
from sluice.golden import GoldenMachine, numerics
from sluice_hw.config import preset
from verif.unit.compiler.races import find_races

FOLDER = Path(__file__).parents[3] / "examples" / "asm"
TINY = preset("tiny")
SLICE = TINY.slice_bytes
SCHEDULES = (None, 1, 2, 3)


def load(name: str):
    return assemble((FOLDER / name).read_text(), TINY, file=name)


def int8(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape, dtype=np.int8)


def run(name: str, memory: dict[int, bytes | np.ndarray], schedule: int | None) -> GoldenMachine:
    machine = GoldenMachine(TINY)
    for index, values in memory.items():
        raw = values.tobytes() if isinstance(values, np.ndarray) else values
        machine.write_hbm(index * SLICE, raw + bytes(-len(raw) % SLICE))
    result = machine.run(load(name), schedule_seed=schedule)
    assert result.halted and result.halt_code == 0, result.error
    return machine


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.s")), ids=lambda p: p.name)
def test_round_trip(path):
    program = assemble(path.read_text(), file=path.name)
    config = preset(program.config_name)
    check(program, config)
    assert assemble(disassemble(program, config), config).words == program.words


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_matmul_tile(schedule):
    rng = np.random.default_rng(1)
    a, w = int8(rng, 16, 8), int8(rng, 8, 8)
    bias = rng.integers(-1000, 1000, 8, dtype=np.int32)
    multiplier = rng.integers(2**30, 2**31, 8, dtype=np.int32)
    shift = rng.integers(36, 40, 8, dtype=np.uint8)
    params = bias.tobytes() + multiplier.tobytes() + shift.tobytes()
    machine = run("matmul_tile.s", {0: a, 1: w, 2: params}, schedule)
    acc = a.astype(np.int64) @ w.astype(np.int64) + bias
    half = np.int64(1) << (shift.astype(np.int64) - 1)
    want = np.clip(((acc * multiplier + half) >> shift.astype(np.int64)) + 3, -128, 127).astype(np.int8)
    got = machine.read_hbm(3 * SLICE, SLICE)
    np.testing.assert_array_equal(got[:128].view(np.int8).reshape(16, 8), want)
    assert not got[128:].any()


@pytest.mark.parametrize("schedule", (*SCHEDULES, 4, 5, 6, 7, 8))
def test_matmul_loop(schedule):
    rng = np.random.default_rng(2)
    a, w = int8(rng, 128, 32), int8(rng, 32, 8)
    bias = rng.integers(-1000, 1000, 8, dtype=np.int32)
    scale = rng.uniform(0.0005, 0.002, 8).astype(np.float32)
    blocks = a.reshape(4, 32, 4, 8).swapaxes(1, 2)
    memory = {4 * m + k: blocks[m, k] for m in range(4) for k in range(4)}
    memory |= {16: w, 17: bias.tobytes() + scale.tobytes() + bytes(8)}
    machine = run("matmul_loop.s", memory, schedule)
    acc = numerics.matmul_int8(a, w, bias)
    want = numerics.requantize_float(acc, scale)
    np.testing.assert_array_equal(machine.read_hbm(18 * SLICE, 1024).view(np.int8).reshape(128, 8), want)
    counters = machine.counters
    assert (counters.macs, counters.array_rows) == (128 * 32 * 8, 4 * 128)
    assert (counters.ld_slices, counters.st_slices, counters.weight_tiles, counters.vector_rows) == (18, 4, 16, 128)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_conv3x3(schedule):
    rng = np.random.default_rng(3)
    image, w = int8(rng, 8, 8), int8(rng, 3, 3, 1, 8)
    bias = rng.integers(-1000, 1000, 8, dtype=np.int32)
    machine = run("conv3x3.s", {0: image, 1: w, 2: bias.tobytes() + bytes(40)}, schedule)
    padded = np.pad(image.astype(np.int64), 1, constant_values=-5)
    acc = np.zeros((8, 8, 8), dtype=np.int64) + bias
    for ky in range(3):
        for kx in range(3):
            acc += padded[ky : ky + 8, kx : kx + 8, None] * w[ky, kx, 0].astype(np.int64)
    want = np.clip(np.rint(acc / 128).astype(np.int64) - 10, -10, 127)
    np.testing.assert_array_equal(machine.read_hbm(3 * SLICE, 512).view(np.int8).reshape(8, 8, 8), want)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pooling(schedule):
    image = int8(np.random.default_rng(4), 8, 8, 8)
    machine = run("pooling.s", {0: image}, schedule)
    largest = image.reshape(4, 2, 4, 2, 8).max(axis=(1, 3))
    np.testing.assert_array_equal(machine.read_hbm(2 * SLICE, 128).view(np.int8).reshape(4, 4, 8), largest)
    total = largest.astype(np.int64).sum(axis=(0, 1))
    mean = np.sign(total) * ((np.abs(total) + 8) // 16)
    np.testing.assert_array_equal(machine.read_hbm(3 * SLICE, 8).view(np.int8), mean)


@pytest.mark.parametrize("schedule", (None, 1))
def test_attention(schedule):
    config = preset("v2")
    rng = np.random.default_rng(5)
    q, k, v = (numerics.fp32_to_bf16(rng.standard_normal((64, 64), np.float32)) for _ in range(3))
    machine = GoldenMachine(config)
    for number, part in enumerate((q, k, v)):
        machine.write_hbm(2 * number * config.slice_bytes, part)
    program = assemble((FOLDER / "attention.s").read_text())
    if schedule is None:
        assert not find_races(program, config)
    result = machine.run(program, schedule_seed=schedule)
    assert result.halt_code == 0, result.error
    q, k, v = (numerics.bf16_to_fp32(part).astype(np.float64) for part in (q, k, v))
    scores = np.where(np.tri(64), q @ k.T / 8, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    got = machine.read_hbm(6 * config.slice_bytes, 8192).view("<u2").reshape(64, 64)
    # Weights and results are rounded to bf16.
    error = np.abs(numerics.bf16_to_fp32(got) - weights @ v)
    assert (error <= 2.0**-7 * (weights @ np.abs(v))).all()
    assert result.counters.vector_rows == 4 * 64 + 1
