"""Random ops of chips of bf16: passes of the floating-point vector unit, transposed blocks and weights."""

from __future__ import annotations

import copy
import struct
from collections.abc import Sequence

from sluice.asm.pass_mode import needed_streams
from sluice_hw import isa
from sluice_hw.functions import Function
from sluice_hw.isa import Format, Op, Operand, Source, Stream
from sluice_hw.vector_ops import AluOp, Reduction

from .arena import Window
from .operands import Operands
from .tree import Address, Block, Loop, Node, stream_key

__all__ = ["FloatOperands"]

#: Constants that say something to fp32 operations; any bits come up as well.
_CONSTANTS = (0.0, 1.0, -1.0, 0.5, -2.0, 3.14, 1e-20, float("inf"), float("-inf"))


class FloatOperands(Operands):
    """Makes ops of chips of bf16."""

    #: The pass before, when its streams may be used again as they are.
    _last: Node | None = None
    #: Whether the tile in the array, and the one that was loaded last, are of int8 (on chips of int8+bf16).
    int8 = next_int8 = False

    def first_vectors(self) -> Block:
        return [self.vector([])]

    def read_out(self, acc: Window, window: Window) -> Node:
        shape = {"rows": acc.size, "blocks": 1, "tail": self.config.cols}
        streams = {Stream.SOURCE: ({"memory": int(Source.ACC), "row_step": 1}, Address(acc.start)),
                   Stream.RESULT: ({"memory": int(Source.VMEM), "row_step": 4 * self.config.cols},
                                   Address(window.start))}  # fmt: skip
        return self._node(shape, {"store": 1}, streams)

    @staticmethod
    def _node(
        shape: dict[str, int], mode: dict[str, int], streams: dict[Stream, tuple[dict[str, int], Address]]
    ) -> Node:
        node = Node(Op.VECTOR_PASS, setups=[(Op.PASS_SHAPE, shape), (Op.PASS_MODE, mode)])
        for stream, (fields, address) in streams.items():
            fields = {"stream": int(stream), **fields}
            node.setups.append((Op.PASS_STREAM, fields))
            node.addresses[stream_key(fields)] = address
        return node

    # -- array ---------------------------------------------------------------------------------------------------
    @property
    def row_bytes(self) -> int:
        return self.config.rows if self.int8 else self.config.row_bytes

    def pulse(self, around: list[Loop], *, swap: bool, swap_first: int = 0) -> Node:
        if swap:
            self.int8 = self.next_int8
        node = super().pulse(around, swap=swap, swap_first=swap_first)
        return self._of_type(node)

    def _of_type(self, node: Node) -> Node:
        if self.int8 if node.op is Op.PULSE_ARRAY else self.next_int8:
            node.fields["int8"] = 1
        return node

    def weights(self, around: list[Loop]) -> Node:
        """A tile; of the other type outside of loops only, where what is in the array is known."""
        if self.config.both:
            self.next_int8 = self.int8 if around else self.rng.random() < 0.5
        if self.next_int8 or self.rng.random() < 0.6:
            node = self._of_type(super().weights(around))
            if self.next_int8:
                node.fields["n"] = min(node.fields["n"], self.config.cols)
            return node
        rng, config = self.rng, self.config
        k = rng.choice([config.rows, rng.randint(1, config.rows)])
        columns = rng.choice([config.cols, rng.randint(1, config.cols)])
        window = rng.choice(self.arena.data)
        while 2 * k + columns - 1 > window.size:
            k, columns = max(1, k // 2), max(1, columns // 2)
        (pitch,), low, high = self.steps([columns], 2 * k, window.size)
        vmem = self.address(window, low, high, around)
        return Node(Op.LOAD_WEIGHTS, {"pitch": pitch, "k": k, "n": 2 * columns, "transpose": 1}, {"vmem": vmem})

    # -- vector unit ---------------------------------------------------------------------------------------------
    def transpose(self, around: list[Loop]) -> Node:
        """A block to anywhere, also on top of itself."""
        rng, most = self.rng, max(self.config.rows, self.config.cols)
        k, n = (rng.choice([most, rng.randint(1, most)]) for _ in range(2))
        source, target = (rng.choice(self.arena.data) for _ in range(2))
        while 2 * k > target.size or 2 * n > source.size:
            k, n = max(1, k // 2), max(1, n // 2)
        (src_pitch,), low, high = self.steps([k], 2 * n, source.size)
        src = self.address(source, low, high, around)
        (dst_pitch,), low, high = self.steps([n], 2 * k, target.size)
        dst = self.address(target, low, high, around)
        fields = {"src_pitch": src_pitch, "dst_pitch": dst_pitch, "k": k, "n": n}
        return Node(Op.TRANSPOSE, fields, {"src": src, "dst": dst})

    def vector(self, around: list[Loop]) -> Node:
        """A VECTOR_PASS; now and then one that differs from the one before in its mode only."""
        node = self._again() if self.rng.random() < 0.25 else None
        if node is None:
            node = self._pass(around)
        self._last = node
        return node

    def _again(self) -> Node | None:
        """The streams of the last pass, of which each serves as before."""
        last = self._last
        if last is None or not all(address.fixed for address in last.addresses.values()):
            return None
        node = Node(Op.VECTOR_PASS, addresses=copy.deepcopy(last.addresses), setups=copy.deepcopy(last.setups))
        mode = node.setups[1][1]
        for name in ("first_op", "second_op"):
            mode[name] = self._op()
        mode |= {"function": self._function(), "k0": self._constant(), "k1": self._constant()}
        return node

    def _pass(self, around: list[Loop]) -> Node:
        rng, arena, cols = self.rng, self.arena, self.config.cols
        target, *others = rng.sample(arena.data, len(arena.data))
        written, other = rng.sample(arena.acc, 2)
        most = min(written.size, 2 * self.style.most_rows)
        rows = rng.choice([1, 8, rng.randint(1, most), rng.randint(1, most)])
        blocks = rng.choice([1, 1, 2, 3, rng.randint(1, 6)])
        tail = rng.choice([cols, rng.randint(1, cols)])
        mode = self._mode()
        reduced_rows = -(-rows // cols)
        used = needed_streams(mode)
        streams: dict[Stream, tuple[dict[str, int], Address]] = {}
        if Stream.REDUCED in used:
            end = Window(written.end - reduced_rows, reduced_rows)
            streams[Stream.REDUCED] = {"memory": rng.getrandbits(1)}, self.address(end, 0, reduced_rows, around)
            written = Window(written.start, written.size - reduced_rows)
        if Stream.COLUMN in used:
            streams[Stream.COLUMN] = {}, self.address(other, 0, reduced_rows, around)
        in_place = Stream.RESULT in used and rng.random() < 0.25
        for stream in (Stream.SOURCE, Stream.X, Stream.Y, Stream.RESULT):
            if stream not in used or stream in streams:
                continue
            mine = stream is Stream.RESULT or (in_place and stream is Stream.SOURCE)
            vmem = rng.random() < 0.5 or (mine and written.size < 1)
            window = (target if vmem else written) if mine else (rng.choice(others) if vmem else other)
            form = Format(rng.choice(list(Format)))
            width = (cols if blocks > 1 else tail) * form.size if vmem else 1
            while width > window.size:
                form = Format(form + 1)
                width = cols * form.size
            dense = in_place and mine
            if dense:
                rows, blocks, steps, low, high = self._dense(rows, blocks, width, window.size)
            elif rng.random() < 0.5:
                (b, r), low, high = self.steps([blocks, rows], width, window.size)
                steps = (r, b)
            else:
                steps, low, high = self.steps([rows, blocks], width, window.size)
            place = {"memory": int(Source.VMEM if vmem else Source.ACC), "format": int(form), "row_step": steps[0],
                     "block_step": steps[1]}  # fmt: skip
            streams[stream] = place, self.address(window, low, high, around)
            if dense:
                streams[Stream.RESULT] = dict(place), streams[stream][1]
        shape = {"rows": rows, "blocks": blocks, "tail": tail, **self._mask(blocks, cols)}
        return self._node(shape, mode, dict(sorted(streams.items(), key=lambda item: rng.random())))

    def _dense(
        self, rows: int, blocks: int, width: int, size: int
    ) -> tuple[int, int, Sequence[int], int, int]:  # fmt: skip
        """Steps of blocks that do not overlap; fewer rows and blocks where there is no room."""
        while rows * blocks * width > size:
            rows, blocks = (rows // 2, blocks) if rows > 1 else (rows, blocks - 1)
        gap = self.rng.randint(0, (size - rows * blocks * width) // (rows * blocks))
        step = width + gap
        steps = (blocks * step, step) if self.rng.random() < 0.5 else (step, rows * step)
        if self.rng.random() < 0.3:
            high = (rows * blocks - 1) * step + width
            return rows, blocks, (-steps[0], -steps[1]), width - high, width
        return rows, blocks, steps, 0, (rows * blocks - 1) * step + width

    def _mask(self, blocks: int, cols: int) -> dict[str, int]:
        rng = self.rng
        if rng.random() < 0.6:
            return {}
        lanes = blocks * cols
        far = (1 << 23) - 1
        base = rng.choice([0, rng.randint(-lanes, 2 * lanes), rng.randint(0, lanes), far, -far - 1])
        step = rng.choice([0, 1, -1, rng.randint(-cols, cols), (1 << 16) - 1, -(1 << 16)])
        return {"masked": 1, "mask_base": base, "mask_step": step}

    def _op(self) -> int:
        return int(self.rng.choice(list(AluOp)))

    def _function(self) -> int:
        return int(self.rng.choice(list(Function)))

    def _constant(self) -> int:
        value = self.rng.choice([*_CONSTANTS, self.rng.uniform(-4, 4), None])
        return self.rng.getrandbits(32) if value is None else struct.unpack("<I", struct.pack("<f", value))[0]

    def _mode(self) -> dict[str, int]:
        """Any arithmetic; each stream serves one ALU, for one operand or both."""
        rng = self.rng
        streams = [Operand.X, Operand.Y, Operand.COLUMN]
        rng.shuffle(streams)
        cut = rng.randint(0, len(streams))
        out = {"k0": self._constant(), "k1": self._constant(), "function": self._function()}
        for name, mine in (("first", streams[:cut]), ("second", streams[cut:])):
            allowed = [Operand.K0, Operand.K1, *mine, *mine]
            # An ALU that is not used may say anything.
            use = rng.random() < 0.7
            b, c = (int(rng.choice(allowed if use else list(Operand))) for _ in range(2))
            out |= {f"use_{name}": int(use), f"{name}_op": self._op(), f"{name}_b": b, f"{name}_c": c}
        out["use_function"] = int(rng.random() < 0.4)
        out["use_reduce"] = int(rng.random() < 0.4)
        out["reduction"] = int(rng.choice(list(Reduction)))
        out["store"] = int(not out["use_reduce"] or rng.random() < 0.6)
        out["round"] = int(rng.random() < 0.3)
        return {f.name: out[f.name] for f in isa.OPS[Op.PASS_MODE].fields}
