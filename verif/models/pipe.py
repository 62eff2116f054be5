"""Passes of vector programs on the simulated pipe of lanes."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

import numpy as np

from sluice.golden.vector_ops import Reduction
from sluice.golden.vector_program import Pass, Step, resolve, run, store
from sluice_hw.vpu.alu import AluLane
from sluice_hw.vpu.function import FunctionLane
from sluice_hw.vpu.pipe import FloatPipe, pass_layout
from sluice_hw.vpu.reduce import ReduceLane, RowReducer
from verif.models.trace import Traced

__all__ = ["PipeModel"]

class PipeModel:
    """A :class:`FloatPipe` that runs programs as golden does.

    Parameters
    ----------
    cols
        Lanes.
    seed
        Of the bubbles between blocks, and of what stands on ports that do not count.
    """

    def __init__(self, *, cols: int, emission: str = "loop", seed: int = 1, bubbles: float = 0.2) -> None:
        self.cols, self.bubbles = cols, bubbles
        self.reduce_latency = RowReducer(cols=cols).latency
        self.dut = Traced(FloatPipe(cols=cols, emission=emission), name=f"pipe-{cols}-{emission}", opt="-O0")
        self.rng = np.random.default_rng(seed)
        #: Cycles in which blocks entered, and blocks, of all passes.
        self.cycles = self.blocks = 0

    def __enter__(self) -> PipeModel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.dut.__exit__(*exc)

    def run(self, program: Sequence[Step], memory: MutableMapping[str, np.ndarray], *, rows: int = 128) -> None:
        """As :func:`sluice.golden.vector_program.run`; matmuls are golden's."""
        for step in program:
            if isinstance(step, Pass):
                self._pass(step, memory)
            else:
                run([step], memory, lanes=self.cols, rows=rows)

    def _order(self, rows: int, blocks: int, spaced: bool) -> list[tuple[int, int, int] | None]:
        """Row, block and slot by cycle: eight rows by turns where their blocks must keep apart."""
        group = ReduceLane.SLOTS if spaced else 1
        out: list[tuple[int, int, int] | None] = []
        for start in range(0, rows, group):
            members = range(start, min(start + group, rows))
            for block in range(blocks):
                wait = ReduceLane.REVISIT - len(members) if spaced and block else 0
                out += [None] * max(wait, 0)
                for row in members:
                    while self.rng.random() < self.bubbles:
                        out.append(None)
                    out.append((row, block, row - start))
        return out

    def _pass(self, step: Pass, memory: MutableMapping[str, np.ndarray]) -> None:
        operands = resolve(step, memory)
        source, cols, rng = operands.source, self.cols, self.rng
        rows, width = source.shape
        blocks = -(-width // cols)
        counts = np.full(rows, width) if operands.keep is None else operands.keep.sum(axis=1)
        order = self._order(rows, blocks, step.reduce is not None)
        self.cycles, self.blocks = self.cycles + len(order), self.blocks + rows * blocks
        latency = (step.first is not None) * AluLane.LATENCY + (step.function is not None) * FunctionLane.LATENCY
        cycles = len(order) + FloatPipe.MAX_LATENCY + self.reduce_latency + 2

        data = {name: rng.integers(0, 1 << 32, (cycles, cols), dtype=np.uint32)
                for name in ("a", "b", "c", "second_b", "second_c")}  # fmt: skip
        ports = {"in_valid": np.zeros(cycles, int), "first": rng.integers(0, 2, cycles),
                 "last": rng.integers(0, 2, cycles), "slot": rng.integers(0, ReduceLane.SLOTS, cycles),
                 "base": rng.integers(0, 99, cycles), "count": rng.integers(0, cols + 1, cycles)}  # fmt: skip
        padded = np.zeros((rows, blocks * cols - width), np.uint32)

        def blocks_of(x: np.ndarray) -> np.ndarray:
            return np.concatenate([x, padded], axis=1).reshape(rows, blocks, cols)

        early = [("a", source), *zip(("b", "c"), operands.first or (), strict=False)]
        late = [*zip(("second_b", "second_c"), operands.second or (), strict=False)]
        shaped = {name: blocks_of(x) for name, x in early + late}
        for cycle, entry in enumerate(order):
            if entry is None:
                continue
            row, block, slot = entry
            for name, _ in early:
                data[name][cycle] = shaped[name][row, block]
            for name, _ in late:
                data[name][cycle + latency] = shaped[name][row, block]
            said = {"in_valid": 1, "first": block == 0, "last": block == blocks - 1, "slot": slot,
                    "base": block * cols, "count": min(max(int(counts[row]) - block * cols, 0), cols)}  # fmt: skip
            for name, value in said.items():
                ports[name][cycle] = value

        fields = {"use_first": step.first is not None, "use_function": step.function is not None,
                  "use_second": step.second is not None, "bf16": step.bf16, "use_reduce": step.reduce is not None,
                  "first_op": step.first.op if step.first else 0, "function": step.function or 0,
                  "second_op": step.second.op if step.second else 0,
                  "reduction": step.reduce.op if step.reduce else 0}  # fmt: skip
        word = pass_layout().const({name: int(value) for name, value in fields.items()}).as_value().value
        out = self.dut.run({
            **ports, "mode": np.full(cycles, word), **{name: x.view(np.uint8) for name, x in data.items()}
        })  # fmt: skip

        entries = [entry for entry in order if entry is not None]
        stored = np.flatnonzero(out["out_valid"])
        assert len(stored) == len(entries), f"{len(stored)} of {len(entries)} blocks came out"
        asked = np.flatnonzero(out["second_valid"])
        wanted = [cycle + latency for cycle, entry in enumerate(order) if entry is not None]
        assert asked.tolist() == (wanted if step.second else [])
        if step.dst is not None:
            result = np.zeros((rows, blocks, cols), np.uint32)
            for cycle, (row, block, _) in zip(stored, entries, strict=True):
                result[row, block] = np.atleast_1d(out["row"][cycle]).copy().view(np.uint32)
            store(memory, step, result.reshape(rows, -1)[:, :width])
        ends = np.flatnonzero(out["reduced_valid"])
        if step.reduce is None:
            assert not len(ends)
            return
        finished = [row for row, block, _ in entries if block == blocks - 1]
        assert len(ends) == len(finished) == rows
        values = np.zeros(rows, np.uint32)
        values[finished] = out["index" if step.reduce.op is Reduction.ARGMAX else "value"][ends]
        memory[step.reduce.dst] = values
