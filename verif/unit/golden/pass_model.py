"""A VECTOR_PASS told once more, lane by lane in plain Python, from what docs/isa.md and docs/vector.md say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sluice.golden import functions
from sluice_hw.functions import Function
from sluice_hw.isa import Format, Operand, Source, Stream
from sluice_hw.vector_ops import AluOp, Reduction

__all__ = ["ALU", "Placed", "run_pass"]

MASK = 0xFFFFFFFF


def _f(bits: int) -> np.float32:
    return np.uint32(bits).view(np.float32)


def _b(value: np.float32) -> int:
    return int(np.float32(value).view(np.uint32))


def _i(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


#: Operations of which this has its own idea; good for normal numbers.
ALU: dict[AluOp, Callable[[int, int, int], int]] = {
    AluOp.PASS: lambda a, b, c: a,
    AluOp.SELECT: lambda a, b, c: a if c else b,
    AluOp.XOR: lambda a, b, c: a ^ b,
    AluOp.ADD: lambda a, b, c: _b(_f(a) + _f(b)),
    AluOp.SUB: lambda a, b, c: _b(_f(a) - _f(b)),
    AluOp.MUL: lambda a, b, c: _b(_f(a) * _f(b)),
    AluOp.MUL_ADD: lambda a, b, c: _b(_f(a) * _f(b) + _f(c)),
    AluOp.MAX: lambda a, b, c: a if _f(a) > _f(b) else b,
    AluOp.LT: lambda a, b, c: int(_f(a) < _f(b)),
    AluOp.IADD: lambda a, b, c: (a + b) & MASK,
    AluOp.ILT: lambda a, b, c: int(_i(a) < _i(b)),
}


@dataclass
class Placed:
    """Where a stream lies: fields of its PASS_STREAM, and the address."""

    address: int
    memory: Source = Source.ACC
    format: Format = Format.WORD
    row_step: int = 1
    block_step: int = 0


def _lane(vmem: np.ndarray, acc: np.ndarray, p: Placed, row: int, block: int, lane: int) -> int:
    at = p.address + row * p.row_step + block * p.block_step
    if p.memory is Source.ACC:
        return int(acc[at, lane]) & MASK
    if p.format is Format.WORD:
        return int.from_bytes(vmem[at + 4 * lane : at + 4 * lane + 4].tobytes(), "little")
    if p.format is Format.BF16:
        return int.from_bytes(vmem[at + 2 * lane : at + 2 * lane + 2].tobytes(), "little") << 16
    return (int(vmem[at + lane]) - 256 * (vmem[at + lane] >= 128)) & MASK


def _round(bits: int) -> int:
    """To bf16, for finite numbers."""
    kept, rest = bits >> 16, bits & 0xFFFF
    return (kept + (rest > 0x8000 or (rest == 0x8000 and kept & 1)) << 16) & MASK


def run_pass(
    vmem: np.ndarray, acc: np.ndarray, shape: Mapping[str, int], mode: Mapping[str, int],
    streams: Mapping[Stream, Placed],
) -> None:  # fmt: skip
    """Change copies of VMEM (uint8) and accumulators (int32) as the pass does; ``mode`` may leave fields out."""
    cols = acc.shape[1]
    old_vmem, old_acc = vmem.copy(), acc.copy()
    mode = {"function": 0, "k0": 0, "k1": 0, "reduction": 0, **mode}

    def get(which: int, row: int, block: int, lane: int) -> int:
        if which in (Operand.K0, Operand.K1):
            return mode["k0" if which == Operand.K0 else "k1"]
        if which == Operand.COLUMN:
            return int(old_acc[streams[Stream.COLUMN].address + row // cols, row % cols]) & MASK
        return _lane(old_vmem, old_acc, streams[Stream.X if which == Operand.X else Stream.Y], row, block, lane)

    for row in range(shape["rows"]):
        values: list[int | None] = []
        for block in range(shape["blocks"]):
            lanes = cols if block + 1 < shape["blocks"] else shape["tail"]
            if mode.get("store") and streams[Stream.RESULT].memory is Source.ACC:
                result = streams[Stream.RESULT]
                acc[result.address + row * result.row_step + block * result.block_step] = 0
            for lane in range(lanes):
                value = _lane(old_vmem, old_acc, streams[Stream.SOURCE], row, block, lane)
                for stage in ("first", "second"):
                    if stage == "second" and mode.get("use_function"):
                        value = _b(functions.apply(Function(mode["function"]), _f(value).reshape(1))[0])
                    if mode.get(f"use_{stage}"):
                        b, c = (get(mode.get(f"{stage}_{n}", 0), row, block, lane) for n in "bc")
                        value = ALU[AluOp(mode[f"{stage}_op"])](value, b, c)
                at = block * cols + lane
                counts = not shape.get("masked") or at < shape["mask_base"] + shape["mask_step"] * row
                values.append(value if counts else None)
                if mode.get("store"):
                    _store(vmem, acc, streams[Stream.RESULT], row, block, lane, value if counts else 0, mode)
        if mode.get("use_reduce"):
            reduced = streams[Stream.REDUCED]
            if row % cols == 0:
                acc[reduced.address + row // cols] = 0
            acc[reduced.address + row // cols, row % cols] = _i(_reduce(Reduction(mode["reduction"]), values, cols))


def _store(vmem, acc, p: Placed, row: int, block: int, lane: int, value: int, mode: Mapping[str, int]) -> None:
    at = p.address + row * p.row_step + block * p.block_step
    if mode.get("round") or (p.memory is Source.VMEM and p.format is Format.BF16):
        value = _round(value)
    if p.memory is Source.ACC:
        acc[at, lane] = _i(value)
        return
    size = {Format.WORD: 4, Format.BF16: 2, Format.INT8: 1}[p.format]
    data = (value >> 16 if p.format is Format.BF16 else value).to_bytes(4, "little")[:size]
    vmem[at + size * lane : at + size * (lane + 1)] = np.frombuffer(data, np.uint8)


def _reduce(op: Reduction, values: list[int | None], cols: int) -> int:
    if op is Reduction.ARGMAX:
        best = [(float(_f(v)), -at) for at, v in enumerate(values) if v is not None]
        return -max(best)[1] if best else 0x7FFFFFFF
    if op is Reduction.MAX:
        return max((_f(v) for v in values if v is not None), default=np.float32(-np.inf)).view(np.uint32).item()
    lanes = [np.float32(0)] * cols
    for at, v in enumerate(values):
        x = np.float32(0) if v is None else _f(v)
        lanes[at % cols] = lanes[at % cols] + (x * x if op is Reduction.SUM_OF_SQUARES else x)
    while len(lanes) > 1:
        lanes += [np.float32(0)] * (len(lanes) % 2)
        lanes = [a + b for a, b in zip(lanes[::2], lanes[1::2], strict=True)]
    return _b(lanes[0])
