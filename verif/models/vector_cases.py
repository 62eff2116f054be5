"""Vector programs with inputs: transformers' operations on rows of all kinds of lengths, for golden and chips alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sluice.golden import transformer
from sluice.golden.columns import column_sum, depthwise
from sluice.golden.vector_ops import AluOp, Reduction
from sluice.golden.vector_program import Alu, Column, Mask, Matmul, Part, Pass, Reduce, Row, Step, run
from sluice.vector import Tensor, VectorProgram, compile_program
from sluice.vector.layer import random_weights, rows_of, to_bf16
from sluice_hw.config import ChipConfig
from verif.system.configs import FLOAT_CONFIGS

__all__ = ["TINY", "WIDE", "Case", "cases", "encoder_case", "golden_results"]

TINY = FLOAT_CONFIGS["tiny-bf16"]
#: More lanes than rows, neither a power of two.
WIDE = ChipConfig(name="wide-bf16", dtype="bf16", pe_latency=2, rows=6, cols=12, vmem_bytes=1 << 17, acc_bytes=96 * 480)


@dataclass(frozen=True)
class Case:
    """A program, its inputs, names of those that are bf16, and the results that are compared."""

    name: str
    steps: list[Step]
    inputs: dict[str, np.ndarray]
    bf16: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("y",)

    def compile(self, config: ChipConfig) -> VectorProgram:
        """Its microcode."""
        tensors = {name: Tensor(x.shape, name in self.bf16) for name, x in self.inputs.items()}
        return compile_program(self.steps, tensors, config, outputs=self.outputs)


def golden_results(case: Case, config: ChipConfig) -> dict[str, np.ndarray]:
    """What tensor-level golden gives: uint32 patterns."""
    memory = dict(case.inputs)
    run(case.steps, memory, lanes=config.cols, rows=config.rows)
    return {name: np.asarray(memory[name]).view(np.uint32) for name in case.outputs}


def encoder_case(
    x: np.ndarray, weights: dict[str, np.ndarray], heads: int, *, causal: bool = False, lanes: int | None = None
) -> Case:
    """An encoder layer, for a unit of ``lanes`` or for any."""
    sequence, hidden = x.shape
    given = {f"w.{name}": to_bf16(w) if w.ndim == 2 else w for name, w in weights.items()}
    steps = transformer.encoder_layer("x", "y", weights="w.", sequence=sequence, hidden=hidden, heads=heads,
                                      causal=causal, lanes=lanes)  # fmt: skip
    halves = ("x", *[name for name, w in given.items() if w.ndim == 2])
    return Case(f"encoder {sequence}x{hidden}{' causal' if causal else ''}", steps, {"x": to_bf16(x), **given}, halves)


def cases(seed: int) -> Iterator[Case]:
    """All operations, small."""
    rng = np.random.default_rng(seed)
    for rows, width in ((1, 1), (10, 1), (9, 8), (11, 17), (3, 40)):
        x = rows_of(rng, rows, width, 6.0)
        x[0] = -np.inf
        x[-1] = 2.5
        if rows > 4:
            x[1, 0], x[2, -1] = np.nan, np.inf
        gamma, beta = rows_of(rng, 2, width)
        size = f"{rows}x{width}"
        yield Case(f"softmax {size}", transformer.softmax("x", "y", scale=0.5), {"x": x})
        yield Case(f"masked softmax {size}", transformer.softmax("x", "y", mask=Mask(0, 2), bf16=True), {"x": x})
        x = rows_of(rng, rows, width)
        x[-1] = 7.0
        norm = transformer.layer_norm("x", "y", size=width, gamma="g", beta="b")
        yield Case(f"LayerNorm {size}", norm, {"x": x, "g": gamma, "b": beta})
        norm = transformer.rms_norm("x", "y", size=width, gamma="g", bf16=True)
        yield Case(f"RMSNorm {size}", norm, {"x": to_bf16(x), "g": gamma}, ("x",))
        yield Case(f"GELU {size}", transformer.gelu("x", "y", bias="b"), {"x": x, "b": beta})
    for rows, size in ((5, 2), (9, 12), (3, 34)):
        x, y = to_bf16(rows_of(rng, rows, size)), np.zeros((rows, size), np.float32)
        cos, sin = rows_of(rng, rows, size // 2), rows_of(rng, rows, size // 2)
        steps = transformer.rotary("x", "y", size=size, cos="cos", sin="sin")
        yield Case(f"rotary {rows}x{size}", steps, {"x": x, "cos": cos, "sin": sin, "y": y}, ("x",))
        steps = transformer.rotary("x", "y", size=size, cos="cos", sin="sin", bf16=True)
        yield Case(f"rotary bf16 {rows}x{size}", steps, {"x": x, "cos": cos, "sin": sin, "y": y}, ("x", "y"))
    for queries, keys, size in ((1, 1, 4), (5, 9, 8), (3, 21, 10), (17, 17, 3)):
        q, k, v = (to_bf16(rows_of(rng, n, size, 1.0)) for n in (queries, keys, keys))
        inputs = {"q": q, "k": k, "v": v}
        for causal in (False, True):
            steps = transformer.attention("q", "k", "v", "y", size=size, causal=causal, past=keys - queries)
            name = f"{'causal ' if causal else ''}attention {queries}x{keys}x{size}"
            yield Case(name, steps, inputs, ("q", "k", "v"), ("y", "y.weights"))
    steps = transformer.attention("q", "k", "v", "y", size=3, causal=True, queries=17, at_once=7)
    yield Case("attention by parts", steps, inputs, ("q", "k", "v"))
    yield Case("LayerNorm by rows", transformer.by_rows(_norm_of_rows, "y", rows=70, cols=33, at_once=32),
               {"x": rows_of(rng, 70, 33), "g": rows_of(rng, 1, 33)[0], "b": rows_of(rng, 1, 33)[0]})  # fmt: skip
    for rows in (1, 2, 7):
        yield Case(f"column sum {rows}", column_sum("x", "y", rows=rows, cols=11), {"x": rows_of(rng, rows, 11)})
    for stride in (1, 2):
        inputs = {"x": to_bf16(rows_of(rng, 30, 9)), "w": rows_of(rng, 9, 9), "b": rows_of(rng, 1, 9)[0]}
        steps = depthwise("x", "y", height=5, width=6, channels=9, kernel=(3, 3), taps="w", stride=stride, bias="b")
        yield Case(f"depthwise by {stride}", steps, inputs, ("x",))
    yield from _odd(rng)
    for causal in (False, True):
        yield encoder_case(rows_of(rng, 5, 12, 1.0), random_weights(rng, 12), 3, causal=causal)
    yield encoder_case(rows_of(rng, 24, 8, 1.0), random_weights(rng, 8), 2, lanes=24)


def _norm_of_rows(rows: tuple[int, int], dst: str) -> list[Step]:
    return transformer.layer_norm(Part("x", 0, 33, rows=rows), dst, size=33, gamma="g", beta="b", bf16=True)


def _odd(rng: np.random.Generator) -> Iterator[Case]:
    """What the operations above do not have."""
    x, y, row = rows_of(rng, 9, 13), rows_of(rng, 9, 13), rows_of(rng, 1, 13)[0]
    column = rows_of(rng, 9, 1)[:, 0]
    given = {"x": x, "y0": y, "row": row, "c": column}
    steps: list[Step] = [
        Pass("x", first=Alu(AluOp.MUL_ADD, "y0", Row("row")), second=Alu(AluOp.MUL_SUB, Column("c"), 0.25), dst="z",
             reduce=Reduce(Reduction.ARGMAX, "i"), mask=Mask(2, 1)),
        Pass("z", first=Alu(AluOp.SELECT, 3.0, "y0"), dst="y", bf16=True),
        Pass(Part("z", 3, 11), first=Alu(AluOp.ADD, Part(Row("row"), 5, 13)), dst="part"),
        Pass("i", first=Alu(AluOp.I_TO_FP32), dst="i"),
        Pass("c", first=Alu(AluOp.MUL, "i"), dst="ci"),
        Pass(Part("x", 0, 5), first=Alu(AluOp.NEG), dst=Part("y0", 8, 13)),  # the rest of y0 stays
    ]  # fmt: skip
    yield Case("stages", steps, given, outputs=("y", "z", "part", "i", "ci", "y0"))
    steps = [Pass(Part("x", 0, 5), first=Alu(AluOp.NEG), dst=Part("y0", 8, 13))]
    yield Case("a part", steps, {"x": x, "y0": y}, outputs=("y0",))
    a, b = to_bf16(rows_of(rng, 7, 20)), to_bf16(rows_of(rng, 20, 15))
    steps = [
        Matmul("p", "a", "b"), Matmul("t", "a", "bt", transposed=True),
        Pass("p", first=Alu(AluOp.SUB, "t"), dst="y"),
        Pass("p", dst="h", bf16=True), Matmul("s", "h", "h", transposed=True),
        Matmul("u", Part("a", 0, 13), Part("bt", 0, 13), transposed=True),
        Matmul("u", Part("a", 13, 20), Part("bt", 13, 20), transposed=True, add=True),
    ]  # fmt: skip
    given = {"a": a, "b": b, "bt": np.ascontiguousarray(b.T)}
    yield Case("matmuls", steps, given, ("a", "b", "bt"), ("p", "t", "y", "s", "u"))
