"""Where a random program may read and write: windows in VMEM and the accumulators, areas of HBM, and HBM's contents."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from sluice_hw.config import ChipConfig

__all__ = ["Arena", "Window", "hbm_image", "make_arena"]

#: Blocks of parameters in the parameter window, and in a slice area of HBM.
PARAM_BLOCKS = 4


@dataclass(frozen=True)
class Window:
    """``size`` units (bytes, accumulator rows, slices) from ``start`` on."""

    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True)
class Arena:
    """All places of a program.

    Attributes
    ----------
    data
        Windows of VMEM with any bytes.
    params
        Window of VMEM that only holds what is good as parameters.
    acc
        Windows of accumulator rows.
    raw, clean, scratch, dump
        Areas of HBM in slices: any bytes; bytes that are good as parameters; read and written; results at the end.
    """

    data: tuple[Window, ...]
    params: Window
    acc: tuple[Window, ...]
    raw: Window
    clean: Window
    scratch: Window
    dump: Window

    @property
    def hbm(self) -> Window:
        """All areas, which stand one after the other."""
        return Window(self.raw.start, self.dump.end - self.raw.start)


def _apart(rng: random.Random, sizes: list[int], total: int, edges: list[int]) -> list[Window]:
    """Windows that do not overlap; some begin, end or lie across one of the ``edges``."""
    taken: list[Window] = []
    for size in sizes:
        for _ in range(200):
            edge = rng.choice(edges)
            start = rng.choice([edge, edge - size, edge - rng.randint(1, size), rng.randint(0, total - size)])
            window = Window(start, size)
            if 0 <= start and window.end <= total and all(w.end <= start or window.end <= w.start for w in taken):
                taken.append(window)
                break
        else:
            raise ValueError(f"no room for windows of {sizes} in {total}")
    return taken


def make_arena(config: ChipConfig, rng: random.Random) -> Arena:
    """Random places, often at the edges of banks, regions and memories."""
    total, cols = config.vmem_bytes, config.cols
    acc_rows = min(24, config.acc_rows // 4)
    widest = 4 * cols * acc_rows  # so that accumulators can be looked at
    budget = min(total // 2, 5 * max(widest, 400))
    sizes = [widest + rng.randint(0, 64)]
    while len(sizes) < 5:
        sizes.append(rng.randint(max(8 * cols, budget // 12), max(8 * cols + 1, budget // 5)))
    sizes.append(PARAM_BLOCKS * config.param_bytes + rng.randint(0, 15))
    edges = [0, total, *range(0, total, config.vmem_region_bytes)]
    *data, params = _apart(rng, sizes, total, edges)
    acc = _apart(rng, [acc_rows] * 2, config.acc_rows, [0, config.acc_region_rows, config.acc_rows])
    size = config.slice_bytes
    dump = sum(-(-w.size // size) for w in data) + sum(-(-4 * cols * w.size // size) for w in acc) + 2
    lengths = [rng.randint(4, 10), -(-2 * PARAM_BLOCKS * config.param_bytes // size) + 1, rng.randint(3, 8), dump]
    room = config.hbm_slices - sum(lengths)
    at = rng.choice([0, room, rng.randint(0, room)])
    areas = []
    for length in lengths:
        areas.append(Window(at, length))
        at += length
    return Arena(tuple(data), params, tuple(acc), *areas)


def hbm_image(arena: Arena, config: ChipConfig, seed: int) -> np.ndarray:
    """Contents of the program's slices (``arena.hbm``) when it starts, uint8."""
    rng = np.random.default_rng(seed)
    size = config.slice_bytes
    out = rng.integers(0, 256, arena.hbm.size * size, np.uint8)
    if config.is_float:
        _numbers(out, rng)
    blocks = []
    clean = arena.clean.size * size
    while sum(map(len, blocks)) < clean:
        blocks.append(_params(config.cols, rng))
    good = np.frombuffer(b"".join(blocks)[:clean], np.uint8).copy()
    good[good & 63 == 63] ^= 1  # any byte may be read as a shift, and 63 is none
    at = (arena.clean.start - arena.hbm.start) * size
    out[at : at + clean] = good
    return out


def _numbers(out: np.ndarray, rng: np.random.Generator) -> None:
    """Replace most of random bytes by what is a number of ordinary size, so that not all becomes infinite or NaN."""
    for start in range(0, len(out), 64):
        part = out[start : start + 64]
        kind = rng.random()
        if kind < 0.5:  # as fp32 and as bf16, from every byte on
            part[:] = rng.choice(_SOUND, len(part))
        elif kind < 0.65:
            part[:] = rng.normal(size=16).astype("<f4").view(np.uint8)[: len(part)]
        elif kind < 0.8:
            part[:] = (rng.normal(size=32).astype("<f4").view("<u4") >> 16).astype("<u2").view(np.uint8)[: len(part)]


#: Bytes of which any two or four are a number of ordinary size.
_SOUND = np.array([*range(0x3C, 0x44), *range(0xBC, 0xC4)], np.uint8)


def _params(cols: int, rng: np.random.Generator) -> bytes:
    """A block for LOAD_PARAMS: of the fixed dialect, of the float one, or anything."""
    bias = rng.integers(-20000, 20000, cols).astype("<i4")
    shift = rng.integers(0, 63, cols).astype(np.uint8)
    kind = rng.integers(5)
    if kind <= 1:
        multiplier = rng.integers(1 << 30, 1 << 31, cols).astype("<u4")
        shift = rng.integers(30, 42, cols).astype(np.uint8)
    elif kind <= 3:
        multiplier = (2.0 ** rng.uniform(-11, 0, cols)).astype("<f4").view("<u4")
    else:
        bias = rng.integers(-(1 << 31), 1 << 31, cols).astype("<i4")
        multiplier = rng.integers(0, 1 << 32, cols).astype("<u4")
    return bias.tobytes() + multiplier.tobytes() + shift.tobytes()
