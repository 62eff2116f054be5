"""bf16 matmuls of several tiles of K, from HBM to HBM: golden and the chip against the contract."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.asm import Program, assemble
from sluice.golden.numerics_bf16 import from_bf16, matmul_bf16, to_bf16
from sluice.runtime import Device
from sluice_hw.config import ChipConfig
from verif.harness import open_chip
from verif.system.configs import FLOAT_CONFIGS

TINY = FLOAT_CONFIGS["tiny-bf16"]
M, K, N = 16, 20, 8


def program(m: int = M, k: int = K, n: int = N, config: ChipConfig = TINY) -> Program:
    """``a[m, k] @ w[k, n]`` in one column of tiles: fp32 rows, a from slice 0, w from slice 16, the result from 32."""
    def slices(size: int) -> int:
        return -(-size // config.slice_bytes)

    assert n <= config.cols and max(slices(2 * m * k), slices(2 * k * n)) <= 16
    a, w, out = 0, 0x4000, 0x8000
    lines = [
        "addr r0 base=0", "addr r1 base=16", "addr r2 base=32", f"addr r3 base={a}", f"addr r4 base={w}",
        f"addr r5 base={out}", "addr r6 base=0",
        f"dma_shape unit=ld row_bytes={2 * m * k} rows=1",
        f"hbm_read_slice hbm=r0 vmem=r3 count={slices(2 * m * k)} signal=mxu",
        f"dma_shape unit=ld row_bytes={2 * k * n} rows=1",
        f"hbm_read_slice hbm=r1 vmem=r4 count={slices(2 * k * n)} signal=mxu",
        "sync unit=mxu wait=ld", "sync unit=mxu wait=ld",
        f"feed_shape n0={m} s0={2 * k} segments=1",
    ]  # fmt: skip
    starts = range(0, k, config.rows)
    for first in starts:
        depth = min(config.rows, k - first)
        tokens = " signal=vpu" if first == starts[-1] else ""
        lines += [
            f"addr r7 base={a + 2 * first}", f"addr r8 base={w + 2 * first * n}",
            f"feed_segment index=0 lo=0 hi={2 * depth}",
            f"load_weights vmem=r8 pitch={2 * n} k={depth} n={2 * n}",
            f"pulse_array vmem=r7 acc=r6 swap acc_mode={'accumulate' if first else 'overwrite'}{tokens}",
        ]
    lines += [
        f"pass_shape rows={m} tail={n}", "pass_mode store", "pass_stream stream=source addr=r6 memory=acc row_step=1",
        f"pass_stream stream=result addr=r5 memory=vmem row_step={4 * n}", "vector_pass wait=mxu signal=st",
        f"dma_shape unit=st row_bytes={4 * m * n} rows=1",
        f"hbm_write_slice hbm=r2 vmem=r5 count={slices(4 * m * n)} wait=vpu", "halt",
    ]  # fmt: skip
    return assemble("\n".join(lines), config)


def check(device: Device, m: int, k: int, n: int, spread: float) -> None:
    rng = np.random.default_rng([m, k, n])
    a, w = (to_bf16((rng.standard_normal(shape) * np.exp(spread * rng.standard_normal(shape))).astype(np.float32))
            for shape in ((m, k), (k, n)))  # fmt: skip
    for first, array in ((0, a.view(np.uint8)), (16, w.view(np.uint8))):
        with device.alloc_at(first, array.shape, "uint8") as buffer:
            buffer.write(array)
    with device.alloc_at(32, (m, n), "uint32") as out:
        report = device.run(program(m, k, n))
        wanted = matmul_bf16(a, w, rows=TINY.rows).view(np.uint32)
        assert np.array_equal(out.read(), wanted)
    tiles = -(-k // TINY.rows)
    assert (report.work["macs"], report.work["weight_tiles"]) == (m * k * n, tiles)
    a, w = from_bf16(a).astype(np.float64), from_bf16(w).astype(np.float64)
    exact = a @ w
    assert np.abs(wanted.view(np.float32) - exact).max() <= 1e-6 * (np.abs(a) @ np.abs(w)).max()


SHAPES = [(M, K, N, 0.0), (40, 24, 8, 3.0), (5, 3, 8, 1.0), (1, 64, 8, 2.0), (2, 40, 5, 1.0), (9, 9, 1, 0.0)]


def test_golden():
    with Device(TINY, "golden") as device:
        for shape in SHAPES:
            check(device, *shape)


@pytest.mark.soak
def test_chip():
    with open_chip(TINY) as device:
        for shape in SHAPES:
            check(device, *shape)
