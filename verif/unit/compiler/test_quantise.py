"""The quantiser: every node against real arithmetic on its own operands, and whole graphs against float."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sluice.compiler import (
    Graph,
    GraphError,
    QuantParams,
    canonicalise,
    dequantise_array,
    fuse,
    quantise,
    run_float,
    run_quantised,
)
from sluice.compiler.epilogue import AddResidual, Clamp, MaxPool, Requantise
from sluice.compiler.quantise import activation_params, clamp_bounds, weight_scales
from sluice.golden import numerics
from verif.unit.compiler.random_graphs import random_image_graph

DIALECTS = ("fixed", "float")


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


# ---- parameters ------------------------------------------------------------------------------------------------------


def test_activation_params_hold_the_range_and_zero(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(300):
        lo, hi = np.sort(rng.normal(rng.normal(0, 2), 10.0 ** rng.uniform(-6, 6), 2))
        for symmetric in (False, True):
            q = activation_params(lo, hi, symmetric)
            scale = q.scale[0]
            assert -128 <= q.zero_point <= 127 and (not symmetric or q.zero_point == 0)
            # 0 has a code, and the ends of the range lie within half a step of a code (rounding of the zero point).
            for end in (min(lo, 0), max(hi, 0)):
                assert -128 - 0.501 <= end / scale + q.zero_point <= 127 + 0.501


def test_activation_params_of_special_ranges() -> None:
    assert activation_params(0, 0) == QuantParams((1.0,), -128)
    assert activation_params(0, 0, True) == QuantParams((1.0,), 0)
    assert activation_params(0, 255) == QuantParams((1.0,), -128)
    assert activation_params(-255, 0) == QuantParams((1.0,), 127)
    assert activation_params(3, 255) == QuantParams((1.0,), -128)
    assert activation_params(-127, 5, True) == QuantParams((1.0,), 0)
    assert activation_params(0, 1e-44).scale == (1.0,)


def test_weight_scales() -> None:
    w = np.zeros((2, 4), np.float32)
    w[0] = [1.27, -12.7, 0, 1e-9]
    scales = weight_scales(w)
    np.testing.assert_allclose(scales, [0.01, 0.1, 12.7 * 2.0**-16 / 127, 12.7 * 2.0**-16 / 127], rtol=1e-6)
    np.testing.assert_array_equal(weight_scales(np.zeros((3, 2))), [1, 1])


@pytest.mark.parametrize(("kind", "clamp"), [("none", None), ("relu", Clamp(0, np.inf)), ("relu6", Clamp(0, 6))])
def test_clamp_bounds_equal_golden(kind: str, clamp: Clamp | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(200):
        quant = QuantParams((10.0 ** rng.uniform(-4, 1),), int(rng.integers(-128, 128)))
        want = numerics.activation_bounds(kind, quant.scale[0], quant.zero_point)
        assert clamp_bounds([clamp] if clamp else [], quant) == want
    assert clamp_bounds([Clamp(-np.inf, np.inf)], QuantParams((1e-30,), 5)) == (-128, 127)
    assert clamp_bounds([Clamp(2, 3)], QuantParams((0.5,), 0)) == (4, 6)
    assert clamp_bounds([Clamp(500, 600)], QuantParams((0.5,), 0)) == (127, 127)


# ---- structure -------------------------------------------------------------------------------------------------------


def build(tail=lambda g, x: x) -> Graph:
    rng = np.random.default_rng(7)
    g = Graph("g")
    x = g.input("x", (1, 6, 5, 3))
    c = g.conv2d(x, rng.normal(size=(3, 3, 3, 4)), rng.normal(size=4), padding=((1, 0), (0, 2)), name="conv")
    g.output(tail(g, c), "y")
    return g


def data(batch: int = 8, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.3, 1, size=(batch, 6, 5, 3)).astype(np.float32)


def test_relu_is_the_low_bound_and_bias_holds_the_zero_point() -> None:
    g = build(lambda g, x: g.relu(x))
    q = quantise(g, data())
    node = q["conv"]
    (stage,) = node.attrs["epilogue"]
    assert isinstance(stage, Requantise) and stage.lo == stage.zero_point == -128 and stage.hi == 127
    x, w, b = (q[i] for i in node.inputs)
    assert x.type.dtype == w.type.dtype == "int8" and b.type.dtype == "int32" and x.type.quant.zero_point != 0
    assert np.abs(w.value.astype(int)).max(axis=(0, 1, 2)).tolist() == [127] * 4
    sa, sw = x.type.quant.scale[0], w.type.quant.scales().astype(np.float64)
    np.testing.assert_array_equal(b.type.quant.scales(), (sa * sw).astype(np.float32))
    real = np.rint(g["conv.b"].value / (sa * sw)).astype(np.int64)
    np.testing.assert_array_equal(b.value, real - x.type.quant.zero_point * w.value.sum(axis=(0, 1, 2), dtype=np.int64))
    factor = stage.multiplier * 2.0 ** -stage.shift.astype(np.float64)
    np.testing.assert_allclose(factor, sa * sw / node.type.quant.scale[0], rtol=2.0**-30)
    np.testing.assert_allclose(w.value * sw, g["conv.w"].value, atol=sw.max() * 0.5001)


def test_fixed_and_float_share_all_but_the_requantisation() -> None:
    fixed, float_ = (quantise(build(), data(), dialect=d) for d in DIALECTS)
    for name in ("conv.wq", "conv.bq"):
        np.testing.assert_array_equal(fixed[name].value, float_[name].value)
    stage = float_["conv"].attrs["epilogue"][0]
    assert stage.multiplier is None and stage.scale.dtype == np.float32
    assert fixed["conv"].type == float_["conv"].type


def test_io_and_logits() -> None:
    x = data(1)
    inner = quantise(build(), data())
    assert [n.op for n in inner if n.op != "constant"] == ["input", "qconv2d"]
    assert inner["x"].type.dtype == inner["conv"].type.dtype == "int8"
    edges = quantise(build(), data(), io="float32")
    assert [n.op for n in edges if n.op != "constant"] == ["input", "quantise", "qconv2d", "dequantise"]
    xq = np.clip(np.rint(x / inner["x"].type.quant.scale[0]) + inner["x"].type.quant.zero_point, -128, 127)
    yq = run_quantised(inner, xq.astype(np.int8))["y"]
    np.testing.assert_array_equal(dequantise_array(yq, inner["conv"].type.quant), run_quantised(edges, x)["y"])

    raw = quantise(build(), data(), logits="int32")
    acc = run_quantised(raw, xq.astype(np.int8))["y"]
    assert acc.dtype == np.int32 and raw["conv"].attrs["epilogue"] == ()
    np.testing.assert_array_equal(inner["conv"].attrs["epilogue"][0].apply(acc), yq)


def test_printing() -> None:
    text = str(quantise(build(lambda g, x: g.max_pool2d(g.relu(x), 2)), data(), dialect="float"))
    assert "%x = input() : i8[1,6,5,3] q(" in text and "%conv.wq = constant() : i8[3,3,3,4] q(" in text
    assert "per channel, 0)" in text
    assert "-> requantise_float(scale=" in text and "zp=-128, [-128, 127]) -> max_pool(2x2, stride (2, 2)" in text
    fixed = str(quantise(build(lambda g, x: g.add(x, g.relu(x))), data()))
    assert "requantise_fixed(m=" in fixed and "qclamp(%conv) {lo=" in fixed and "stage=add_fixed(q(" in fixed


@pytest.mark.parametrize(
    ("options", "tail", "message"),
    [
        ({"dialect": "half"}, None, "dialect is 'half'; allowed: fixed, float"),
        ({"io": "uint8"}, None, "io is 'uint8'; allowed: int8, float32"),
        ({"logits": "int16"}, None, "logits is 'int16'; allowed: int8, int32"),
        ({"percentile": 0}, None, "percentile is 0; allowed: above 50, at most 100"),
        ({"logits": "int32"}, lambda g, x: g.relu(x), "conv2d 'conv': int32 logits cannot be followed by relu"),
        ({"logits": "int32"}, lambda g, x: g.mean(x), "output 'y' comes from mean 'mean'; int32 logits come straight"),
        (
            {},
            lambda g, x: g.add(g.relu(x), g.constant(ones(4)), name="late"),
            r"add 'late': a constant \(4,\) per channel .* allowed only right behind a convolution or matmul",
        ),
    ],
)
def test_refused_options(options, tail, message) -> None:
    with pytest.raises(GraphError, match=message):
        quantise(build(*[tail] if tail else []), data(), **options)


def test_refused_data_and_graphs() -> None:
    g = build()
    with pytest.raises(GraphError, match=r"input 'x' has shape \(8, 6, 5, 2\); allowed: \(batch, 6, 5, 3\)"):
        quantise(g, data()[..., :2])
    with pytest.raises(GraphError, match="calibration data of input 'x' hold NaN or infinity"):
        quantise(g, data() * np.float32(np.inf))
    with pytest.raises(GraphError, match="is no part of a float graph"):
        quantise(quantise(g, data()), data())
    with pytest.raises(GraphError, match="input 'x' has dtype uint8; allowed: float32"):
        quantise(g, np.zeros((1, 6, 5, 3), np.uint8))
    with pytest.raises(GraphError, match=r"input 'x' has shape \(0, 6, 5, 3\)"):
        quantise(g, data(0))
    q = quantise(g, data())
    with pytest.raises(GraphError, match="input 'x' has dtype float32; allowed: int8"):
        run_quantised(q, data(1))
    with pytest.raises(GraphError, match="qconv2d 'conv' belongs to a quantised graph; use run_quantised"):
        run_float(q, np.zeros((1, 6, 5, 3), np.int8))


def test_accumulators_that_could_overflow_are_refused() -> None:
    g = Graph("g")
    x = g.input("x", (1, 1))
    g.output(g.matmul(x, np.array([[1e-6]]), np.array([50.0]), name="fc"), "y")
    with pytest.raises(GraphError, match="matmul 'fc': output channel 0 can reach .* allowed: below 2"):
        quantise(g, ones(1, 1))


# ---- numbers ---------------------------------------------------------------------------------------------------------


def real_node(q: Graph, f: Graph, name: str, operands: list[np.ndarray]) -> np.ndarray:
    """The real value of a quantised node from its own dequantised operands.

    Evaluates the float counterpart of the node, with the weights and biases that the integers stand for; of an epilogue
    nothing.
    """
    node = q[name]
    single = Graph("single")
    x = [single.input(f"i{i}", o.shape) for i, o in enumerate(operands)]
    a = node.attrs
    if node.op in ("qconv2d", "qmatmul"):
        w = q[node.inputs[1]]
        wf = single.constant((w.value * w.type.quant.scales().astype(np.float64)).astype(np.float32))
        sa = q[node.inputs[0]].type.quant
        accumulators = sa.scale[0] * w.type.quant.scales().astype(np.float64)
        folded = q[node.inputs[2]].value + sa.zero_point * w.value.reshape(-1, w.value.shape[-1]).sum(0, dtype=np.int64)
        b = single.constant((folded * accumulators).astype(np.float32))
        if node.op == "qconv2d":
            where = {k: a[k] for k in ("stride", "padding", "dilation")}
            y = single.conv2d(x[0], wf, b, **where)
        else:
            y = single.matmul(x[0], wf, b)
        single.output(y, "y")
    else:
        counterpart = {
            "qadd": lambda: single.add(*x),
            "qclamp": lambda: single.clamp(x[0], f[name].attrs["lo"], f[name].attrs["hi"]),
            "qmax_pool2d": lambda: single.add_node("max_pool2d", x[:1], a),
            "qavg_pool2d": lambda: single.add_node("avg_pool2d", x[:1], {k: a[k] for k in a if k != "dialect"}),
            "qmean": lambda: single.mean(x[0]),
            "reshape": lambda: single.reshape(x[0], a["shape"]),
        }
        single.output(counterpart[node.op](), "y")
    inputs = {t.name: o for t, o in zip(x, operands, strict=True) if t.name in single.live()}
    pruned = Graph.from_nodes("single", (n for n in single if n.name in single.live()), single.outputs)
    return run_float(pruned, inputs)["y"].astype(np.float64)


def within_half_step(got: np.ndarray, real: np.ndarray, quant: QuantParams, lo: int, hi: int) -> np.ndarray:
    """How far each code is beyond the nearest one, in steps: codes of `real`, clamped, and half a step of rounding."""
    ideal = np.clip(real / quant.scale[0] + quant.zero_point, lo, hi)
    return np.abs(got.astype(np.float64) - ideal) - 0.5


# Beyond the half step of rounding: multipliers have 31 bits and float32 operands 24, so codes up to 2^8 (and addends
# up to 2^9 steps) can move by far less than this, in steps.
SLACK = 1e-3


def check_nodes(q: Graph, f: Graph, x: dict[str, np.ndarray]) -> int:
    """Compare every node of `q` with real arithmetic on its own operands; returns the number of nodes compared."""
    values: dict[str, np.ndarray] = {}
    stages: dict[tuple[str, int], np.ndarray] = {}

    def observe(name: str, stage: int | None, value: np.ndarray) -> None:
        if stage is None:
            values[name] = value
        else:
            stages[name, stage] = value

    run_quantised(q, x, observe)
    compared = 0
    for node in q:
        if node.op in ("input", "constant", "quantise", "dequantise"):
            continue
        weighted = node.op in ("qconv2d", "qmatmul")
        sources = [node.inputs[0], *node.inputs[3:]] if weighted else node.inputs
        operands = [dequantise_array(values[s], q[s].type.quant) for s in sources]
        mids = {i: v for (name, i), v in stages.items() if name == node.name}
        real, quant = real_node(q, f, node.name, operands), node.type.quant
        got, lo, hi = values[node.name], -128, 127
        if weighted:
            first, *rest = node.attrs["epilogue"]
            mid = rest[0].a if rest and isinstance(rest[0], AddResidual) else quant
            excess = within_half_step(mids[0], real, mid, first.lo, first.hi)
            assert excess.max() < SLACK, f"{node}: requantisation is {excess.max()} steps off"
            got = mids[0]
            for index, stage in enumerate(rest, start=1):
                if isinstance(stage, AddResidual):
                    total = dequantise_array(got, stage.a).astype(np.float64) + operands[1]
                    excess = within_half_step(mids[index], total, stage.out, stage.lo, stage.hi)
                    assert excess.max() < SLACK, f"{node}: the residual addition is {excess.max()} steps off"
                else:
                    assert isinstance(stage, MaxPool)
                    pooled = numerics.max_pool_int8(got, stage.window, stage.stride, stage.padding)
                    np.testing.assert_array_equal(mids[index], pooled)
                got = mids[index]
            np.testing.assert_array_equal(got, values[node.name])
        else:
            if node.op == "qadd":
                lo, hi = node.attrs["stage"].lo, node.attrs["stage"].hi
            excess = within_half_step(got, real, quant, lo, hi)
            assert excess.max() < SLACK, f"{node}: {excess.max()} steps off"
        compared += 1
    return compared


@pytest.mark.parametrize("index", range(30))
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_node_of_random_graphs_rounds_right(dialect: str, index: int, seed: int) -> None:
    rng = np.random.default_rng([seed, index])
    g = random_image_graph(rng)
    shape = g["x"].type.shape
    calibration = rng.normal(rng.normal(), 1, size=(16, *shape[1:])).astype(np.float32)
    q = quantise(g, calibration, dialect=dialect, symmetric=bool(index % 3 == 2), io="float32")
    # Twice the calibrated range, so that saturation is met as well.
    x = {"x": 2 * rng.normal(rng.normal(), 1, size=shape).astype(np.float32)}
    assert check_nodes(q, fuse(canonicalise(g)), x) >= 2


@pytest.mark.parametrize("index", range(20))
def test_random_graphs_stay_near_float(index: int) -> None:
    """The wiring of whole graphs: int8 costs about 1 % per layer here, an operand taken from elsewhere far more.

    The graphs are fixed, since how far the noise of a layer grows is a property of the graph.
    """
    rng = np.random.default_rng([2024, index])
    g = random_image_graph(rng, steps=4, batch=16)
    x = rng.normal(size=g["x"].type.shape).astype(np.float32)
    want = run_float(g, x)["y"].astype(np.float64)
    layers = sum(n.op not in ("input", "constant", "clamp", "reshape", "max_pool2d") for n in g)
    for dialect in DIALECTS:
        got = run_quantised(quantise(g, x, dialect=dialect, io="float32"), x)["y"]
        error = np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2))
        print(f"{dialect}: {layers} layers, relative RMS error {error:.4f}")
        assert error < 0.01 * layers


def test_dialects_differ_only_where_rounding_ties() -> None:
    x = data(64)
    outputs = [run_quantised(quantise(build().with_batch(64), x, dialect=d, io="float32"), x)["y"] for d in DIALECTS]
    scale = quantise(build(), x)["conv"].type.quant.scale[0]
    assert np.abs(outputs[0] - outputs[1]).max() <= scale * 1.001
    assert (outputs[0] != outputs[1]).mean() < 0.01


def test_padding_is_the_zero_point() -> None:
    """A constant image other than 0 shows what padding reads: real zeros, so the border sums fewer taps."""
    g = Graph("g")
    x = g.input("x", (1, 3, 3, 1))
    g.output(g.conv2d(x, ones(3, 3, 1, 1)), "y")
    calibration = np.stack([np.full((3, 3, 1), v, np.float32) for v in (1.0, 3.0)])
    y = run_quantised(quantise(g, calibration, io="float32"), np.full((1, 3, 3, 1), 3, np.float32))["y"]
    np.testing.assert_allclose(y[0, :, :, 0], [[12, 18, 12], [18, 27, 18], [12, 18, 12]], atol=27 / 255)


def test_residual_diamond_rounds_like_tflite() -> None:
    """conv -> int8 -> add: the fused result equals the convolution and the addition done one after the other."""
    rng = np.random.default_rng(11)
    g = Graph("g")
    x = g.input("x", (4, 5, 5, 3))
    main = g.conv2d(x, rng.normal(size=(3, 3, 3, 3)), name="main")
    g.output(g.relu(g.add(main, x)), "y")
    sample = rng.normal(size=(4, 5, 5, 3)).astype(np.float32)
    for dialect in DIALECTS:
        q = quantise(g, sample, dialect=dialect, io="float32")
        first, second = q["main"].attrs["epilogue"]
        values = {}
        run_quantised(q, sample, lambda name, stage, value, values=values: values.update({(name, stage): value}))
        a, b = values["main", 0], values[q["main"].inputs[3], None]
        za, zb, zo = second.a.zero_point, second.b.zero_point, second.out.zero_point
        scales = second.a.scale[0], second.b.scale[0], second.out.scale[0]
        if dialect == "fixed":
            want = numerics.add_fixed(a, b, za, zb, numerics.add_multipliers(*scales), zo, zo, 127)
        else:
            want = numerics.add_float(a, b, za, zb, *numerics.add_ratios(*scales), zo, zo, 127)
        np.testing.assert_array_equal(values["main", None], want)
        assert (first.lo, first.hi) == (-128, 127) and second.lo == zo


def test_dead_and_tiny_channels() -> None:
    """Weights of 0 and channels 2^-20 below the others still give their bias."""
    rng = np.random.default_rng(5)
    w = rng.normal(size=(8, 4)).astype(np.float32)
    w[:, 1] = 0
    w[:, 2] *= 2.0**-20
    b = np.array([0.1, 1.5, -2.5, 0], np.float32)
    g = Graph("g")
    g.output(g.matmul(g.input("x", (50, 8)), w, b), "y")
    x = rng.normal(size=(50, 8)).astype(np.float32)
    for dialect in DIALECTS:
        q = quantise(g, x, dialect=dialect, io="float32")
        y, step = run_quantised(q, x)["y"], q["matmul"].type.quant.scale[0]
        assert np.abs(y[:, 1:3] - b[1:3]).max() <= step
        assert np.abs(y - run_float(g, x)["y"]).max() < 4 * step


def test_constant_addend_and_several_inputs() -> None:
    rng = np.random.default_rng(6)
    g = Graph("g")
    a, b = g.input("a", (3, 5)), g.input("b", (3, 5))
    k = g.constant(rng.normal(size=(3, 5)), "k")
    g.output(g.relu6(g.add(g.add(a, b, name="ab"), k, name="abk")), "y")
    x = {n: rng.normal(size=(3, 5)).astype(np.float32) for n in "ab"}
    for dialect in DIALECTS:
        q = quantise(g, x, dialect=dialect, io="float32")
        assert q["k"].type.dtype == "int8"
        assert check_nodes(q, fuse(g), x) == 2
        np.testing.assert_allclose(run_quantised(q, x)["y"], run_float(g, x)["y"], atol=0.06)


def test_percentile_cuts_outliers() -> None:
    x = data(64)
    x[0, 0, 0, 0] = 1000
    wide, cut = (quantise(build(), x, percentile=p)["x"].type.quant.scale[0] for p in (100, 99.9))
    assert wide > 3.9 and cut < 0.05


def test_deterministic_within_and_between_processes() -> None:
    program = (
        "import numpy as np\n"
        "from verif.unit.compiler.test_quantise import random_image_graph, quantise\n"
        "rng = np.random.default_rng(99)\n"
        "g = random_image_graph(rng)\n"
        "print(quantise(g, rng.normal(size=(8, *g['x'].type.shape[1:])).astype(np.float32)).fingerprint())\n"
    )
    root = Path(__file__).resolve().parents[3]
    path = os.pathsep.join(str(root / p) for p in ("", "hw", "sw"))
    prints = set()
    for hash_seed in ("0", "1"):
        env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, check=True)
        prints.add(run.stdout)
    rng = np.random.default_rng(99)
    g = random_image_graph(rng)
    here = quantise(g, rng.normal(size=(8, *g["x"].type.shape[1:])).astype(np.float32)).fingerprint() + "\n"
    assert prints == {here}
