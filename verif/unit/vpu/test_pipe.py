"""Whole passes, and transformers' operations as programs of them: hardware against golden, bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sluice.golden import transformer
from sluice.golden.functions import Function
from sluice.golden.vector_ops import AluOp, Reduction
from sluice.golden.vector_program import Alu, Column, Mask, Pass, Reduce, Row, run
from sluice.vector.layer import random_weights, rows_of, to_bf16
from sluice_hw.vpu.pipe import FloatPipe
from verif.models.pipe import PipeModel

COLS = 3  # an uneven number: the tree of the reduction holds an identity


@pytest.fixture(scope="module")
def pipe():
    with PipeModel(cols=COLS) as model:
        yield model


def same(pipe: PipeModel, program, memory: dict) -> None:
    """Run both from the same memory; every tensor must be the same in the end, also those in between."""
    wanted, got = dict(memory), dict(memory)
    run(program, wanted, lanes=COLS, rows=16)
    pipe.run(program, got, rows=16)
    assert set(got) == set(wanted)
    for name, tensor in wanted.items():
        assert np.array_equal(got[name], tensor, equal_nan=tensor.dtype == np.float32), name


@pytest.mark.parametrize("stages", list(itertools.product((0, 1), repeat=4)), ids=str)
def test_stages(pipe, stages, seed):
    """Every choice of stages, with and without a reduction, on rows of no particular length, masked or not."""
    first, function, second, reduce = stages
    rng = np.random.default_rng([seed, *stages])
    for rows, width in ((1, 1), (3, 9), (11, 4)):
        memory = {"x": rows_of(rng, rows, width), "y": rows_of(rng, rows, width), "row": rows_of(rng, 1, width)[0],
                  "column": rows_of(rng, rows, 1)[:, 0]}  # fmt: skip
        step = Pass(
            "x",
            first=Alu(AluOp.MUL_ADD, "y", Row("row")) if first else None,
            function=Function.TANH if function else None,
            second=Alu(AluOp.MUL_SUB, Column("column"), 0.25) if second else None,
            dst="z", reduce=Reduce(Reduction(int(rng.integers(4))), "r") if reduce else None,
            mask=Mask(2, 1) if rng.random() < 0.5 else None, bf16=bool(rng.integers(2)),
        )  # fmt: skip
        same(pipe, [step], memory)


@pytest.mark.parametrize("width", (1, 4, 17))
def test_softmax(pipe, width, seed):
    rng = np.random.default_rng([seed, width])
    x = rows_of(rng, 10, width, 10.0)
    x[2], x[3], x[4, 0], x[5, -1] = -np.inf, 2.5, np.inf, np.nan
    same(pipe, transformer.softmax("x", "y", scale=0.5), {"x": x})
    same(pipe, transformer.softmax("x", "y", mask=Mask(0, 2), bf16=True), {"x": x})


@pytest.mark.parametrize("width", (1, 4, 17))
def test_norms(pipe, width, seed):
    rng = np.random.default_rng([seed, width])
    x, (gamma, beta) = rows_of(rng, 9, width), rows_of(rng, 2, width)
    x[0] = 7.0
    memory = {"x": x, "g": gamma, "b": beta}
    same(pipe, transformer.layer_norm("x", "y", size=width, gamma="g", beta="b", bf16=True), memory)
    same(pipe, transformer.rms_norm("x", "y", size=width, gamma="g"), memory)


def test_gelu_and_rotary(pipe, seed):
    rng = np.random.default_rng(seed)
    x = rows_of(rng, 6, 12)
    memory = {"x": x, "b": x[0], "cos": rows_of(rng, 6, 6), "sin": rows_of(rng, 6, 6), "y": np.zeros_like(x)}
    same(pipe, transformer.gelu("x", "z", bias="b", bf16=True), memory)
    same(pipe, transformer.rotary("x", "y", size=12, cos="cos", sin="sin"), memory)


@pytest.mark.parametrize("causal", (False, True))
def test_attention(pipe, causal, seed):
    rng = np.random.default_rng([seed, causal])
    q, k, v = (np.round(rows_of(rng, n, 8) * 8) / 8 for n in (5, 9, 9))  # bf16 has 8 bits
    same(pipe, transformer.attention("q", "k", "v", "y", size=8, causal=causal, past=4), {"q": q, "k": k, "v": v})


def test_encoder_layer(pipe, seed):
    rng = np.random.default_rng(seed)
    weights = {f"w.{name}": to_bf16(w) if w.ndim == 2 else w for name, w in random_weights(rng, 12).items()}
    x = to_bf16(rows_of(rng, 5, 12, 1.0))
    program = transformer.encoder_layer("x", "y", weights="w.", sequence=5, hidden=12, heads=2, causal=True)
    same(pipe, program, {"x": x, **weights})


def test_a_block_a_cycle(pipe, seed):
    """Rows of several blocks, with a reduction: nothing waits when eight rows go by turns."""
    bubbles, pipe.bubbles = pipe.bubbles, 0.0
    try:
        cycles, blocks = pipe.cycles, pipe.blocks
        x = rows_of(np.random.default_rng(seed), 16, 5 * COLS)
        same(pipe, transformer.softmax("x", "y"), {"x": x})
        assert pipe.cycles - cycles == pipe.blocks - blocks
    finally:
        pipe.bubbles = bubbles


@pytest.mark.soak
def test_structural_form(seed):
    rng = np.random.default_rng(seed)
    with PipeModel(cols=2, emission="structural") as model:
        for width in (1, 2, 5, 8):
            memory = {"x": rows_of(rng, 9, width), "g": rows_of(rng, 1, width)[0], "b": rows_of(rng, 1, width)[0]}
            program = transformer.layer_norm("x", "y", size=width, gamma="g", beta="b")
            wanted, got = dict(memory), dict(memory)
            run(program, wanted, lanes=2)
            model.run(program, got)
            assert np.array_equal(got["y"], wanted["y"])


def test_parameters():
    with pytest.raises(ValueError, match="FloatPipe cols must be 2 to 65535, not 1"):
        FloatPipe(cols=1)
