"""canonicalise, fuse and the pass runner."""

from __future__ import annotations

import numpy as np
import pytest

from sluice.compiler import Graph, GraphError, canonicalise, fuse, run_float, run_passes
from sluice.compiler.epilogue import Clamp, MaxPool, Requantise
from verif.unit.compiler.random_graphs import random_image_graph


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def epilogue(graph: Graph, name: str) -> str:
    return " -> ".join(str(stage) for stage in graph[name].attrs["epilogue"])


def test_canonicalise_drops_and_folds() -> None:
    g = Graph("g")
    x = g.input("x", (2, 4, 3, 2))
    g.relu(x, name="dead")
    y = g.reshape(g.reshape(x, (2, 12, 2), name="r1"), (2, 24), name="r2")
    y = g.reshape(y, (2, 24), name="same")
    y = g.clamp(g.relu6(g.relu(y, name="c1"), name="c2"), -1, 3, name="c3")
    g.output(g.clamp(y, float("-inf"), float("inf"), name="nothing"), "y")
    g.output(x, "copy")
    c = canonicalise(g)
    assert list(c.nodes) == ["x", "r2", "c3"]
    assert c["r2"].inputs == ("x",) and c.outputs == {"y": "c3", "copy": "x"}
    assert (c["c3"].attrs["lo"], c["c3"].attrs["hi"]) == (0, 3)
    assert c.with_batch(7)["c3"].type.shape == (7, 24)
    assert canonicalise(c).fingerprint() == c.fingerprint()


def test_canonicalise_keeps_shared_reshapes_and_their_batch() -> None:
    g = Graph("g")
    x = g.input("x", (2, 8))
    r = g.reshape(x, (-1, 4), name="rows")
    g.output(r, "rows")
    g.output(g.reshape(r, (4, 2, 2), name="cubes"), "cubes")
    c = canonicalise(g)
    assert c["cubes"].inputs == ("x",) and c["rows"].type.shape == (4, 4)
    assert c.with_batch(3)["cubes"].type.shape == (6, 2, 2)


def test_clamps_compose_as_functions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.linspace(-4, 4, 81, dtype=np.float32)[None]
    for _ in range(50):
        g = Graph("g")
        y = g.input("x", (1, 81))
        for _ in range(3):
            y = g.clamp(y, *sorted(rng.integers(-3, 4, 2)))
        g.output(y, "y")
        c = canonicalise(g)
        assert len(c) == 2
        np.testing.assert_array_equal(run_float(c, values)["y"], run_float(g, values)["y"])


def test_fuse_whole_epilogue() -> None:
    g = Graph("g")
    x = g.input("x", (1, 6, 6, 4))
    a = g.relu(g.conv2d(x, ones(3, 3, 4, 4), name="a"))
    b = g.add(g.conv2d(a, ones(3, 3, 4, 4), name="b"), g.constant(2 * ones(4), "extra"))
    y = g.max_pool2d(g.relu(g.add(g.relu6(b), x)), 2)
    g.output(g.clamp(y, 0, 50), "y")
    f = fuse(g)
    assert [n.op for n in f if n.op not in ("constant", "input")] == ["conv2d", "conv2d"]
    assert epilogue(f, "a") == "relu"
    assert epilogue(f, "b") == (
        "relu6 -> residual -> clamp(0, 50) -> max_pool(2x2, stride (2, 2), padding ((0, 0), (0, 0)))"
    )
    assert f["b"].inputs[0] == "a" and f["b"].inputs[3] == "x"
    np.testing.assert_array_equal(f[f["b"].inputs[2]].value, 2 * ones(4))
    assert str(f).count("relu6 -> residual") == 1
    assert f.outputs == {"y": "b"}


def test_fuse_diamond_takes_the_later_side() -> None:
    g = Graph("g")
    x = g.input("x", (1, 6, 6, 4))
    main = g.conv2d(x, ones(3, 3, 4, 4), name="main")
    skip = g.conv2d(x, ones(1, 1, 4, 4), name="skip")
    g.output(g.relu(g.add(main, skip)), "y")
    f = fuse(g)
    assert epilogue(f, "skip") == "residual -> relu" and epilogue(f, "main") == ""
    assert f["skip"].inputs[3] == "main"


def test_fuse_leaves_what_others_read() -> None:
    g = Graph("g")
    x = g.input("x", (1, 4))
    a = g.matmul(x, ones(4, 4), name="a")
    g.output(a, "raw")
    g.output(g.relu(a, name="r"), "y")
    b = g.matmul(x, ones(4, 4), name="b")
    g.output(g.add(b, b, name="twice"), "z")
    c = g.matmul(x, ones(4, 4), name="c")
    g.output(g.relu(g.add(g.add(c, x), x, name="second")), "two residuals".replace(" ", "_"))
    f = fuse(g)
    assert epilogue(f, "a") == "" and "r" in f.nodes
    assert epilogue(f, "b") == "" and "twice" in f.nodes
    assert epilogue(f, "c") == "residual" and epilogue(f, "second") == "relu"


def test_fuse_stops_behind_a_pool() -> None:
    g = Graph("g")
    x = g.input("x", (1, 6, 6, 4))
    a = g.max_pool2d(g.conv2d(x, ones(3, 3, 4, 4), name="a"), 2, stride=1, name="p1")
    g.output(g.max_pool2d(a, 2, name="p2"), "y")
    b = g.max_pool2d(g.conv2d(x, ones(3, 3, 4, 4), name="b"), 1, name="p3")
    g.output(g.add(b, x, name="s"), "z")
    f = fuse(g)
    assert epilogue(f, "a").startswith("max_pool(2x2, stride (1, 1)") and "->" not in epilogue(f, "a")
    assert f["p2"].op == "max_pool2d" and f["s"].op == "add"


@pytest.mark.parametrize(
    "stages",
    [
        (MaxPool((1, 1), (1, 1)), Clamp(0, 1)),
        (Clamp(0, 1), Clamp(0, 1)),
        (MaxPool((1, 1), (1, 1)), MaxPool((1, 1), (1, 1))),
        (Requantise("float", 0, 0, 1, scale=ones(1)), Clamp(0, 1)),
        ("relu",),
    ],
)
def test_epilogues_out_of_order_are_refused(stages: tuple) -> None:
    g = Graph("g")
    x = g.input("x", (1, 4, 4, 1))
    attrs = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "epilogue": stages}
    where = (x, g.constant(ones(1, 1, 1, 1)), g.constant(ones(1)))
    with pytest.raises(GraphError, match="conv2d 'c': epilogue .* allowed: "):
        g.add_node("conv2d", where, attrs, "c")


def test_constant_per_channel_behind_an_activation_stays() -> None:
    g = Graph("g")
    x = g.input("x", (1, 4))
    g.output(g.add(g.relu(g.matmul(x, ones(4, 4), name="a")), g.constant(ones(4)), name="late"), "y")
    f = fuse(g)
    assert epilogue(f, "a") == "relu" and "late" in f.nodes


@pytest.mark.parametrize("index", range(25))
def test_passes_keep_results_of_random_graphs(seed: int, index: int) -> None:
    rng = np.random.default_rng([seed, index])
    g = random_image_graph(rng)
    x = rng.normal(size=g["x"].type.shape).astype(np.float32)
    before = g.fingerprint()
    f = run_passes(g, [canonicalise, fuse])
    assert g.fingerprint() == before, "a pass changed its argument"
    f.validate()
    np.testing.assert_array_equal(run_float(f, x)["y"], run_float(g, x)["y"])
    assert canonicalise(fuse(f)).fingerprint() == f.fingerprint()
    single = f.with_batch(1)
    np.testing.assert_allclose(run_float(single, x[:1])["y"], run_float(f, x)["y"][:1], rtol=1e-5, atol=1e-5)


def test_run_passes_dumps_and_takes_user_passes() -> None:
    g = random_image_graph(np.random.default_rng(1))

    def rename(graph: Graph) -> Graph:
        return Graph.from_nodes("renamed", graph, graph.outputs)

    log: list[tuple[str, str]] = []
    result = run_passes(g, [canonicalise, rename], dump=lambda name, graph: log.append((name, str(graph))))
    assert [name for name, _ in log] == ["input", "canonicalise", "rename"]
    assert log[-1][1].startswith("graph renamed {") and log[0][1].startswith("graph random {")
    assert result.name == "renamed"


def test_run_passes_names_the_guilty_pass() -> None:
    g = random_image_graph(np.random.default_rng(2))

    def forgetful(graph: Graph) -> Graph:
        return Graph.from_nodes("g", graph, {})

    with pytest.raises(GraphError, match="after pass forgetful: graph 'g' has no outputs"):
        run_passes(g, [forgetful])
    with pytest.raises(GraphError, match="pass <lambda> returned NoneType; a pass returns a Graph"):
        run_passes(g, [lambda graph: None])
