"""The graph: building, typing, printing, refusing."""

from __future__ import annotations

import doctest
import re

import numpy as np
import pytest

from sluice.compiler import Graph, GraphError, NodeSpec, QuantParams
from sluice.compiler import graph as graph_module
from sluice.compiler.ops import OPS


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def small() -> Graph:
    g = Graph("small")
    x = g.input("x", (2, 6, 5, 3))
    y = g.relu(g.conv2d(x, ones(3, 3, 3, 4), stride=2, name="conv"), name="relu")
    g.output(g.matmul(g.flatten(y, name="flat"), ones(36, 7), name="fc"), "y")
    return g


def test_docstring_example() -> None:
    result = doctest.testmod(graph_module, extraglobs={"np": np})
    assert result.attempted == 4 and result.failed == 0


def test_printing() -> None:
    assert str(small()) == "\n".join(
        [
            "graph small {",
            "  %x = input() : f32[2,6,5,3]",
            "  %conv.w = constant() : f32[3,3,3,4]",
            "  %conv.b = constant() : f32[4]",
            "  %conv = conv2d(%x, %conv.w, %conv.b) {stride=(2, 2), padding=((0, 1), (1, 1)), dilation=(1, 1)}"
            " : f32[2,3,3,4]",
            "  %relu = clamp(%conv) relu : f32[2,3,3,4]",
            "  %flat = reshape(%relu) {shape=(0, -1)} : f32[2,36]",
            "  %fc.w = constant() : f32[36,7]",
            "  %fc.b = constant() : f32[7]",
            "  %fc = matmul(%flat, %fc.w, %fc.b) : f32[2,7]",
            "  output y = %fc",
            "}",
        ]
    )


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda g, x: g.conv2d(x, ones(3, 3, 3, 4)), (2, 6, 5, 4)),
        (lambda g, x: g.conv2d(x, ones(3, 3, 3, 4), padding="valid"), (2, 4, 3, 4)),
        (lambda g, x: g.conv2d(x, ones(2, 2, 3, 1), stride=(3, 2)), (2, 2, 3, 1)),
        (lambda g, x: g.conv2d(x, ones(3, 2, 3, 4), padding="valid", dilation=(2, 4)), (2, 2, 1, 4)),
        (lambda g, x: g.conv2d(x, ones(1, 1, 3, 4), padding=((1, 0), (2, 3))), (2, 7, 10, 4)),
        (lambda g, x: g.max_pool2d(x, 2), (2, 3, 2, 3)),
        (lambda g, x: g.max_pool2d(x, 1, stride=2), (2, 3, 3, 3)),
        (lambda g, x: g.avg_pool2d(x, (3, 2), stride=1, padding="same"), (2, 6, 5, 3)),
        (lambda g, x: g.mean(x), (2, 3)),
        (lambda g, x: g.flatten(x), (2, 90)),
        (lambda g, x: g.reshape(x, (2, 5, -1)), (2, 5, 18)),
        (lambda g, x: g.reshape(x, (-1, 3)), (60, 3)),
        (lambda g, x: g.add(x, x), (2, 6, 5, 3)),
        (lambda g, x: g.add(x, g.constant(ones(3))), (2, 6, 5, 3)),
        (lambda g, x: g.relu6(x), (2, 6, 5, 3)),
    ],
)
def test_shapes(build, shape) -> None:
    g = Graph("g")
    y = build(g, g.input("x", (2, 6, 5, 3)))
    assert y.shape == shape and y.dtype == "float32"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda g, x: g.input("z", (1, 2), "float64"), "input 'z': unknown dtype 'float64'; allowed: float32, int8"),
        (lambda g, x: g.input("z", (1, 2), "nonsense"), "unknown dtype 'nonsense'"),
        (lambda g, x: g.input("z", (1, 0)), r"input 'z': shape \(1, 0\); every dimension must be an integer >= 1"),
        (lambda g, x: g.input("z", (1, 2.5)), "every dimension must be an integer"),
        (lambda g, x: g.input("z", 3), "input 'z': shape 3 is not a sequence"),
        (lambda g, x: g.input("z", ()), "no batch dimension"),
        (lambda g, x: g.input("x", (1, 2)), "input 'x': the name is already taken by input 'x'"),
        (lambda g, x: g.input("a b", (1, 2)), "node name 'a b'; allowed"),
        (lambda g, x: g.constant(np.ones(3, np.complex64), "k"), "unknown dtype 'complex64'"),
        (lambda g, x: g.constant([2**40], "k"), "unknown dtype 'int64'"),
        (lambda g, x: g.constant([np.nan], "k"), "constant 'k': holds NaN"),
        (lambda g, x: g.constant(ones(3, 2), quant=QuantParams((1.0, 2.0, 3.0))), "3 scales for shape"),
        (
            lambda g, x: g.conv2d(x, ones(3, 3, 4, 4), name="c"),
            "conv2d 'c': .* take 4 input channels, the input .* has 3",
        ),
        (lambda g, x: g.conv2d(x, ones(3, 3, 3)), r"weights \(3, 3, 3\); allowed"),
        (lambda g, x: g.conv2d(g.flatten(x), ones(3, 3, 3, 1)), r"allowed: \(N, H, W, C\)"),
        (lambda g, x: g.conv2d(x, ones(3, 3, 3, 4), ones(3)), r"bias has shape \(3,\); allowed: \(4,\)"),
        (lambda g, x: g.conv2d(x, ones(3, 3, 3, 4), stride=0), "stride 0; allowed: an integer >= 1 or a pair"),
        (lambda g, x: g.conv2d(x, ones(3, 3, 3, 4), dilation=(1, 1, 1)), r"dilation \(1, 1, 1\); allowed"),
        (lambda g, x: g.conv2d(x, ones(3, 3, 3, 4), padding="full"), "padding 'full'; allowed: 'same', 'valid'"),
        (lambda g, x: g.conv2d(x, ones(3, 3, 3, 4), padding=((0, -1), (0, 0))), "of integers >= 0"),
        (
            lambda g, x: g.conv2d(x, ones(3, 3, 3, 4), padding="valid", dilation=3, name="c"),
            "conv2d 'c': window height 7 .* exceeds the padded input height 6 .* allowed: at most 6",
        ),
        (lambda g, x: g.matmul(x, ones(3, 4)), "input 0 has shape .* allowed: 2 dimensions"),
        (lambda g, x: g.matmul(g.flatten(x), ones(91, 4)), "have K = 91, the input .* has K = 90"),
        (lambda g, x: g.matmul(g.flatten(x), ones(4)), r"weights \(4,\); allowed: \(K, N\)"),
        (lambda g, x: g.matmul(g.flatten(x), g.input("w", (90, 4))), r"weights \(input 1\) must be a constant"),
        (lambda g, x: g.add(x, g.flatten(x)), r"shapes \(2, 6, 5, 3\) and \(2, 90\); allowed: equal shapes"),
        (lambda g, x: g.add(x, g.input("c", (3,))), "allowed: equal shapes, or a second input that is a constant"),
        (lambda g, x: g.add(x, ones(3)), "is not a Tensor; arrays enter through constant"),
        (lambda g, x: g.add(x, Graph("other").input("o", (1, 1))), "belongs to graph 'other', not to 'g'"),
        (lambda g, x: g.relu(g.input("i", (2, 3), "int8")), "input 0 has dtype int8; allowed: float32"),
        (lambda g, x: g.clamp(x, 2, 1), "lo = 2.0, hi = 1.0; allowed: lo <= hi"),
        (lambda g, x: g.clamp(x, float("nan"), 1), "allowed: lo <= hi"),
        (lambda g, x: g.max_pool2d(x, 7), "window height 7 .* exceeds"),
        (lambda g, x: g.max_pool2d(x, 2, padding=((2, 0), (0, 0))), r"height padding \(2, 0\) .* allowed: 0..1"),
        (lambda g, x: g.avg_pool2d(g.flatten(x), 2), r"allowed: 4 dimensions \(N, H, W, C\)"),
        (lambda g, x: g.mean(g.flatten(x)), "allowed: 4 dimensions"),
        (lambda g, x: g.reshape(x, (7, 7)), "cannot hold the 180 elements"),
        (lambda g, x: g.reshape(x, (-1, -1)), "at most one -1"),
        (lambda g, x: g.reshape(x, (2, 7, -1)), "cannot hold the 180 elements"),
        (lambda g, x: g.reshape(x, (2, 6, 5, 3, 0)), "keeps a dimension that the input"),
        (lambda g, x: g.add_node("gelu", (x,), {}), "unknown operation 'gelu'; allowed: input, constant"),
        (lambda g, x: g.add_node("mean", (x, x), {}), "2 inputs; allowed: 1"),
        (lambda g, x: g.add_node("clamp", (x,), {"lo": 0.0}), r"attributes \['lo'\]; needed: \['hi', 'lo'\]"),
        (lambda g, x: g.add_node("mean", ("nope",), {}), "input %nope is undefined in graph 'g'"),
        (lambda g, x: g["nope"], "graph 'g' has no node 'nope'; it has: x"),
        (lambda g, x: QuantParams((0.0,)), "every scale must be a finite float32 > 0"),
        (lambda g, x: Graph(""), "graph name ''; allowed"),
    ],
)
def test_refused(build, message) -> None:
    g = Graph("g")
    x = g.input("x", (2, 6, 5, 3))
    with pytest.raises(GraphError, match=message):
        build(g, x)


def test_refusal_leaves_the_graph_unchanged() -> None:
    g = Graph("g")
    x = g.input("x", (2, 6, 5, 3))
    before = str(g)
    with pytest.raises(GraphError):
        g.conv2d(x, ones(3, 3, 4, 4), name="c")
    with pytest.raises(GraphError):
        g.conv2d(x, ones(3, 3, 3, 4), ones(5), name="c")
    assert str(g) == before


def test_validate() -> None:
    g = Graph("g")
    x = g.input("x", (1, 4))
    with pytest.raises(GraphError, match="graph 'g' has no outputs"):
        g.validate()
    g.output(g.relu(x), "y")
    g.validate()
    with pytest.raises(GraphError, match="output 'y': the name is already taken by %clamp"):
        g.output(x, "y")
    g.relu6(x, name="lost")
    with pytest.raises(GraphError, match="no output depends on clamp 'lost'; the pass canonicalise drops them"):
        g.validate()
    g.validate(allow_dead=True)
    g.input("spare", (1, 4))
    with pytest.raises(GraphError, match="no output depends on the inputs spare"):
        g.validate(allow_dead=True)


def test_from_nodes_orders_and_refuses_cycles() -> None:
    nodes = [NodeSpec(n.name, n.op, n.inputs, n.attrs) for n in small()]
    again = Graph.from_nodes("small", reversed(nodes), {"y": "fc"})
    assert set(again.nodes) == set(small().nodes)
    seen: set[str] = set()
    for node in again:
        assert seen.issuperset(node.inputs)
        seen.add(node.name)

    inputs = {"shape": (1, 2), "dtype": "float32", "quant": None}
    ring = [
        NodeSpec("x", "input", (), inputs),
        NodeSpec("a", "add", ("x", "b"), {"epilogue": ()}),
        NodeSpec("b", "clamp", ("c",), {"lo": 0.0, "hi": 1.0}),
        NodeSpec("c", "clamp", ("a",), {"lo": 0.0, "hi": 1.0}),
    ]
    with pytest.raises(GraphError, match="cycle through %a <- %b <- %c <- %a"):
        Graph.from_nodes("ring", ring, {"y": "b"})
    with pytest.raises(GraphError, match="add 'a': input %b is undefined"):
        Graph.from_nodes("hole", ring[:2], {"y": "a"})
    with pytest.raises(GraphError, match="input 'x': the name is already taken"):
        Graph.from_nodes("twice", [ring[0], ring[0]], {"y": "x"})
    with pytest.raises(GraphError, match="output: input %z is undefined"):
        Graph.from_nodes("lost", ring[:1], {"y": "z"})


def test_deep_graphs_do_not_recurse() -> None:
    g = Graph("deep")
    x = g.input("x", (1, 4))
    for _ in range(3000):
        x = g.relu(x)
    g.output(x, "y")
    assert len(Graph.from_nodes("deep", reversed(list(g)), g.outputs)) == 3001


def test_with_batch() -> None:
    g = small().with_batch(5)
    assert g["fc"].type.shape == (5, 7) and g["relu"].type.shape == (5, 3, 3, 4)
    assert str(g.with_batch(2)) == str(small())
    for bad in (0, -1, 1.5):
        with pytest.raises(GraphError, match=re.escape(f"batch {bad!r}; allowed: an integer >= 1")):
            g.with_batch(bad)


def test_users_count_operands() -> None:
    g = Graph("g")
    x = g.input("x", (1, 4))
    g.output(g.add(x, x, name="s"))
    assert g.users() == {"x": ["s", "s"], "s": []}


def test_fingerprint_sees_everything_that_decides_results() -> None:
    def build(weight: float = 1.0, stride: int = 1, hi: float = 6.0) -> str:
        g = Graph("g")
        w = ones(3, 3, 3, 4)
        w[2, 2, 2, 3] = weight
        g.output(g.clamp(g.conv2d(g.input("x", (1, 6, 6, 3)), w, stride=stride), 0, hi), "y")
        return g.fingerprint()

    assert build() == build()
    assert len({build(), build(weight=np.nextafter(np.float32(1), 2)), build(stride=2), build(hi=6.0000001)}) == 4


def test_constants_are_copies_and_read_only() -> None:
    g = Graph("g")
    w = ones(4, 2)
    t = g.constant(w)
    w[:] = 5
    value = g[t.name].value
    assert (value == 1).all()
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 3


def test_every_operation_names_its_attributes() -> None:
    assert {"conv2d", "qconv2d", "matmul", "qmatmul", "reshape"} <= set(OPS)
    assert all(spec.inputs.stop > spec.inputs.start for spec in OPS.values())
