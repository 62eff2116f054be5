"""A chip of int8 and bf16: matmuls of both in one program, int8 back to int8 by the vector unit; golden and chip."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.asm import Program, assemble
from sluice.golden.numerics_bf16 import matmul_bf16, to_bf16
from sluice.runtime import Device
from verif.harness import open_chip
from verif.system.configs import BOTH_TYPES

M, K, N = 16, 18, BOTH_TYPES.cols
SCALE = 0.0078125 * 1.25
#: VMEM address of each operand and result; its HBM slice is this / 256.
A, W, P, Q, NARROW, WIDE = (0x1000 * i for i in range(6))


def matmul(a: int, w: int, acc: int, size: int, kind: str) -> list[str]:
    """``M x K x N`` of elements of ``size`` bytes; the results of all but the last go nowhere else."""
    lines = [f"feed_shape n0={M} s0={K * size} segments=1"]
    for first in range(0, K, BOTH_TYPES.rows):
        depth = min(BOTH_TYPES.rows, K - first)
        lines += [
            f"addr r0 base={a + first * size}", f"addr r1 base={w + first * N * size}", f"addr r2 base={acc}",
            f"feed_segment index=0 lo=0 hi={depth * size}",
            f"load_weights vmem=r1 pitch={N * size} k={depth} n={N * size}{kind}",
            f"pulse_array vmem=r0 acc=r2 swap acc_mode={'accumulate' if first else 'overwrite'}{kind}",
        ]  # fmt: skip
    return lines


def program() -> Program:
    lines = []
    for at, size in ((A, M * K), (W, K * N), (P, 2 * M * K), (Q, 2 * K * N)):
        lines += [f"addr r0 base={at // 256}", f"addr r1 base={at}", f"dma_shape unit=ld row_bytes={size} rows=1",
                  f"hbm_read_slice hbm=r0 vmem=r1 count={-(-size // 256)} signal=mxu"]  # fmt: skip
    lines += 4 * ["sync unit=mxu wait=ld"]
    # One type behind the other without a wait; then the int32 rows become fp32, are scaled, and leave as int8.
    lines += matmul(A, W, 0, 1, " int8") + matmul(P, Q, M, 2, "") + ["sync unit=mxu signal=vpu"]
    lines += [
        "addr r3 base=0", f"addr r4 base={2 * M}", f"addr r5 base={NARROW}", f"addr r6 base={M}",
        f"addr r7 base={WIDE}",
        f"pass_shape rows={M} tail={N}",
        f"pass_mode use_first first_op=i_to_fp32 use_second second_op=mul second_b=k0 k0={SCALE} store",
        "pass_stream stream=source addr=r3 memory=acc row_step=1",
        "pass_stream stream=result addr=r4 memory=acc row_step=1", "vector_pass wait=mxu",
        "pass_mode use_first first_op=to_int32 use_second second_op=i_to_int8 store",
        "pass_stream stream=source addr=r4 memory=acc row_step=1",
        f"pass_stream stream=result addr=r5 memory=vmem format=int8 row_step={N}", "vector_pass signal=st",
        "pass_mode store", "pass_stream stream=source addr=r6 memory=acc row_step=1",
        f"pass_stream stream=result addr=r7 memory=vmem row_step={4 * N}", "vector_pass signal=st",
    ]  # fmt: skip
    for at, size in ((NARROW, M * N), (WIDE, 4 * M * N)):
        lines += [f"addr r0 base={at // 256}", f"addr r1 base={at}", f"dma_shape unit=st row_bytes={size} rows=1",
                  f"hbm_write_slice hbm=r0 vmem=r1 count={-(-size // 256)} wait=vpu"]  # fmt: skip
    return assemble("\n".join([*lines, "halt"]), BOTH_TYPES)


def check(device: Device, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, w = (rng.integers(-128, 128, shape, np.int8) for shape in ((M, K), (K, N)))
    p, q = (to_bf16(rng.standard_normal(shape).astype(np.float32)) for shape in ((M, K), (K, N)))
    for at, array in ((A, a), (W, w), (P, p), (Q, q)):
        with device.alloc_at(at // 256, array.nbytes, "uint8") as buffer:
            buffer.write(array.view(np.uint8).reshape(-1))
    with (device.alloc_at(NARROW // 256, (M, N), "int8") as narrow,
          device.alloc_at(WIDE // 256, (M, N), "uint32") as wide):  # fmt: skip
        report = device.run(program())
        sums = a.astype(np.int32) @ w.astype(np.int32)
        scaled = np.rint(sums.astype(np.float32) * np.float32(SCALE))
        assert np.array_equal(narrow.read(), np.clip(scaled, -128, 127).astype(np.int8))
        assert np.array_equal(wide.read(), matmul_bf16(p, q, rows=BOTH_TYPES.rows).view(np.uint32))
    assert (report.work["macs"], report.work["weight_tiles"]) == (2 * M * K * N, 2 * -(-K // BOTH_TYPES.rows))


def test_golden(seed):
    with Device(BOTH_TYPES, "golden") as device:
        check(device, seed)


@pytest.mark.soak
def test_chip(seed):
    with open_chip(BOTH_TYPES) as device:
        check(device, seed)
        check(device, seed + 1)
