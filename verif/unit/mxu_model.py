"""What the matrix unit has to do, in NumPy, from docs/architecture.md ("What the ops do"); programs for its benches."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from sluice.golden.numerics_bf16 import column_sum, fp32_add
from sluice_hw.config import ChipConfig
from sluice_hw.interfaces import op_layout
from sluice_hw.isa import OPS, Op, Unit, encode

__all__ = ["Conv", "MxuModel", "UnitOp", "conv_ops", "matmul_ops", "pack", "random_bf16_bytes", "run_ops"]

_LAYOUT = op_layout()


@dataclass
class UnitOp:
    """A micro-op in the unit's queue."""

    op: Op
    fields: dict[str, int] = field(default_factory=dict)
    a: int = 0
    b: int = 0
    wait: int = 0
    signal: int = 0
    swap: int = 0
    accumulate: int = 0
    pc: int = 0

    @property
    def works(self) -> bool:
        """Not a setup word."""
        return OPS[self.op].fields[0].name == "wait_ld"


def pack(op: UnitOp, config: ChipConfig) -> int:
    """Bits of ``op`` on the unit's queue."""
    fields = dict(op.fields)
    if op.op == Op.SYNC:
        fields.setdefault("unit", int(Unit.MXU))
    values = {
        "word": encode(op.op, config, fields), "a": op.a & 0xFFFFFFFF, "b": op.b & 0xFFFFFFFF, "c": 0, "wait": op.wait,
        "signal": op.signal, "accumulate": op.accumulate, "swap": op.swap, "pc": op.pc,
    }
    return sum(value << _LAYOUT[name].offset for name, value in values.items())


class MxuModel:
    """Executes ops one after the other.

    Attributes
    ----------
    acc
        int32 or the bits of fp32, shape ``(acc_rows, cols)``; ``written`` tells which rows an op has written.
    rows, macs, tiles
        Work done so far, as the unit counts it.
    """

    def __init__(self, config: ChipConfig, vmem: np.ndarray) -> None:
        self.config, self.vmem = config, vmem
        self.acc = np.zeros((config.acc_rows, config.cols), np.int32)
        self.written = np.zeros(config.acc_rows, bool)
        self.shape: dict[str, int] = {}
        self.segments: dict[int, dict[str, int]] = {}
        self.loaded: tuple[np.ndarray, int] | None = None
        self.active: tuple[np.ndarray, int] = (np.zeros((config.rows, config.col_bytes), np.int64), 0)
        self.rows = self.macs = self.tiles = 0

    def load(self, vmem: int, pitch: int, k: int, n: int, transpose: int = 0, int8: int = 0) -> None:
        assert self.loaded is None, "a second tile before the first was swapped in never loads"
        int8 = int8 or not self.config.is_float
        tile = np.zeros((self.config.rows, self.config.col_bytes), np.int64)
        rows, count = (n // 2, 2 * k) if transpose else (k, n)
        for i in range(rows):
            at = vmem + i * pitch
            assert 0 <= at and at + count <= len(self.vmem)
            row = self.vmem[at : at + count]
            if transpose:  # element j of this row is element i of row j
                tile[:k, 2 * i : 2 * i + 2] = row.reshape(k, 2)
            else:
                tile[i, :n] = row
        self.loaded = tile, k * (n if int8 else n // 2)
        self.tiles += 1

    def feed(self, vmem: int) -> np.ndarray:
        """Array rows of a PULSE_ARRAY, byte by byte as the page says it."""
        s = self.shape
        out = []
        for i2 in range(s["n2"]):
            for i1 in range(s["n1"]):
                for i0 in range(s["n0"]):
                    row = np.zeros(self.config.row_bytes, np.int64)
                    base = vmem + i0 * s["s0"] + i1 * s["s1"] + i2 * s["s2"]
                    for p in range(s["segments"]):
                        g = self.segments[p]
                        for r in range(g["lo"], g["hi"]):
                            x = g["x"] + i0 * s["x_step"] + (r - g["lo"])
                            y = g["y"] + i1 * s["y_step"]
                            outside = not (0 <= x < s["line_bytes"] and 0 <= y < s["height"])
                            if s["pad"] and outside:
                                row[r] = s["zero_point"]
                            else:
                                row[r] = self.vmem[(base + g["offset"] + (r - g["lo"])) % 2**32]
                    out.append(row)
        return np.array(out)

    def pulse(self, vmem: int, acc: int, swap: int, accumulate: int, int8: int = 0) -> None:
        if swap:
            assert self.loaded is not None, "a swap without a tile never starts"
            self.active, self.loaded = self.loaded, None
        rows = self.feed(vmem)
        is_float = self.config.is_float and not int8
        if is_float:
            operands = (np.ascontiguousarray(x).astype(np.int8).view("<u2") for x in (rows, self.active[0]))
            sums = column_sum(*operands, rows=self.config.rows)
        else:
            sums = rows[:, : self.config.rows] @ self.active[0][:, : self.config.cols]
        for q, row in enumerate(sums):
            if is_float:
                total = fp32_add(self.acc[acc + q].view(np.uint32), row) if accumulate else row
                self.acc[acc + q] = total.view(np.int32)
            else:
                old = self.acc[acc + q].astype(np.int64) if accumulate else 0
                self.acc[acc + q] = (old + row).astype(np.uint64).astype(np.uint32).view(np.int32)
            self.written[acc + q] = True
        self.rows += len(rows)
        self.macs += len(rows) * self.active[1]

    def run(self, op: UnitOp) -> None:
        filled = {f.name: op.fields.get(f.name, 0) for f in OPS[op.op].fields}
        if op.op == Op.FEED_SHAPE:
            self.shape = filled
        elif op.op == Op.FEED_SEGMENT:
            self.segments[filled["index"]] = filled
        elif op.op == Op.LOAD_WEIGHTS:
            self.load(op.a, *(filled[name] for name in ("pitch", "k", "n", "transpose", "int8")))
        elif op.op == Op.PULSE_ARRAY:
            self.pulse(op.a, op.b, op.swap, op.accumulate, filled["int8"])


def run_ops(model: MxuModel, ops: Iterable[UnitOp]) -> None:
    """Execute ``ops`` in order."""
    for op in ops:
        model.run(op)


def shape_op(n0: int, **fields: int) -> UnitOp:
    return UnitOp(Op.FEED_SHAPE, {"n0": n0, "n1": 1, "n2": 1, "segments": 1, **fields})


def segment_op(index: int, lo: int, hi: int, **fields: int) -> UnitOp:
    return UnitOp(Op.FEED_SEGMENT, {"index": index, "lo": lo, "hi": hi, **fields})


def matmul_ops(config: ChipConfig, m: int, k: int, n: int, *, x: int, x_pitch: int, w: int, w_pitch: int,
               acc: int, transpose: bool = False, int8: bool = False) -> list[UnitOp]:
    """``X[m, k] @ W[k, n]`` in tiles; column tile j goes to accumulator rows ``acc + j * m`` and on. With `transpose`,
    W lies in VMEM as [n, k]; with `int8`, a chip of both types takes them as that."""
    size = 1 if int8 else config.element_bytes
    down, right = (size, w_pitch) if transpose else (w_pitch, size)
    ops: list[UnitOp] = [shape_op(m, s0=x_pitch)]
    for j, n0 in enumerate(range(0, n, config.cols)):
        for k0 in range(0, k, config.rows):
            depth, width = min(config.rows, k - k0), min(config.cols, n - n0)
            ops += [
                UnitOp(Op.LOAD_WEIGHTS, {"pitch": w_pitch, "k": depth, "n": width * size, "transpose": int(transpose),
                                          "int8": int(int8)}, a=w + k0 * down + n0 * right),
                segment_op(0, 0, depth * size),
                UnitOp(Op.PULSE_ARRAY, {"int8": int(int8)}, a=x + k0 * size, b=acc + j * m, swap=1,
                       accumulate=int(k0 > 0)),
            ]  # fmt: skip
    return ops


@dataclass
class Conv:
    """A convolution, image in VMEM as [height][width][channels], weights as [ky][kx][channels][n]."""

    height: int
    width: int
    channels: int
    kernel: int
    n: int
    stride: int = 1
    dilation: int = 1
    pad: int = 0
    zero_point: int = 0
    images: int = 1

    @property
    def out_height(self) -> int:
        return (self.height + 2 * self.pad - (self.kernel - 1) * self.dilation - 1) // self.stride + 1

    @property
    def out_width(self) -> int:
        return (self.width + 2 * self.pad - (self.kernel - 1) * self.dilation - 1) // self.stride + 1

    @property
    def rows(self) -> int:
        return self.images * self.out_height * self.out_width

    def expected(self, image: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """int64 sums, shape ``(rows, n)``; ``image`` ``(images, height, width, channels)``, ``weights`` as above."""
        p, d, s = self.pad, self.dilation, self.stride
        size = (self.images, self.height + 2 * p, self.width + 2 * p, self.channels)
        padded = np.full(size, self.zero_point, np.int64)
        padded[:, p : p + self.height, p : p + self.width] = image
        out = np.zeros((self.images, self.out_height, self.out_width, self.n), np.int64)
        for ky in range(self.kernel):
            for kx in range(self.kernel):
                taps = padded[:, ky * d : ky * d + (self.out_height - 1) * s + 1 : s,
                              kx * d : kx * d + (self.out_width - 1) * s + 1 : s]
                out += taps @ weights[ky, kx].astype(np.int64)
        return out.reshape(self.rows, self.n)


def conv_ops(config: ChipConfig, conv: Conv, *, image: int, weights: int, acc: int, ports: int | None = None,
             rows: range | None = None) -> list[UnitOp]:
    """Ops of a convolution with ``n <= cols``; ``rows`` limits it to these output lines of every image.

    The flattened K axis (ky, kx, channel) is cut into tiles of whole array rows; every tile into segments, runs of
    bytes that lie one after the other in the image (with dilation, one tap each), at most ``ports``.
    """
    ports = config.feed_ports if ports is None else ports
    c, kernel = conv.channels, conv.kernel
    lines = range(conv.out_height) if rows is None else rows
    line_bytes = conv.width * c
    runs = []  # (K index, length, ky, byte along the line relative to the output's position)
    for ky in range(kernel):
        if conv.dilation == 1:
            runs.append((ky * kernel * c, kernel * c, ky, -conv.pad * c))
        else:
            runs += [((ky * kernel + kx) * c, c, ky, (kx * conv.dilation - conv.pad) * c) for kx in range(kernel)]
    tiles: list[list[tuple[int, int, int, int]]] = [[]]
    used = 0
    for at, length, ky, x in runs:
        while length:
            if used == config.rows or len(tiles[-1]) == ports:
                tiles.append([])
                used = 0
            take = min(length, config.rows - used)
            tiles[-1].append((at, take, ky, x))
            at, length, x, used = at + take, length - take, x + take, used + take
    y0 = lines.start * conv.stride
    ops = [shape_op(conv.out_width, n1=len(lines), n2=conv.images, s0=conv.stride * c, s1=conv.stride * line_bytes,
                    s2=conv.height * line_bytes, pad=int(conv.pad > 0), zero_point=conv.zero_point,
                    x_step=conv.stride * c, y_step=conv.stride, line_bytes=line_bytes, height=conv.height)]
    for number, tile in enumerate(tiles):
        shape = dict(ops[0].fields, segments=len(tile))
        depth = sum(take for _, take, _, _ in tile)
        ops.append(UnitOp(Op.LOAD_WEIGHTS, {"pitch": conv.n, "k": depth, "n": conv.n}, a=weights + tile[0][0] * conv.n))
        ops.append(UnitOp(Op.FEED_SHAPE, shape))
        lo = 0
        for p, (_, take, ky, x) in enumerate(tile):
            y = ky * conv.dilation - conv.pad
            ops.append(segment_op(p, lo, lo + take, offset=y * line_bytes + x, x=x, y=y + y0))
            lo += take
        ops.append(UnitOp(Op.PULSE_ARRAY, a=image + y0 * line_bytes, b=acc, swap=1, accumulate=int(number > 0)))
    return ops[1:]


def random_bf16_bytes(rng: random.Random, count: int) -> np.ndarray:
    """int8, most pairs of which, at odd addresses too, are bf16 numbers around 1, or in every third block of 64 bytes
    around 2^-63, whose products and sums are at the edge of what is flushed; any other one now and then."""
    values = np.frombuffer(rng.randbytes(count), np.uint8)
    kind = np.frombuffer(rng.randbytes(count), np.uint8)
    near_one = (0x3E, 0x3F, 0x40, 0x41, 0xBE, 0xBF, 0xC0, 0xC1)
    near_the_edge = (0x1F, 0x20, 0x20, 0x20, 0x9F, 0xA0, 0xA0, 0xA0)
    tops = np.array([near_one, near_the_edge], np.uint8)
    blocks = np.frombuffer(rng.randbytes(-(-count // 64)), np.uint8) < 85
    top = tops[np.repeat(blocks.astype(int), 64)[:count], values % 8]
    return np.where(kind < 3, values, top).astype(np.uint8).view(np.int8)


def random_bytes(rng: random.Random, count: int) -> np.ndarray:
    """int8 with extremes more often than by chance."""
    values = np.frombuffer(rng.randbytes(count), np.int8).copy()
    extreme = np.frombuffer(rng.randbytes(count), np.uint8)
    values[extreme < 16] = -128
    values[extreme >= 240] = 127
    return values
