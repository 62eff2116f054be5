"""Random passes of the floating-point vector unit, and what they leave in memory: by tensors, not by cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sluice.golden import functions, vector_ops
from sluice_hw.config import ChipConfig
from sluice_hw.functions import Function
from sluice_hw.isa import Format, Op, Operand, Source, Stream, Unit
from sluice_hw.vector_ops import AluOp, Reduction
from verif.models.vector_unit import VectorUnit

__all__ = ["Place", "Transposed", "VectorPass", "random_pass", "random_transpose"]


@dataclass(frozen=True)
class Place:
    """Where a stream lies."""

    addr: int
    memory: Source = Source.ACC
    format: Format = Format.WORD
    row_step: int = 0
    block_step: int = 0


@dataclass(frozen=True)
class VectorPass:
    """Shape, mode and streams of a pass; ``mode`` holds fields of PASS_MODE."""

    rows: int
    blocks: int
    tail: int
    mode: Mapping[str, int]
    places: Mapping[Stream, Place]
    mask: tuple[int, int] | None = None
    signal: int = 1 << Unit.ST

    @property
    def counted(self) -> int:
        """What it adds to the counter ``vector_rows``."""
        return self.rows * self.blocks

    def ops(self, unit: VectorUnit, pc: int = 0) -> list[int]:
        """Its micro-ops, the pass itself at ``pc``."""
        masked, (base, step) = self.mask is not None, self.mask or (0, 0)
        shape = {"rows": self.rows, "blocks": self.blocks, "tail": self.tail, "masked": masked, "mask_base": base,
                 "mask_step": step}  # fmt: skip
        return [
            unit.op(Op.PASS_SHAPE, shape), unit.op(Op.PASS_MODE, self.mode),
            *(unit.op(Op.PASS_STREAM, {"stream": s, "memory": p.memory, "format": p.format, "row_step": p.row_step,
                                       "block_step": p.block_step}, a=p.addr) for s, p in self.places.items()),
            unit.op(Op.VECTOR_PASS, {}, signal=self.signal, pc=pc),
        ]  # fmt: skip

    def run(self, config: ChipConfig, vmem: np.ndarray, acc: np.ndarray) -> None:
        """Changes the memories as the contract says."""
        cols = config.cols
        shape = (self.rows, self.blocks, cols)
        lanes = np.full(self.blocks, cols)
        lanes[-1] = self.tail
        there = np.broadcast_to(np.arange(cols) < lanes[:, None], shape)
        keep = there
        if self.mask is not None:
            base, step = self.mask
            index = np.arange(self.blocks * cols).reshape(self.blocks, cols)
            keep = there & (index < (base + step * np.arange(self.rows))[:, None, None])

        def block(place: Place, row: int, j: int) -> np.ndarray:
            at = place.addr + row * place.row_step + j * place.block_step
            if place.memory == Source.ACC:
                return acc[at]
            n = lanes[j]
            raw = vmem[at : at + n * place.format.size]
            if place.format == Format.WORD:
                values = raw.view("<u4")
            elif place.format == Format.BF16:
                values = raw.view("<u2").astype(np.uint32) << 16
            else:
                values = raw.view(np.int8).astype(np.int32).view(np.uint32)
            return np.concatenate([values, np.zeros(cols - n, np.uint32)])

        def read(stream: Stream) -> np.ndarray:
            place = self.places[stream]
            return np.array([[block(place, i, j) for j in range(self.blocks)] for i in range(self.rows)], np.uint32)

        def operand(name: str) -> np.ndarray:
            kind = Operand(self.mode.get(name, 0))
            if kind in (Operand.K0, Operand.K1):
                return np.full(shape, self.mode.get(kind.name.lower(), 0), np.uint32)
            if kind == Operand.COLUMN:
                rows = np.arange(self.rows)
                values = acc[self.places[Stream.COLUMN].addr + rows // cols, rows % cols]
                return np.broadcast_to(values[:, None, None], shape)
            return read(Stream[kind.name])

        value = read(Stream.SOURCE)
        if self.mode.get("use_first"):
            value = vector_ops.alu(AluOp(self.mode["first_op"]), value, operand("first_b"), operand("first_c"))
        if self.mode.get("use_function"):
            value = vector_ops.as_bits(functions.apply(Function(self.mode["function"]), value))
        if self.mode.get("use_second"):
            value = vector_ops.alu(AluOp(self.mode["second_op"]), value, operand("second_b"), operand("second_c"))
        if self.mode.get("use_reduce"):
            flat = (self.rows, -1)
            reduced = vector_ops.reduce_rows(Reduction(self.mode["reduction"]), value.reshape(flat), lanes=cols,
                                             mask=keep.reshape(flat))  # fmt: skip
        if self.mode.get("store"):
            place = self.places[Stream.RESULT]
            in_vmem = place.memory == Source.VMEM
            if self.mode.get("round") or (in_vmem and place.format == Format.BF16):
                value = vector_ops.alu(AluOp.TO_BF16, value)
            value = np.where(keep, value, np.uint32(0))
            for i, j in np.ndindex(self.rows, self.blocks):
                at = place.addr + i * place.row_step + j * place.block_step
                if not in_vmem:
                    acc[at] = value[i, j]
                    continue
                row = np.ascontiguousarray(value[i, j, : lanes[j]])
                raw = {Format.WORD: row, Format.BF16: (row >> 16).astype("<u2"),
                       Format.INT8: row.astype(np.uint8)}[place.format].view(np.uint8)  # fmt: skip
                vmem[at : at + len(raw)] = raw
        if self.mode.get("use_reduce"):
            rows = -(-self.rows // cols)
            packed = np.zeros(rows * cols, np.uint32)
            packed[: self.rows] = reduced
            first = self.places[Stream.REDUCED].addr
            acc[first : first + rows] = packed.reshape(rows, cols)


@dataclass(frozen=True)
class Transposed:
    """A TRANSPOSE of k rows of n elements."""

    src: int
    dst: int
    src_pitch: int
    dst_pitch: int
    k: int
    n: int
    counted: int = 0

    def ops(self, unit: VectorUnit, pc: int = 0) -> list[int]:
        fields = {name: getattr(self, name) for name in ("src_pitch", "dst_pitch", "k", "n")}
        return [unit.op(Op.TRANSPOSE, fields, a=self.src, b=self.dst, signal=1 << Unit.ST, pc=pc)]

    def run(self, config: ChipConfig, vmem: np.ndarray, acc: np.ndarray) -> None:
        rows = [vmem[self.src + i * self.src_pitch :][: 2 * self.n].copy().view("<u2") for i in range(self.k)]
        for j in range(self.n):
            at = self.dst + j * self.dst_pitch
            vmem[at : at + 2 * self.k] = np.array([row[j] for row in rows], "<u2").view(np.uint8)


def random_transpose(rng: np.random.Generator, config: ChipConfig) -> Transposed:
    """One within VMEM, of any size."""
    most = max(config.rows, config.cols)
    k, n = (int(rng.integers(1, most + 1)) for _ in range(2))
    src_pitch, dst_pitch = (2 * x + int(rng.integers(0, 4)) for x in (n, k))
    src = int(rng.integers(0, config.vmem_bytes // 2 - src_pitch * k))
    dst = int(rng.integers(config.vmem_bytes // 2, config.vmem_bytes - dst_pitch * n))
    return Transposed(src, dst, src_pitch, dst_pitch, k, n)


class _Room:
    """Hands out places that do not overlap, in any order of the memory."""

    def __init__(self, rng: np.random.Generator, config: ChipConfig) -> None:
        self.rng, self.config = rng, config
        self.left = {Source.ACC: config.acc_rows, Source.VMEM: config.vmem_bytes}
        self.base = {Source.ACC: 0, Source.VMEM: 0}

    def take(self, memory: Source, size: int) -> int | None:
        if size > self.left[memory]:
            return None
        gap = int(self.rng.integers(0, min(self.left[memory] - size, 5) + 1))
        at = self.base[memory] + gap
        self.base[memory] = at + size
        self.left[memory] -= gap + size
        return at


def random_pass(rng: np.random.Generator, config: ChipConfig, *, rows: int = 20, blocks: int = 5) -> VectorPass:
    """A pass that fits the memories, of up to so many rows and blocks."""
    while True:
        found = _try_pass(rng, config, int(rng.integers(1, rows + 1)), int(rng.integers(1, blocks + 1)))
        if found is not None:
            return found


def _try_pass(rng: np.random.Generator, config: ChipConfig, rows: int, blocks: int) -> VectorPass | None:
    cols = config.cols
    room = _Room(rng, config)
    tail = int(rng.integers(1, cols + 1))
    scalars = [int(x) for x in rng.normal(size=2).astype(np.float32).view(np.uint32)]
    mode: dict[str, int] = {"k0": scalars[0], "k1": scalars[1]}
    owners = {o: rng.choice(["first", "second"]) for o in (Operand.X, Operand.Y, Operand.COLUMN)}
    for alu in ("first", "second"):
        mode[f"use_{alu}"] = int(rng.random() < 0.6)
        mode[f"{alu}_op"] = int(rng.choice(list(AluOp)))
        allowed = [Operand.K0, Operand.K1, *(o for o, owner in owners.items() if owner == alu)]
        mode[f"{alu}_b"], mode[f"{alu}_c"] = (int(rng.choice(allowed)) for _ in range(2))
    mode["use_function"], mode["function"] = int(rng.random() < 0.4), int(rng.choice(list(Function)))
    mode["use_reduce"], mode["reduction"] = int(rng.random() < 0.5), int(rng.choice(list(Reduction)))
    mode["store"] = int(rng.random() < 0.7) if mode["use_reduce"] else 1
    mode["round"] = int(rng.random() < 0.3)
    selected = {mode[f"{alu}_{which}"] for alu in ("first", "second") if mode[f"use_{alu}"] for which in "bc"}

    def place(shared: bool) -> Place | None:
        memory = Source(int(rng.integers(2)))
        form = Format(int(rng.integers(3)))
        height = 1 if shared else rows
        size = 1 if memory == Source.ACC else cols * form.size
        end = 1 if memory == Source.ACC else tail * form.size
        gap = int(rng.integers(0, 4)) * int(rng.random() < 0.3)
        if rng.random() < 0.5:  # rows one after the other
            block_step, row_step = size, (blocks - 1) * size + end + gap
        else:  # blocks one after the other
            row_step, block_step = size, height * size + gap
        span = (height - 1) * row_step + (blocks - 1) * block_step + size
        at = room.take(memory, span)
        if at is None:
            return None
        if not shared and rng.random() < 0.1:  # backwards
            at, row_step = at + (rows - 1) * row_step, -row_step
        return Place(at, memory, form, 0 if shared else row_step, block_step)

    places: dict[Stream, Place | None] = {Stream.SOURCE: place(False)}
    for s, o in ((Stream.X, Operand.X), (Stream.Y, Operand.Y)):
        if o in selected:
            places[s] = place(bool(rng.random() < 0.4))
    packed = -(-rows // cols)
    for s, wanted in ((Stream.COLUMN, Operand.COLUMN in selected), (Stream.REDUCED, mode["use_reduce"])):
        if wanted:
            at = room.take(Source.ACC, packed)
            places[s] = None if at is None else Place(at)
    if mode["store"]:
        places[Stream.RESULT] = places[Stream.SOURCE] if rng.random() < 0.3 else place(False)
    if None in places.values():
        return None
    mask = None
    if rng.random() < 0.4:
        width = blocks * cols
        mask = (int(rng.integers(-3, width + 3)), int(rng.choice([0, 1, 1, -1, int(rng.integers(-width, width))])))
    order = list(places)
    rng.shuffle(order)
    return VectorPass(rows, blocks, tail, mode, {s: places[s] for s in order}, mask)
