"""Streams of a VECTOR_PASS: rows of 32-bit lanes in accumulators or VMEM, and values per row packed in accumulators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from sluice_hw.isa import Format, Source

from .faults import UnwrittenReadError
from .memory import Memory, disjoint

__all__ = ["GROUP", "PackedValues", "RowStream", "Shape"]

#: Rows that a pass takes together: in a group it goes block by block.
GROUP = 8


@dataclass(frozen=True)
class Shape:
    """Rows of a pass: ``blocks`` of ``cols`` lanes each, the last of ``tail``."""

    rows: int
    blocks: int
    tail: int
    cols: int

    @property
    def lanes(self) -> int:
        """Lanes of a row."""
        return (self.blocks - 1) * self.cols + self.tail

    def parts(self) -> list[tuple[int, int, int]]:
        """Blocks of one width: ``(first block, blocks, lanes)``."""
        if self.tail == self.cols:
            return [(0, self.blocks, self.cols)]
        return [part for part in ((0, self.blocks - 1, self.cols), (self.blocks - 1, 1, self.tail)) if part[1]]


class RowStream:
    """A block of lanes per row and block.

    Parameters
    ----------
    vmem, acc
        The memories.
    address
        Of the first row's first block.
    fields
        Of its PASS_STREAM.
    shape
        Of the pass.
    """

    def __init__(self, vmem: Memory, acc: Memory, address: int, fields: Mapping[str, int], shape: Shape) -> None:
        self.packed = fields["memory"] == Source.VMEM
        self.memory = vmem if self.packed else acc
        self.format = Format(fields["format"])
        self.address, self.shape = address, shape
        self.steps = (fields["row_step"], fields["block_step"])

    @property
    def bf16(self) -> bool:
        """Whether its lanes are rounded to bf16 because it holds no more."""
        return self.packed and self.format is Format.BF16

    def _walks(self, rows: int) -> list[tuple[int, int, int, tuple[int, int], int]]:
        """Parts as ``(first lane, lanes, base, counts, width)``, width in units of the memory."""
        out, cols = [], self.shape.cols
        parts = self.shape.parts() if self.packed else [(0, self.shape.blocks, cols)]
        for first, blocks, lanes in parts:
            width = lanes * self.format.size if self.packed else 1
            out.append((first * cols, blocks * lanes, self.address + first * self.steps[1], (rows, blocks), width))
        return out

    def check(self) -> None:
        """Raise :class:`UnitFault` for a block beyond the memory's end."""
        for _, _, base, counts, width in self._walks(self.shape.rows):
            self.memory.check(base, counts, self.steps, width)

    def read(self, keep: np.ndarray | None) -> np.ndarray:
        """Patterns, uint32 (rows, lanes).

        Parameters
        ----------
        keep
            (rows, lanes): lanes that count; the others may be unwritten. None: all count.

        Raises
        ------
        UnwrittenReadError
            For a lane that counts.
        """
        shape = self.shape
        rows = 1 if self.steps[0] == 0 else shape.rows
        out = np.empty((rows, shape.lanes), np.uint32)
        for first, lanes, base, counts, width in self._walks(rows):
            raw, known = self.memory.look(base, counts, self.steps, width)
            last = min(first + lanes, shape.lanes)
            out[:, first:last] = self._unpack(raw).reshape(rows, -1)[:, : last - first]
            if not known.all():
                self._refuse(known, first, last, keep)
        return np.broadcast_to(out, (shape.rows, shape.lanes))

    def _unpack(self, raw: np.ndarray) -> np.ndarray:
        if not self.packed:
            return raw.view(np.uint32)
        raw = np.ascontiguousarray(raw)
        if self.format is Format.WORD:
            return raw.view("<u4")
        if self.format is Format.BF16:
            return raw.view("<u2").astype(np.uint32) << np.uint32(16)
        return raw.view(np.int8).astype(np.int32).view(np.uint32)

    def _refuse(self, known: np.ndarray, first: int, last: int, keep: np.ndarray | None) -> None:
        size = self.format.size if self.packed else 1
        if self.packed:
            known = known.reshape(*known.shape[:2], -1, size).all(axis=-1)
        else:
            known = np.broadcast_to(known, (*known.shape[:2], self.shape.cols))
        bad = ~known.reshape(known.shape[0], -1)[:, : last - first]
        if keep is not None:
            needed = keep[:, first:last]
            bad = bad & (needed.any(axis=0) if len(bad) < len(needed) else needed)
        if bad.any():
            row, lane = (int(x) for x in np.argwhere(bad)[0])
            block, lane = divmod(first + lane, self.shape.cols)
            at = self.address + row * self.steps[0] + block * self.steps[1] + (lane * size if self.packed else 0)
            raise UnwrittenReadError(self.memory.name, at % (1 << 32))

    def write(self, values: np.ndarray) -> None:
        """Write uint32 patterns (rows, lanes); where blocks overlap, in the order of the pass."""
        shape = self.shape
        data, size = self._pack(values)
        walks = [(data[:, first * size : (first + lanes) * size], *walk)
                 for first, lanes, *walk in self._walks(shape.rows)]  # fmt: skip
        if disjoint((shape.rows, shape.blocks), self.steps, walks[0][-1]):
            for part, base, counts, width in walks:
                self.memory.write(base, counts, self.steps, part.reshape(*counts, width, *self.memory.data.shape[1:]))
            return
        lanes = shape.cols * size
        for row, block in _order(shape.rows, shape.blocks):
            part = data[row, block * lanes : (block + 1) * lanes].reshape(-1, *self.memory.data.shape[1:])
            self.memory.write(self.address + row * self.steps[0] + block * self.steps[1], (), (), part)

    def _pack(self, values: np.ndarray) -> tuple[np.ndarray, int]:
        """Rows as they lie in the memory, int32 lanes or bytes, and how many of these make a lane."""
        shape = self.shape
        if not self.packed:
            whole = np.zeros((shape.rows, shape.blocks * shape.cols), np.uint32)
            whole[:, : shape.lanes] = values
            return whole.view(np.int32), 1
        if self.format is Format.BF16:
            values = values >> np.uint32(16)
        kind = {Format.WORD: "<u4", Format.BF16: "<u2", Format.INT8: np.uint8}[self.format]
        return np.ascontiguousarray(values, kind).view(np.uint8), self.format.size


def _order(rows: int, blocks: int) -> Iterator[tuple[int, int]]:
    """Rows and blocks in the order in which a pass comes to them."""
    for first in range(0, rows, GROUP):
        for block in range(blocks):
            for row in range(first, min(first + GROUP, rows)):
                yield row, block


@dataclass(frozen=True)
class PackedValues:
    """A value per row: that of row i is in accumulator row ``address + i // cols``, lane ``i % cols``."""

    acc: Memory
    address: int
    rows: int
    cols: int

    @property
    def count(self) -> int:
        """Accumulator rows."""
        return -(-self.rows // self.cols)

    def check(self) -> None:
        """Raise :class:`UnitFault` for a row beyond the accumulators' end."""
        self.acc.check(self.address, (self.count,), (1,))

    def read(self) -> np.ndarray:
        """Patterns, uint32 (rows, 1)."""
        values = self.acc.read(self.address, (self.count,), (1,)).reshape(-1)[: self.rows]
        return values.view(np.uint32)[:, None].copy()

    def write(self, values: np.ndarray) -> None:
        """Write uint32 patterns (rows,), and zeros up to the end of the last accumulator row."""
        whole = np.zeros((self.count, 1, self.cols), np.uint32)
        whole.reshape(-1)[: self.rows] = values
        self.acc.write(self.address, (self.count,), (1,), whole.view(np.int32))
