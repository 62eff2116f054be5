"""Softmax, LayerNorm, RMSNorm, GELU, rotary embedding and attention as vector programs, against float64.

The bounds are derived, not tuned: u = 2^-24 is half an ULP of fp32, and a sum of n values over C lanes has at most
``depth`` = ceil(n / C) + ceil(log2 C) additions behind each value. Functions are taken to err by 0.65 ULP (1.3 u).
"""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from sluice.golden import transformer
from sluice.golden.function_errors import exact
from sluice.golden.functions import Function
from sluice.golden.numerics_float import fp32_from_bits
from sluice.golden.vector_ops import AluOp
from sluice.golden.vector_program import Alu, Column, Mask, Matmul, Part, Pass, Row, run
from sluice.vector.layer import random_weights, rows_of, to_bf16
from verif.models.encoder import layer64
from verif.models.minilm import PACKAGE, MiniLm

U = 2.0**-24
FUNCTION = 1.3 * U
LANES = (1, 4, 6, 128)
SHAPES = ((1, 1), (3, 1), (4, 5), (2, 128), (3, 131), (5, 384))


def depth(count: int, lanes: int) -> int:
    return -(-count // lanes) + max(lanes - 1, 0).bit_length()


def value(memory: dict, name: str) -> np.ndarray:
    return fp32_from_bits(memory[name]).astype(np.float64)


def softmax64(x: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Softmax, zeros where nothing counts; and how far each value is below its row's largest."""
    x = np.where(keep, x.astype(np.float64), -np.inf)
    top = x.max(axis=-1, keepdims=True)
    below = np.where(np.isneginf(x), np.inf, np.where(np.isfinite(top), top, 0) - x)
    e = np.exp(-below)
    total = e.sum(axis=-1, keepdims=True)
    return np.where(total > 0, e / np.where(total > 0, total, 1), 0), below


def softmax_bound(y: np.ndarray, below: np.ndarray, scale_error: float, count: int, lanes: int) -> np.ndarray:
    """Relative: x - max rounds (u of itself), exp, the sum (of terms that err as much), reciprocal, product.

    What the row's terms err by their distance from the largest counts with their weight: t e^-t < 0.37. Below 2^-126
    values are flushed.
    """
    far = np.minimum(np.where(np.isfinite(below), below, 0), 104)
    own = far * U + FUNCTION + scale_error
    common = (0.37 * count * U + FUNCTION + scale_error) + depth(count, lanes) * U + FUNCTION + U
    return y * (own + common) * 1.01 + 2.0**-125


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_softmax(rows, cols, lanes, seed):
    rng = np.random.default_rng([seed, rows, cols, lanes])
    for size in (0.1, 3.0, 40.0):
        x = rows_of(rng, rows, cols, size)
        x[0] = x[0, 0]  # a constant row
        memory = {"x": x}
        run(transformer.softmax("x", "y"), memory, lanes=lanes)
        wanted, below = softmax64(x, np.ones(x.shape, bool))
        y = value(memory, "y")
        assert (np.abs(y - wanted) <= softmax_bound(wanted, below, 0, cols, lanes)).all()
        assert (np.abs(y.sum(axis=1) - 1) <= (2 * cols + 40) * U).all()


def test_softmax_of_infinities():
    inf, nan = np.inf, np.nan
    x = np.array([[-inf, -inf, -inf], [-inf, 1, -inf], [-inf, 0, 0], [inf, 0, 1], [nan, 0, -inf]], np.float32)
    memory = {"x": x}
    run(transformer.softmax("x", "y"), memory, lanes=2)
    wanted = [[0, 0, 0], [0, 1, 0], [0, 0.5, 0.5], [nan] * 3, [nan] * 3]
    assert np.array_equal(value(memory, "y"), wanted, equal_nan=True)


def test_softmax_of_extremes():
    """Largest numbers, whose differences overflow, and ones that are all alike."""
    big = np.finfo(np.float32).max
    memory = {"x": np.array([[big, -big, 0], [-big, -big, -big], [big, big, big]], np.float32)}
    run(transformer.softmax("x", "y"), memory, lanes=4)
    y = value(memory, "y")
    assert y[0].tolist() == [1, 0, 0]
    assert (np.abs(y[1:] - 1 / 3) < 2**-24).all()


@pytest.mark.parametrize("lanes", (1, 4, 128))
def test_padding_does_not_leak(lanes, seed):
    """Rows with anything behind their end give the same bits as rows that end there."""
    rng = np.random.default_rng(seed)
    x = rows_of(rng, 4, 21)
    tail = np.array([np.nan, np.inf, -np.inf, 3e38, 1e-40], np.float32)
    padded = np.concatenate([x, rng.choice(tail, (4, 11))], axis=1)
    short, long = {"x": x}, {"x": padded}
    run(transformer.softmax("x", "y"), short, lanes=lanes)
    run(transformer.softmax("x", "y", mask=Mask(21)), long, lanes=lanes)
    assert np.array_equal(long["y"][:, :21], short["y"]) and not long["y"][:, 21:].any()


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_layer_norm(rows, cols, lanes, seed):
    rng = np.random.default_rng([seed, rows, cols, lanes])
    for offset in (0.0, 100.0):
        x = rows_of(rng, rows, cols) + np.float32(offset)
        x[0] = x[0, 0]
        gamma, beta = rows_of(rng, 2, cols)
        memory = {"x": x, "gamma": gamma, "beta": beta}
        run(transformer.layer_norm("x", "y", size=cols, gamma="gamma", beta="beta"), memory, lanes=lanes)
        x64 = x.astype(np.float64)
        centred = x64 - x64.mean(axis=1, keepdims=True)
        inverse = 1 / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
        plain = centred * inverse
        wanted = plain * gamma + beta
        # The mean errs by its sum's roundings, that of 1/n and of the product; the difference by one more of its own.
        slip = (depth(cols, lanes) + 3) * U * np.abs(x64).max(axis=1, keepdims=True)
        relative = (depth(cols, lanes) + 8) * U + FUNCTION
        # What is left over shifts the value itself, and the deviation that it is divided by.
        bound = inverse * slip * (1 + np.abs(plain)) * np.abs(gamma)
        bound = bound + (np.abs(plain * gamma) + np.abs(wanted)) * relative
        assert (np.abs(value(memory, "y") - wanted) <= 1.01 * bound + 2.0**-125).all()


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize(("rows", "cols"), SHAPES)
def test_rms_norm(rows, cols, lanes, seed):
    rng = np.random.default_rng([seed, rows, cols, lanes])
    x = rows_of(rng, rows, cols)
    x[0] = x[0, 0]
    x[-1] *= 0
    gamma = rows_of(rng, 1, cols)[0]
    memory = {"x": x, "gamma": gamma}
    run(transformer.rms_norm("x", "y", size=cols, gamma="gamma"), memory, lanes=lanes)
    x64 = x.astype(np.float64)
    wanted = x64 / np.sqrt((x64**2).mean(axis=1, keepdims=True) + 1e-5) * gamma
    # Half of the sum's error, of eps and 1/n; rsqrt; two products.
    bound = np.abs(wanted) * ((depth(cols, lanes) + 5) / 2 * U + FUNCTION + 2 * U)
    assert (np.abs(value(memory, "y") - wanted) <= 1.01 * bound + 2.0**-125).all()


def test_gelu(seed):
    rng = np.random.default_rng(seed)
    x, bias = rows_of(rng, 7, 131), rows_of(rng, 1, 131)[0]
    memory = {"x": x, "bias": bias}
    run(transformer.gelu("x", "y", bias="bias"), memory, lanes=8)
    shifted = x + bias
    wanted = exact(Function.GELU, shifted)
    assert (np.abs(value(memory, "y") - wanted) <= np.abs(wanted) * 2 * FUNCTION + 2.0**-125).all()
    plain = {"x": shifted}
    run(transformer.gelu("x", "y"), plain, lanes=3)
    assert np.array_equal(plain["y"], memory["y"])


@pytest.mark.parametrize("size", (2, 32, 34))
def test_rotary(size, seed):
    rng = np.random.default_rng([seed, size])
    rows, half = 9, size // 2
    angle = np.arange(rows)[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    x = rows_of(rng, rows, size)
    memory = {"x": x, "cos": cos, "sin": sin, "y": np.zeros_like(x)}
    run(transformer.rotary("x", "y", size=size, cos="cos", sin="sin"), memory, lanes=8)
    x1, x2 = x[:, :half].astype(np.float64), x[:, half:].astype(np.float64)
    wanted = np.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], axis=1)
    # Each product rounds, then the sum: of the sizes of the terms.
    terms = np.concatenate([np.abs(x1 * cos) + np.abs(x2 * sin), np.abs(x2 * cos) + np.abs(x1 * sin)], axis=1)
    assert (np.abs(value(memory, "y") - wanted) <= 2.01 * U * terms + 2.0**-125).all()
    # A rotation: lengths stay.
    assert np.allclose((value(memory, "y") ** 2).sum(axis=1), (x.astype(np.float64) ** 2).sum(axis=1), rtol=1e-5)
    with pytest.raises(ValueError, match="size must be even, not 3"):
        transformer.rotary("x", "y", size=3, cos="cos", sin="sin")


@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 17), (17, 17), (5, 33), (33, 33)])
def test_attention(queries, keys, causal, seed):
    size, rows = 32, 16
    past = keys - queries
    for lanes in (4, 16):
        rng = np.random.default_rng([seed, queries, keys, causal, lanes])
        q, k, v = (to_bf16(rows_of(rng, n, size, 1.0)) for n in (queries, keys, keys))
        memory = {"q": q, "k": k, "v": v}
        program = transformer.attention("q", "k", "v", "y", size=size, causal=causal, past=past)
        run(program, memory, lanes=lanes, rows=rows)
        scale = 1 / np.sqrt(size)
        scores = (q.astype(np.float64) @ k.astype(np.float64).T) * scale
        keep = np.arange(keys) <= past + np.arange(queries)[:, None] if causal else np.ones(scores.shape, bool)
        weights, below = softmax64(scores, keep)
        wanted = weights @ v.astype(np.float64)
        # A score is a sum of `size` products, one after the other, its tiles added after that, then scaled by a rounded
        # scale: absolute errors, which the exponential makes relative ones. Twice, for the largest errs as well.
        chain = rows + -(-size // rows)
        score = (np.abs(q).astype(np.float64) @ np.abs(k).astype(np.float64).T).max() * scale * (chain + 2) * U
        bound = softmax_bound(weights, below, 2 * score, keys, lanes)
        # To bf16 (half a place of 8 bits), then the sum over keys.
        bound = bound + weights * 2.0**-8
        steps = rows + -(-keys // rows)
        bound = (bound + weights * steps * U) @ np.abs(v).astype(np.float64)
        assert (np.abs(value(memory, "y") - wanted) <= 1.01 * bound).all()
        got = value(memory, "y.weights")
        assert not got[~keep].any() and (np.abs(got.sum(axis=1) - 1) < 2.0**-8).all()


@pytest.mark.parametrize("causal", (False, True))
def test_attention_by_parts(causal, seed):
    """The bits of attention at once."""
    rng = np.random.default_rng(seed)
    memory = {name: to_bf16(rows_of(rng, 11, 8, 1.0)) for name in "qkv"}
    for dst, more in (("y", {}), ("z", {"queries": 11, "at_once": 4})):
        run(transformer.attention("q", "k", "v", dst, size=8, causal=causal, **more), memory, lanes=4, rows=8)
    assert np.array_equal(memory["y"], memory["z"])
    with pytest.raises(ValueError, match="must know the number of queries"):
        transformer.attention("q", "k", "v", "y", size=8, at_once=4)


def test_matmul_in_parts_of_k(seed):
    """Parts of whole tiles give the bits of one matmul; others may not, and are as near."""
    rng = np.random.default_rng(seed)
    memory = {"a": to_bf16(rows_of(rng, 5, 40)), "b": to_bf16(rows_of(rng, 9, 40))}
    program = [Matmul("whole", "a", "b", transposed=True)]
    for name, cuts in (("even", (0, 16, 32, 40)), ("odd", (0, 7, 40))):
        for start, stop in zip(cuts, cuts[1:], strict=False):
            a, b = Part("a", start, stop), Part("b", start, stop)
            program.append(Matmul(name, a, b, transposed=True, add=start > 0))
    run(program, memory, lanes=4, rows=16)
    assert np.array_equal(memory["even"], memory["whole"])
    assert np.allclose(value(memory, "odd"), value(memory, "whole"), rtol=0, atol=40 * U * 100)
    with pytest.raises(ValueError, match="there is no tensor 'z'"):
        run([Matmul("z", "a", "b", transposed=True, add=True)], memory, lanes=4)


def test_a_query_that_sees_nothing_gives_zeros():
    ones = np.ones((3, 4), np.float32)
    memory = {"q": ones, "k": ones, "v": ones}
    run(transformer.attention("q", "k", "v", "y", size=4, causal=True, past=-2), memory, lanes=4)
    assert value(memory, "y").tolist() == [[0] * 4, [0] * 4, [1] * 4]


def check_layer(x: np.ndarray, w: dict[str, np.ndarray], heads: int, lanes: int) -> float:
    """||y - y32|| / ||y32|| of an encoder layer, against float64 with the weights before they became bf16."""
    hidden = x.shape[1]
    memory = {"x": to_bf16(x)}
    memory |= {f"w.{name}": to_bf16(value) if value.ndim == 2 else value for name, value in w.items()}
    program = transformer.encoder_layer("x", "y", weights="w.", sequence=len(x), hidden=hidden, heads=heads)
    run(program, memory, lanes=lanes, rows=lanes)
    wanted = layer64(x, w, heads)
    return float(np.linalg.norm(value(memory, "y") - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("sequence", (1, 5))
def test_encoder_layer(sequence, seed):
    rng = np.random.default_rng([seed, sequence])
    error = check_layer(rows_of(rng, sequence, 48, 1.0), random_weights(rng, 48), 4, 16)
    assert error <= 1e-2, error


@pytest.mark.soak
@pytest.mark.parametrize("sequence", (1, 17, 32, 128))
def test_encoder_layer_of_bert_shape(sequence, seed):
    rng = np.random.default_rng([seed, sequence])
    error = check_layer(rows_of(rng, sequence, 384, 1.0), random_weights(rng, 384), 12, 128)
    print(f"sequence {sequence}: {error:.5f}")
    assert error <= 1e-2, error


@pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None, reason=f"without the package {PACKAGE}")
@pytest.mark.parametrize("sequence", (1, 17, 32, 128))
def test_encoder_layer_of_a_real_model(sequence, seed):
    model = MiniLm()
    error = check_layer(model.random_rows(np.random.default_rng(seed), sequence), model.layer(0), model.HEADS, 128)
    print(f"sequence {sequence}: {error:.5f}")
    assert error <= 1e-2, error


def test_refusals():
    x = np.ones((2, 3), np.float32)
    with pytest.raises(ValueError, match=r"step 0, .*there is no tensor 'y'; there are x"):
        run([Pass("y", dst="z")], {"x": x}, lanes=4)
    with pytest.raises(ValueError, match=r"operand Row\(name='x'\) must have shape \(3,\), not \(2, 3\)"):
        run([Pass("x", first=Alu(AluOp.ADD, Row("x")), dst="z")], {"x": x}, lanes=4)
    with pytest.raises(ValueError, match=r"operand Column\(name='c', start=None\) must have shape \(2,\), not \(3,\)"):
        run([Pass("x", first=Alu(AluOp.ADD, Column("c")), dst="z")], {"x": x, "c": x[0]}, lanes=4)
    with pytest.raises(ValueError, match="columns 1 to 4 are not in 'x', which has 3"):
        run([Pass(Part("x", 1, 4), dst="z")], {"x": x}, lanes=4)
    with pytest.raises(ValueError, match="operands of a matmul must be bf16"):
        run([Matmul("z", "x", "x", transposed=True)], {"x": x + np.float32(2**-20)}, lanes=4)
