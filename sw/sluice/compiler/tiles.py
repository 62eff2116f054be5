"""Cutting: lengths into tiles, blocks and runs; K of a convolution into weight tiles; windows into classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Cut", "KTile", "Segment", "WindowRun", "ceil_div", "conv_tiles", "pack_tiles", "round_up", "window_runs"]


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    return ceil_div(a, b) * b


@dataclass(frozen=True)
class Cut:
    """A length cut into pieces of ``step``; the last one may be shorter.

    Examples
    --------
    >>> Cut(10, 4).count, Cut(10, 4).full, Cut(10, 4).rest
    (3, 2, 2)
    """

    total: int
    step: int

    @property
    def full(self) -> int:
        """Pieces of the whole step."""
        return self.total // self.step

    @property
    def rest(self) -> int:
        """Length of the shorter piece behind them; 0 when there is none."""
        return self.total % self.step

    @property
    def count(self) -> int:
        return self.full + (self.rest > 0)

    def size(self, index: int) -> int:
        return self.step if index < self.full else self.rest

    def runs(self) -> list[tuple[int, int]]:
        """``(how many, size)`` of equal pieces in a row."""
        return [(n, size) for n, size in ((self.full, self.step), (1, self.rest)) if n and size]


@dataclass(frozen=True)
class Segment:
    """A run of K that one feeder port reads: array rows ``lo`` to ``hi`` take bytes of one image line.

    ``x`` and ``y`` are the position of the first of them for output pixel (0, 0): bytes along the line, and line;
    negative ones, and ones beyond the image, are padding.
    """

    lo: int
    hi: int
    x: int
    y: int


@dataclass(frozen=True)
class KTile:
    """Rows ``start`` to ``start + k`` of K, which are one weight tile, and where the feeder finds their activations."""

    start: int
    k: int
    segments: tuple[Segment, ...]


def conv_tiles(
    kernel: tuple[int, int], channels: int, stride: int, dilation: tuple[int, int], padding: tuple[int, int],
    rows: int, ports: int, word: int,
) -> list[KTile]:  # fmt: skip
    """Cut the flattened (ky, kx, channel) axis into tiles of at most ``rows`` rows and ``ports`` segments.

    Tiles either fill up across lines, or end with each line. The first makes fewer tiles; but where rows lie a word or
    more apart, each segment takes a read of VMEM of its own, and a tile of two segments two cycles a row.

    Parameters
    ----------
    stride
        Pixels from row to row along a line.
    padding
        (top, left).
    word
        Bytes that one read of VMEM gives.
    """
    kh, kw = kernel
    # Taps of a line are contiguous bytes unless they are spread.
    joined = dilation[1] == 1
    runs = [
        (ky * dilation[0] - padding[0], (kx * dilation[1] - padding[1]) * channels, channels * (kw if joined else 1))
        for ky in range(kh)
        for kx in (range(1) if joined else range(kw))
    ]
    reads = min(1.0, stride * channels / word)
    filled, split = _fill(runs, rows, ports, across=True), _fill(runs, rows, ports, across=False)

    def time(tiles: list[KTile]) -> float:
        return sum(max(1.0, reads * len(t.segments)) for t in tiles)

    return split if time(split) <= time(filled) else filled


def _fill(runs: list[tuple[int, int, int]], rows: int, ports: int, *, across: bool) -> list[KTile]:
    """Tiles over runs of bytes ``(y, x, length)``; ``across``: a tile may hold parts of several."""
    tiles: list[KTile] = []
    start, used, segments = 0, 0, []

    def close() -> None:
        nonlocal start, used, segments
        if used:
            tiles.append(KTile(start, used, tuple(segments)))
            start, used, segments = start + used, 0, []

    for y, x, length in runs:
        at = 0
        while at < length:
            if used == rows or len(segments) == ports:
                close()
            size = min(rows - used, length - at)
            segments.append(Segment(used, used + size, x + at, y))
            used += size
            at += size
        if not across:
            close()
    close()
    return tiles


def pack_tiles(weights: np.ndarray, tiles: list[tuple[int, int]], rows: int, cols: int) -> bytes:
    """int8[K, N] as [strip of ``cols`` columns][tile][row][column], filled up with zeros.

    Parameters
    ----------
    tiles
        ``(first row, rows)`` of each tile.
    """
    n = weights.shape[1]
    strips = ceil_div(n, cols)
    out = np.zeros((strips, len(tiles), rows, cols), np.int8)
    padded = np.zeros((weights.shape[0], strips * cols), np.int8)
    padded[:, :n] = weights
    for index, (start, size) in enumerate(tiles):
        out[:, index, :size] = padded[start : start + size].reshape(size, strips, cols).transpose(1, 0, 2)
    return out.tobytes()


@dataclass(frozen=True)
class WindowRun:
    """Neighbouring outputs along one axis whose windows have one size and step evenly.

    Outputs ``first`` to ``first + count`` have windows of ``size`` from ``start`` on, ``start + stride`` and so on.
    """

    first: int
    count: int
    start: int
    size: int


def window_runs(length: int, window: int, stride: int, pads: tuple[int, int], outputs: int) -> list[WindowRun]:
    """Windows cut to the image: inner ones make one run, those at padded borders their own."""
    runs: list[WindowRun] = []
    for o in range(outputs):
        start, end = max(o * stride - pads[0], 0), min(o * stride - pads[0] + window, length)
        last = runs[-1] if runs else None
        if last and last.size == end - start and start == last.start + last.count * stride:
            runs[-1] = WindowRun(last.first, last.count + 1, last.start, last.size)
        else:
            runs.append(WindowRun(o, 1, start, end - start))
    return runs
