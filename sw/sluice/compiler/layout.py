"""How arrays lie in HBM. The host packs inputs and unpacks results; that work is not the chip's and is counted apart.

Every unit of transfer begins at a slice and is padded to whole slices with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .tiles import Cut, ceil_div

__all__ = ["ActivationPanels", "Chunks", "Layout", "ResultPanels", "WeightTiles", "slices_of"]


def slices_of(size: int, slice_bytes: int) -> int:
    return ceil_div(size, slice_bytes)


class Layout(Protocol):
    """A way to lie in HBM: ``slices`` of ``slice_bytes``; ``pack`` makes bytes of an array, ``unpack`` the reverse."""

    @property
    def slices(self) -> int: ...

    def pack(self, array: np.ndarray) -> bytes: ...

    def unpack(self, data: bytes) -> np.ndarray: ...

    def __str__(self) -> str: ...


def _units(blocks: np.ndarray, unit: int) -> bytes:
    """Rows of bytes, each padded to ``unit`` bytes."""
    rows = np.ascontiguousarray(blocks).view(np.uint8).reshape(len(blocks), -1)
    out = np.zeros((len(rows), unit), np.uint8)
    out[:, : rows.shape[1]] = rows
    return out.tobytes()


@dataclass(frozen=True)
class Chunks:
    """[chunk][units of the chunk][elements]: each chunk packed in row-major order.

    ``shape`` is the array's; its first dimension times its other ones are cut into ``units`` equal units, of which
    ``per_chunk`` make a chunk. The last chunk is filled up with zeros.
    """

    shape: tuple[int, ...]
    dtype: str
    units: int
    per_chunk: int
    slice_bytes: int

    @property
    def unit_bytes(self) -> int:
        return int(np.prod(self.shape)) // self.units * np.dtype(self.dtype).itemsize

    @property
    def chunks(self) -> int:
        return ceil_div(self.units, self.per_chunk)

    @property
    def chunk_slices(self) -> int:
        return slices_of(self.per_chunk * self.unit_bytes, self.slice_bytes)

    @property
    def slices(self) -> int:
        return self.chunks * self.chunk_slices

    def pack(self, array: np.ndarray) -> bytes:
        rows = (
            np.ascontiguousarray(array, np.dtype(self.dtype).newbyteorder("<")).reshape(self.units, -1).view(np.uint8)
        )
        full = np.zeros((self.chunks * self.per_chunk, self.unit_bytes), np.uint8)
        full[: self.units] = rows
        return _units(full.reshape(self.chunks, -1), self.chunk_slices * self.slice_bytes)

    def unpack(self, data: bytes) -> np.ndarray:
        rows = np.frombuffer(data, np.uint8).reshape(self.chunks, -1)[:, : self.per_chunk * self.unit_bytes]
        rows = np.ascontiguousarray(rows).reshape(-1, self.unit_bytes)[: self.units]
        return (
            np.ascontiguousarray(rows)
            .view(np.dtype(self.dtype).newbyteorder("<"))
            .reshape(self.shape)
            .astype(self.dtype)
        )

    def __str__(self) -> str:
        return f"{self.chunks} chunks of {self.per_chunk} x {self.unit_bytes} bytes, {self.chunk_slices} slices each"


@dataclass(frozen=True)
class ActivationPanels:
    """int8[M, K] as [block of rows][piece of K tiles][K tile][row][R]: what a piece's transfer brings is contiguous.

    Attributes
    ----------
    shape
        May have more dimensions, the first being the rows.
    sizes
        Rows of each block.
    filled
        Rows that transfers of each block bring; those beyond its size are zeros, as is K beyond its end.
    tile, piece
        Array rows R, and K tiles of a piece.
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    filled: tuple[int, ...]
    tile: int
    piece: int
    slice_bytes: int

    @property
    def pieces(self) -> int:
        return ceil_div(ceil_div(self.shape_2d[1], self.tile), self.piece)

    @property
    def shape_2d(self) -> tuple[int, int]:
        return self.shape[0], int(np.prod(self.shape[1:]))

    @property
    def piece_slices(self) -> int:
        """Slices from piece to piece: those of the largest."""
        return slices_of(self.piece * max(self.filled) * self.tile, self.slice_bytes)

    @property
    def blocks(self) -> int:
        return len(self.sizes)

    @property
    def slices(self) -> int:
        return self.blocks * self.pieces * self.piece_slices

    def pack(self, array: np.ndarray) -> bytes:
        m, k = self.shape_2d
        flat = array.reshape(m, k)
        out, first = [], 0
        for size, filled in zip(self.sizes, self.filled, strict=True):
            block = np.zeros((filled, self.pieces * self.piece * self.tile), np.int8)
            block[:size, :k] = flat[first : first + size]
            first += size
            cut = block.reshape(filled, self.pieces, self.piece, self.tile).transpose(1, 2, 0, 3)
            cut = np.ascontiguousarray(cut).reshape(self.pieces, -1)
            out.append(_units(cut, self.piece_slices * self.slice_bytes))
        return b"".join(out)

    def unpack(self, data: bytes) -> np.ndarray:
        m, k = self.shape_2d
        units = np.frombuffer(data, np.int8).reshape(self.blocks, self.pieces, -1)
        out = np.empty((m, k), np.int8)
        first = 0
        for unit, size, filled in zip(units, self.sizes, self.filled, strict=True):
            cut = np.ascontiguousarray(unit[:, : self.piece * filled * self.tile])
            block = cut.reshape(self.pieces, self.piece, filled, self.tile).transpose(2, 0, 1, 3).reshape(filled, -1)
            out[first : first + size] = block[:size, :k]
            first += size
        return out.reshape(self.shape)

    def __str__(self) -> str:
        return (
            f"{self.blocks} blocks of up to {max(self.filled)} rows, each {self.pieces} pieces of {self.piece} x "
            f"{self.tile} of K, {self.piece_slices} slices each"
        )


@dataclass(frozen=True)
class WeightTiles:
    """int8[K, N] as [strip of C columns][piece of K tiles][K tile][R][C], filled up with zeros."""

    shape: tuple[int, int]
    tile: tuple[int, int]
    piece: int
    slice_bytes: int

    @property
    def pieces(self) -> int:
        return ceil_div(ceil_div(self.shape[0], self.tile[0]), self.piece)

    @property
    def strips(self) -> int:
        return ceil_div(self.shape[1], self.tile[1])

    @property
    def tile_bytes(self) -> int:
        return self.tile[0] * self.tile[1]

    @property
    def piece_slices(self) -> int:
        return slices_of(self.piece * self.tile_bytes, self.slice_bytes)

    @property
    def slices(self) -> int:
        return self.strips * self.pieces * self.piece_slices

    def pack(self, array: np.ndarray) -> bytes:
        (k, n), (r, c) = self.shape, self.tile
        full = np.zeros((self.pieces * self.piece * r, self.strips * c), np.int8)
        full[:k, :n] = array
        cut = full.reshape(self.pieces, self.piece, r, self.strips, c).transpose(3, 0, 1, 2, 4)
        size = self.piece_slices * self.slice_bytes
        return _units(np.ascontiguousarray(cut).reshape(self.strips * self.pieces, -1), size)

    def unpack(self, data: bytes) -> np.ndarray:
        (k, n), (r, c) = self.shape, self.tile
        units = np.frombuffer(data, np.int8).reshape(self.strips * self.pieces, -1)[:, : self.piece * r * c]
        cut = np.ascontiguousarray(units).reshape(self.strips, self.pieces, self.piece, r, c)
        return np.ascontiguousarray(cut.transpose(1, 2, 3, 0, 4).reshape(-1, self.strips * c)[:k, :n])

    def __str__(self) -> str:
        return (
            f"{self.strips} strips of {self.tile[1]} columns, each {self.pieces} pieces of {self.piece} tiles, "
            f"{self.piece_slices} slices each"
        )


@dataclass(frozen=True)
class ResultPanels:
    """[M, N] as [block of rows][strip of C columns][row][column]: panels as they leave the vector unit.

    Panels at the edges are smaller, but each has the slices of a whole one.
    """

    shape: tuple[int, ...]
    dtype: str
    sizes: tuple[int, ...]
    cols: int
    slice_bytes: int

    @property
    def block(self) -> int:
        return max(self.sizes)

    @property
    def panel_slices(self) -> int:
        return slices_of(self.block * self.cols * np.dtype(self.dtype).itemsize, self.slice_bytes)

    @property
    def strips(self) -> Cut:
        return Cut(int(np.prod(self.shape[1:])), self.cols)

    @property
    def slices(self) -> int:
        return len(self.sizes) * self.strips.count * self.panel_slices

    def pack(self, array: np.ndarray) -> bytes:
        flat = np.asarray(array, np.dtype(self.dtype).newbyteorder("<")).reshape(self.shape[0], -1)
        unit = self.panel_slices * self.slice_bytes
        return b"".join(np.ascontiguousarray(p).tobytes().ljust(unit, b"\0") for p in self._panels(flat))

    def unpack(self, data: bytes) -> np.ndarray:
        out = np.empty((self.shape[0], self.strips.total), self.dtype)
        unit, dtype = self.panel_slices * self.slice_bytes, np.dtype(self.dtype).newbyteorder("<")
        for index, panel in enumerate(self._panels(out)):
            panel[...] = np.frombuffer(data, dtype, panel.size, index * unit).reshape(panel.shape)
        return out.reshape(self.shape)

    def _panels(self, array: np.ndarray) -> Iterator[np.ndarray]:
        """Views of the panels in order."""
        first = 0
        for size in self.sizes:
            for strip in range(self.strips.count):
                yield array[first : first + size, strip * self.cols : (strip + 1) * self.cols]
            first += size

    def __str__(self) -> str:
        return (
            f"{len(self.sizes)} x {self.strips.count} panels of up to {self.block} x {self.cols}, {self.panel_slices} "
            "slices each"
        )
