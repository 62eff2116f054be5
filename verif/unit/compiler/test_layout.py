"""Layouts in HBM: packed and unpacked they are the identity, and bytes stand where a program looks for them."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.compiler.layout import ActivationPanels, Chunks, Layout, ResultPanels, WeightTiles
from sluice.compiler.tiles import Cut, Segment, conv_tiles, pack_tiles, window_runs
from sluice.golden import numerics

LAYOUTS: list[tuple[Layout, tuple[int, ...], str]] = [
    (Chunks((7, 3, 5), "int8", 7, 3, 64), (7, 3, 5), "int8"),
    (Chunks((12, 5), "int32", 4, 4, 64), (12, 5), "int32"),
    (Chunks((1, 1), "int8", 1, 1, 256), (1, 1), "int8"),
    (ActivationPanels((37, 70), (16, 16, 5), (16, 16, 16), 8, 4, 256), (37, 70), "int8"),
    (ActivationPanels((9, 2, 3), (4, 2, 2, 1), (4, 2, 2, 2), 5, 1, 64), (9, 2, 3), "int8"),
    (WeightTiles((70, 19), (8, 8), 4, 256), (70, 19), "int8"),
    (WeightTiles((3, 25), (5, 12), 1, 64), (3, 25), "int8"),
    (ResultPanels((37, 19), "int8", (16, 16, 5), 8, 256), (37, 19), "int8"),
    (ResultPanels((9, 25), "int32", (4, 4, 1), 12, 64), (9, 25), "int32"),
]


@pytest.mark.parametrize(("layout", "shape", "dtype"), LAYOUTS, ids=[f"{type(x[0]).__name__}{x[1]}" for x in LAYOUTS])
def test_round_trip(layout: Layout, shape: tuple[int, ...], dtype: str, seed: int) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(seed).integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    data = layout.pack(x)
    assert len(data) == layout.slices * layout.slice_bytes
    got = layout.unpack(data)
    assert got.dtype == x.dtype and np.array_equal(got, x)
    assert "slices" in str(layout)


def test_places() -> None:
    """The orders that the program counts on, byte by byte."""
    a = np.arange(6 * 5, dtype=np.int8).reshape(6, 5)
    data = np.frombuffer(ActivationPanels(a.shape, (4, 2), (4, 4), 2, 2, 64).pack(a), np.int8).reshape(2, 2, 64)
    # [block][piece] = [K tile][row][2 bytes of K]
    assert data[0, 0, :16].reshape(2, 4, 2)[1].tolist() == a[:4, 2:4].tolist()
    assert data[0, 1, :8].reshape(4, 2)[:, 0].tolist() == a[:4, 4].tolist() and not data[0, 1, 1:8:2].any()
    assert data[1, 0, :4].tolist() == a[4:6, :2].reshape(-1).tolist() and not data[1, 0, 4:8].any()
    w = np.arange(5 * 3, dtype=np.int8).reshape(5, 3)
    data = np.frombuffer(WeightTiles(w.shape, (2, 2), 2, 64).pack(w), np.int8).reshape(2, 2, 64)
    assert data[0, 0, :8].tolist() == w[:4, :2].reshape(-1).tolist()
    assert data[1, 1, :8].tolist() == [w[4, 2], 0, 0, 0, 0, 0, 0, 0]
    c = np.arange(5 * 3, dtype=np.int32).reshape(5, 3)
    data = np.frombuffer(ResultPanels(c.shape, "int32", (4, 1), 2, 64).pack(c), np.int32).reshape(2, 2, 16)
    assert data[0, 1, :4].tolist() == c[:4, 2].tolist() and data[1, 0, :2].tolist() == c[4, :2].tolist()


def test_cut() -> None:
    for total in range(1, 30):
        for step in range(1, 12):
            cut = Cut(total, step)
            sizes = [size for count, size in cut.runs() for _ in range(count)]
            assert sizes == [cut.size(i) for i in range(cut.count)] and sum(sizes) == total and max(sizes) <= step


def test_conv_tiles_cover_k_once(seed: int) -> None:
    """Every byte of every tap lies in one segment, at its place in the image, in the order of the weights."""
    rng = np.random.default_rng(seed)
    for _ in range(200):
        kernel, dilation, padding = (tuple(int(v) for v in rng.integers(low, 4, 2)) for low in (1, 1, 0))
        channels, rows, ports = (int(rng.integers(1, high)) for high in (20, 17, 5))
        tiles = conv_tiles(kernel, channels, int(rng.integers(1, 3)), dilation, padding, rows, ports, 8)
        want = [
            (ky * dilation[0] - padding[0], (kx * dilation[1] - padding[1]) * channels + c)
            for ky in range(kernel[0]) for kx in range(kernel[1]) for c in range(channels)
        ]  # fmt: skip
        got = []
        for tile in tiles:
            assert tile.start == len(got) and 1 <= tile.k <= rows and 1 <= len(tile.segments) <= ports
            at = 0
            for s in tile.segments:
                assert s.lo == at and s.hi > s.lo
                got += [(s.y, s.x + i) for i in range(s.hi - s.lo)]
                at = s.hi
            assert at == tile.k
        assert got == want


def test_conv_tiles_avoid_second_reads() -> None:
    """With many channels a tile across two lines would take two reads a row; with one channel it saves tiles."""
    assert all(len(t.segments) == 1 for t in conv_tiles((3, 3), 20, 1, (1, 1), (1, 1), 16, 4, 16))
    few = conv_tiles((3, 3), 1, 1, (1, 1), (1, 1), 8, 4, 8)
    assert len(few) == 2 and few[0].segments == (Segment(0, 3, -1, -1), Segment(3, 6, -1, 0), Segment(6, 8, -1, 1))


def test_pack_tiles() -> None:
    w = np.arange(5 * 3, dtype=np.int8).reshape(5, 3)
    data = np.frombuffer(pack_tiles(w, [(0, 2), (2, 3)], 4, 2), np.int8).reshape(2, 2, 4, 2)
    assert np.array_equal(data[0, 1, :3], w[2:5, :2]) and not data[0, 1, 3].any()
    assert np.array_equal(data[1, 0, :2, 0], w[:2, 2]) and not data[1, 0, :, 1].any()


def test_window_runs_are_the_windows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(300):
        length, window, stride = (int(v) for v in rng.integers(1, 9, 3))
        pads = tuple(int(v) for v in rng.integers(0, window, 2))
        if length + sum(pads) < window:
            continue
        outputs = (length + sum(pads) - window) // stride + 1
        runs = window_runs(length, window, stride, pads, outputs)
        counts = numerics.window_count((length, 1), (window, 1), (stride, 1), (pads, (0, 0)))[:, 0]
        sizes = [run.size for run in runs for _ in range(run.count)]
        starts = [run.start + i * stride for run in runs for i in range(run.count)]
        assert sizes == counts.tolist()
        assert starts == [max(o * stride - pads[0], 0) for o in range(outputs)]
        assert [run.first for run in runs] == [sum(r.count for r in runs[:i]) for i in range(len(runs))]
