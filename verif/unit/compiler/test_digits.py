"""The digits networks: the committed data, and what int8 costs them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from examples.digits import networks
from sluice.compiler import canonicalise, fuse, quantise, run_float, run_quantised

FOLDER = Path(networks.__file__).parent
DATA = networks.load_data()
TRAIN, TEST = networks.preprocess(DATA.train_images), networks.preprocess(DATA.test_images)


def accuracy(logits: np.ndarray) -> float:
    return float((logits.argmax(axis=1) == DATA.test_labels).mean())


def test_data() -> None:
    assert DATA.train_images.shape == (1437, 8, 8) and DATA.test_images.shape == (360, 8, 8)
    assert DATA.test_images.dtype == np.uint8 and DATA.test_images.max() == 16
    with np.load(FOLDER / "digits.npz") as z:
        split = np.concatenate([z["train_index"], z["test_index"]])
        assert sorted(split) == list(range(1797)), "an image is in both halves or in none"
    # Stratified: every digit has its share of the 360, to within one image.
    counts, held = np.bincount(np.concatenate([DATA.train_labels, DATA.test_labels])), np.bincount(DATA.test_labels)
    assert np.abs(held - counts * 360 / 1797).max() < 1
    assert TEST.shape == (360, 8, 8, 1) and TEST.dtype == np.float32 and TEST.max() == 1
    assert sum(p.stat().st_size for p in FOLDER.glob("*.npz")) < 500_000


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_accuracy(name: str) -> None:
    graph = networks.NETWORKS[name](batch=len(TEST))
    real = accuracy(run_float(graph, TEST)["logits"])
    assert real >= 0.97
    table = re.search(rf"^\| `{name}` .*\| (0\.\d+) \(", (FOLDER / "README.md").read_text(), re.M)
    assert table and float(table[1]) == round(real, 4), "README.md states another float accuracy"
    for dialect in ("fixed", "float"):
        for logits in ("int8", "int32"):
            q = quantise(graph, TRAIN, dialect=dialect, io="float32", logits=logits)
            got = accuracy(run_quantised(q, TEST)["logits"])
            print(f"{name} {dialect} {logits}: float {real:.4f} int8 {got:.4f}")
            assert abs(got - real) <= 0.005


def test_networks_fuse_into_one_node_per_layer() -> None:
    ops = {
        name: [n.op for n in fuse(canonicalise(build())) if n.op not in ("constant", "input")]
        for name, build in networks.NETWORKS.items()
    }
    assert ops == {
        "mlp": ["reshape", "matmul", "matmul", "matmul"],
        "cnn": ["conv2d", "conv2d", "reshape", "matmul"],
    }


def test_only_training_needs_scikit_learn() -> None:
    for path in FOLDER.glob("*.py"):
        tree = ast.parse(path.read_text())
        names = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert any(str(n).startswith("sklearn") for n in names) == (path.name == "train.py"), path
