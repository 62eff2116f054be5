"""Random ops of every kind whose operands lie inside the arena."""

from __future__ import annotations

import math
import random
import struct
from dataclasses import dataclass

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import AccMode, Op, Reduce, Requant, Residual, Source, Unit

from .arena import Arena, Window
from .tree import Address, Block, Loop, Node, Setup

__all__ = ["Operands", "Style"]

_TOP = (1 << isa.STRIDE_BITS - 1) - 1


@dataclass(frozen=True)
class Style:
    """What a whole program prefers, so that programs differ from each other.

    Attributes
    ----------
    float_share
        Share of float requantisations and residuals among those that narrow.
    most_rows
        Rows of an op at most.
    plain
        Share of ops with small, ordinary shapes.
    """

    float_share: float
    most_rows: int
    plain: float


class Operands:
    """Makes ops.

    Parameters
    ----------
    params
        Parameter registers, which addresses may be relative to.
    """

    def __init__(self, config: ChipConfig, arena: Arena, rng: random.Random, style: Style, params: list[int]) -> None:
        self.config, self.arena, self.rng, self.style, self.params = config, arena, rng, style, params

    # -- addresses -----------------------------------------------------------------------------------------------
    def address(self, window: Window, low: int, high: int, around: list[Loop]) -> Address:
        """An address at which an op that reaches from ``low`` to ``high`` (exclusive) around it stays in a window."""
        rng = self.rng
        room = window.size - (high - low)
        assert room >= 0, (window, low, high)
        lowest = window.start - low
        out = Address(0, home=rng.randint(0, len(around)) if rng.random() < 0.8 else 0)
        moving = around[out.home :]
        if moving and room and rng.random() < 0.25:
            out.ring = rng.randint(1, room + 1)
            for level in range(isa.LOOP_LEVELS):
                out.strides[level] = rng.choice([0, 1, out.ring, rng.randint(0, out.ring)])
            out.base = lowest + rng.randint(0, room + 1 - out.ring)
        else:
            below = above = 0
            for loop in rng.sample(moving, len(moving)):
                steps = max(loop.count - 1, 0)
                most = (room - below - above) // steps if steps else _TOP
                stride = rng.choice([0, 1, -1, most, -most, rng.randint(-most, most)])
                stride = max(-most, min(most, stride))
                if stride:
                    out.strides[loop.level] = stride
                below, above = below + max(0, -stride * steps), above + max(0, stride * steps)
            out.base = lowest + below + rng.randint(0, room - below - above)
            if rng.random() < 0.2:  # of loops that are not open, or from before the register is set
                open_ = {loop.level for loop in moving}
                level = rng.randrange(isa.LOOP_LEVELS)
                if level not in open_:
                    out.strides[level] = rng.randint(-_TOP - 1, _TOP)
        if rng.random() < 0.15:
            out.param = rng.randrange(len(self.params))
        return out

    def counts(self, number: int, most: int) -> list[int]:
        """``number`` counts with a product of ``most`` at most; all of them 1 more often than chance would have it."""
        out = [1] * number
        if self.rng.random() < 0.08:
            return out
        for at in self.rng.sample(range(number), number):
            if self.rng.random() < 0.75:
                out[at] = self.rng.randint(1, max(1, most // math.prod(out)))
        return out

    def steps(self, counts: list[int], width: int, size: int) -> tuple[list[int], int, int]:
        """A stride per count, and from where to where the walk reaches, within ``size``; counts may become smaller."""
        rng = self.rng
        width = min(width, size)
        strides, low, high = [], 0, width
        for at, count in enumerate(counts):
            room = size - (high - low)
            if count > 1:
                most = room // (count - 1)
                dense = width * math.prod(counts[:at])
                stride = rng.choice([dense, dense, width, 0, -1, 1, most, -most, rng.randint(-most, most)])
                stride = max(-most, min(most, stride))
                low, high = low + min(0, stride * (count - 1)), high + max(0, stride * (count - 1))
            else:
                stride = rng.choice([0, rng.randint(-_TOP - 1, _TOP)])
            strides.append(stride)
        return strides, low, high

    # -- DMA -----------------------------------------------------------------------------------------------------
    def load(self, around: list[Loop]) -> Node:
        rng, arena = self.rng, self.arena
        if rng.random() < 0.2:
            return self._dma(Op.HBM_READ_SLICE, rng.choice([arena.clean]), arena.params, around)
        return self._dma(Op.HBM_READ_SLICE, rng.choice([arena.raw, arena.scratch]), rng.choice(arena.data), around)

    def store(self, around: list[Loop]) -> Node:
        source = self.rng.choice([*self.arena.data, self.arena.params])
        return self._dma(Op.HBM_WRITE_SLICE, self.arena.scratch, source, around)

    def _dma(self, op: Op, area: Window, window: Window, around: list[Loop]) -> Node:
        rng, size = self.rng, self.config.slice_bytes
        count = rng.randint(1, min(area.size, 4))
        row_bytes = rng.choice([rng.randint(1, 40), rng.randint(1, window.size)])
        row_bytes = min(row_bytes, count * size, window.size)
        rows = 1 if rng.random() < 0.1 else rng.randint(1, max(1, min(count * size // row_bytes, 40)))
        (pitch,), low, high = self.steps([rows], row_bytes, window.size)
        unit = Unit.LD if op is Op.HBM_READ_SLICE else Unit.ST
        pad = rng.randrange(256)
        return self.transfer(op, unit, count, row_bytes, rows, pitch, pad, {
            "hbm": self.address(area, 0, count, around), "vmem": self.address(window, low, high, around),
        })  # fmt: skip

    @staticmethod
    def transfer(
        op: Op, unit: Unit, count: int, row_bytes: int, rows: int, pitch: int, pad: int, at: dict[str, Address]
    ) -> Node:
        shape = {"unit": int(unit), "row_bytes": row_bytes, "rows": rows, "pitch": pitch, "pad": pad}
        return Node(op, {"count": count}, at, [(Op.DMA_SHAPE, shape)])

    # -- array ---------------------------------------------------------------------------------------------------
    @property
    def row_bytes(self) -> int:
        """Bytes of a row of activations."""
        return self.config.row_bytes

    def weights(self, around: list[Loop]) -> Node:
        rng, config = self.rng, self.config
        k = rng.choice([config.rows, rng.randint(1, config.rows)])
        n = rng.choice([config.col_bytes, rng.randint(1, config.col_bytes)])
        window = rng.choice(self.arena.data)
        while n + k - 1 > window.size:
            k = max(1, k // 2)
        (pitch,), low, high = self.steps([k], n, window.size)
        vmem = self.address(window, low, high, around)
        return Node(Op.LOAD_WEIGHTS, {"pitch": pitch, "k": k, "n": n}, {"vmem": vmem})

    def pulse(self, around: list[Loop], *, swap: bool, swap_first: int = 0) -> Node:
        rng = self.rng
        acc = rng.choice(self.arena.acc)
        rows = min(acc.size, self.style.most_rows)
        if rng.random() < 0.4:
            setups, vmem = self._image(rows, around)
        else:
            setups, vmem = self._walk(rows, around)
        shape = setups[0][1]
        used = shape["n0"] * shape["n1"] * shape["n2"]
        fields = {
            "swap": int(swap), "swap_first": swap_first, "acc_mode": int(rng.choice(list(AccMode))),
            "acc_first": rng.getrandbits(isa.LOOP_LEVELS) if rng.random() < 0.5 else 0,
        }  # fmt: skip
        addresses = {"vmem": vmem, "acc": self.address(acc, 0, used, around)}
        return Node(Op.PULSE_ARRAY, fields, addresses, setups)

    def _segments(self) -> list[tuple[int, int]]:
        """Array rows (bytes) of the segments: apart from each other, in any order, perhaps with gaps."""
        rng, rows = self.rng, self.row_bytes
        number = rng.randint(1, min(self.config.feed_ports, (rows + 1) // 2))
        cuts = sorted(rng.sample(range(rows + 1), 2 * number)) if 2 * number <= rows + 1 else [0, rows]
        if rng.random() < 0.5:  # without gaps
            cuts = [0, *sorted(rng.sample(range(1, rows), number - 1)), rows]
            out = list(zip(cuts, cuts[1:], strict=False))
        else:
            out = list(zip(cuts[::2], cuts[1::2], strict=True))
        rng.shuffle(out)
        return out

    def _walk(self, rows: int, around: list[Loop]) -> tuple[list[Setup], Address]:
        """Any walk; with padding, of a picture that has nothing to do with the addresses."""
        rng = self.rng
        window = rng.choice(self.arena.data)
        n0, n1, n2 = counts = self.counts(3, rows)
        segments = self._segments()
        pad = rng.random() < 0.4
        reach = window.size // 3
        setups, low, high = [], 0, 1
        for index, (lo, hi) in enumerate(segments):
            offset = rng.choice([lo, rng.randint(-reach, reach)])
            low, high = min(low, offset), max(high, offset + hi - lo)
            setups.append((Op.FEED_SEGMENT, {
                "index": index, "lo": lo, "hi": hi, "offset": offset,
                "x": rng.randint(-9, 9), "y": rng.randint(-3, 3)}))  # fmt: skip
        strides, below, above = self.steps(counts, 1, window.size - (high - low) + 1)
        shape = {
            "n0": n0, "n1": n1, "n2": n2, "s0": strides[0], "s1": strides[1], "s2": strides[2],
            "segments": len(segments), "pad": int(pad), "zero_point": rng.randint(-128, 127) if pad else 0,
            "x_step": rng.randint(0, 9), "y_step": rng.randint(0, 3), "line_bytes": rng.randint(0, 30),
            "height": rng.randint(0, 6),
        }  # fmt: skip
        vmem = self.address(window, low + below, high + above - 1, around)
        return [(Op.FEED_SHAPE, shape), *setups], vmem

    def _image(self, rows: int, around: list[Loop]) -> tuple[list[Setup], Address]:
        """Taps of a convolution: lines of an image of which the padding is read from nowhere."""
        rng, config = self.rng, self.config
        window = rng.choice(self.arena.data)
        channels = rng.randint(1, min(5, self.row_bytes))
        width, height = rng.randint(1, 7), rng.randint(1, 6)
        while width * height * channels > window.size:
            width, height = max(1, width - 1), max(1, height - 1)
        line = width * channels
        images = rng.randint(1, max(1, min(2, window.size // (line * height))))
        stride_x, stride_y, dilation = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 2)
        pad_x, pad_y = rng.randint(0, 2), rng.randint(0, 2)
        n0, n1 = rng.randint(1, 5), rng.randint(1, 4)
        n2 = images
        while n0 * n1 * n2 > rows:
            n0, n1, n2 = max(1, n0 - 1), max(1, n1 - 1), max(1, n2 - 1)
        setups: list[Setup] = []
        at = 0
        for index in range(rng.randint(1, min(config.feed_ports, self.row_bytes))):
            left = self.row_bytes - at
            if not left:
                break
            run = rng.randint(1, left)
            tap_y, tap_x = index * dilation - pad_y, rng.randint(-1, 1) - pad_x
            setups.append((Op.FEED_SEGMENT, {
                "index": index, "lo": at, "hi": at + run, "offset": tap_y * line + tap_x * channels,
                "x": tap_x * channels, "y": tap_y}))  # fmt: skip
            at += run
        shape = {
            "n0": n0, "n1": n1, "n2": n2, "s0": stride_x * channels, "s1": stride_y * line, "s2": line * height,
            "segments": len(setups), "pad": 1, "zero_point": rng.randint(-128, 127), "x_step": stride_x * channels,
            "y_step": stride_y, "line_bytes": line, "height": height,
        }  # fmt: skip
        # Inside of the picture the bytes of image i are at base + i*s2 + y*line + x: all of them lie in the window.
        vmem = self.address(window, 0, n2 * line * height, around)
        return [(Op.FEED_SHAPE, shape), *setups], vmem

    # -- vector unit ---------------------------------------------------------------------------------------------
    def first_vectors(self) -> Block:
        """What the vector unit wants once before everything else."""
        return [self.load_params([]), self.vector([])]

    def read_out(self, acc: Window, window: Window) -> Node:
        """All 32 bits of accumulators, to the begin of a window."""
        shape = {"n0": 1, "n1": 1, "n2": acc.size, "n3": 1, "s2": 1, "d2": 4 * self.config.cols}
        return Node(Op.VECTOR, {}, {"src": Address(acc.start), "dst": Address(window.start)},
                    [(Op.VECTOR_SHAPE, shape), (Op.VECTOR_MODE, {"wide": 1, "cols": self.config.cols})])  # fmt: skip

    def load_params(self, around: list[Loop]) -> Node:
        return Node(Op.LOAD_PARAMS, {}, {"vmem": self.address(self.arena.params, 0, self.config.param_bytes, around)})

    def vector(self, around: list[Loop]) -> Node:
        rng, arena, config = self.rng, self.arena, self.config
        plain = rng.random() < self.style.plain
        cols = rng.choice([config.cols, rng.randint(1, config.cols)])
        wide = rng.random() < 0.25
        reduce = Reduce.NONE if plain else rng.choice(list(Reduce))
        source = rng.choice(list(Source))
        target, *others = rng.sample(arena.data, 3)
        n0, n1 = (1, 1) if reduce is Reduce.NONE else self.counts(2, 12)
        n2, n3 = self.counts(2, self.style.most_rows)
        width = cols * (4 if wide else 1)
        while n2 * n3 * width > target.size:
            n2, n3 = max(1, n2 // 2), max(1, n3 // 2)
        (d2, d3), low, high = self.steps([n2, n3], width, target.size)
        at = {"dst": self.address(target, low, high, around)}
        window = rng.choice(arena.acc) if source is Source.ACC else others[0]
        strides, low, high = self.steps([n0, n1, n2, n3], 1 if source is Source.ACC else cols, window.size)
        at["src"] = self.address(window, low, high, around)
        shape = {"n0": n0, "n1": n1, "n2": n2, "n3": n3, "d2": d2}
        shape |= {f"s{i}": stride for i, stride in enumerate(strides)}
        mode = self._mode(cols, wide, source, reduce, n0 * n1, plain) | {"d3": d3}
        setups: list[Setup] = [(Op.VECTOR_SHAPE, shape), (Op.VECTOR_MODE, mode)]
        if mode["residual"]:
            (r2, r3), low, high = self.steps([n2, n3], cols, others[1].size)
            at["res"] = self.address(others[1], low, high, around)
            setups.append((Op.VECTOR_RESIDUAL, {"r2": r2, "r3": r3, **self._residual()}))
        return Node(Op.VECTOR, {}, at, setups)

    def _mode(self, cols: int, wide: bool, source: Source, reduce: Reduce, window: int, plain: bool) -> dict[str, int]:
        rng = self.rng
        if rng.random() < self.style.float_share:
            requant, residual = Requant.FLOAT, Residual.FLOAT
        else:
            requant, residual = rng.choice([Requant.FIXED, Requant.FIXED, Requant.FIXED_AWAY]), Residual.FIXED
        if rng.random() < 0.1:
            requant = Requant.BYPASS
        spread = (3000 if source is Source.ACC else 75) * (window if reduce is Reduce.SUM else 1)
        multiplier, shift = self._scale(requant is Requant.FLOAT, 60 / spread)
        lo, hi = sorted(rng.sample(range(-128, 128), 2)) if rng.random() < 0.3 else (-128, 127)
        return {
            "source": int(source), "reduce": int(reduce), "bias": int(rng.random() < 0.4), "requant": int(requant),
            "per_channel": int(rng.random() < 0.4), "multiplier": multiplier, "shift": shift,
            "source_zero_point": 0 if plain else rng.randint(-128, 127),
            "zero_point": rng.choice([0, rng.randint(-128, 127)]), "lo": lo, "hi": hi, "wide": int(wide),
            "relu": rng.getrandbits(1), "cols": cols, "residual": int(residual) if rng.random() < 0.35 else 0,
        }  # fmt: skip

    def _residual(self) -> dict[str, int]:
        rng = self.rng
        out = {"zero_point2": rng.randint(-128, 127), "zero_point_out": rng.randint(-128, 127)}
        # Both dialects read the words; which one is in VECTOR_MODE, and so fp32 ratios suit one half of the cases.
        as_float = rng.random() < self.style.float_share
        for name, shift, scale in (("m1", "shift1", 0.7), ("m2", "shift2", 0.7), ("mo", "shifto", 2.0**-20)):
            out[name], out[shift] = self._scale(as_float, scale)
        return out

    def _scale(self, as_float: bool, about: float) -> tuple[int, int]:
        """Multiplier and shift that scale by something like ``about``; any bits now and then."""
        rng = self.rng
        if rng.random() < 0.1:
            return rng.getrandbits(32), rng.choice([0, 1, 62, rng.randint(0, 62)])
        scale = about * rng.uniform(0.3, 2.0)
        if as_float:
            return struct.unpack("<I", struct.pack("<f", scale))[0], rng.randint(0, 62)
        shift = 31
        while scale < 0.5 and shift < 62:
            scale, shift = scale * 2, shift + 1
        while scale >= 1:
            scale, shift = scale / 2, shift - 1
        return int(scale * (1 << 31)), shift
