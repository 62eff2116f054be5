"""The digits data and networks, without scikit-learn: float graphs built from the committed npz files.

>>> from examples.digits import networks
>>> data = networks.load_data()
>>> graph = networks.cnn(batch=1)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sluice.compiler import Graph

__all__ = ["NETWORKS", "Digits", "cnn", "load_data", "mlp", "preprocess"]

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Digits:
    """Images are uint8[n, 8, 8] with values 0..16, labels uint8[n] with values 0..9."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load_data() -> Digits:
    """The committed images with their fixed split: 1437 to train on, 360 held out."""
    with np.load(HERE / "digits.npz") as z:
        images, labels, train, test = z["images"], z["labels"], z["train_index"], z["test_index"]
    return Digits(images[train], labels[train], images[test], labels[test])


def preprocess(images: np.ndarray) -> np.ndarray:
    """uint8[n, 8, 8] to the networks' input, float32[n, 8, 8, 1] in 0..1."""
    return images.astype(np.float32)[..., None] / np.float32(16)


def _weights(name: str) -> dict[str, np.ndarray]:
    with np.load(HERE / f"{name}.npz") as z:
        return dict(z)


def mlp(batch: int = 1) -> Graph:
    """Multi-layer perceptron 64 -> 64 -> 32 -> 10 with ReLU; input ``image`` [batch, 8, 8, 1], output ``logits``."""
    p = _weights("mlp")
    g = Graph("mlp")
    x = g.flatten(g.input("image", (batch, 8, 8, 1)), name="flatten")
    x = g.relu(g.matmul(x, p["fc1.w"], p["fc1.b"], name="fc1"), name="relu1")
    x = g.relu(g.matmul(x, p["fc2.w"], p["fc2.b"], name="fc2"), name="relu2")
    g.output(g.matmul(x, p["fc3.w"], p["fc3.b"], name="fc3"), "logits")
    return g


def cnn(batch: int = 1) -> Graph:
    """Two padded 3x3 convolutions (1 -> 8 -> 16 channels) with ReLU, a 2x2 max pool, a fully connected layer.

    Input ``image`` [batch, 8, 8, 1], output ``logits`` [batch, 10].
    """
    p = _weights("cnn")
    g = Graph("cnn")
    x = g.input("image", (batch, 8, 8, 1))
    x = g.relu(g.conv2d(x, p["conv1.w"], p["conv1.b"], name="conv1"), name="relu1")
    x = g.relu(g.conv2d(x, p["conv2.w"], p["conv2.b"], name="conv2"), name="relu2")
    x = g.flatten(g.max_pool2d(x, 2, name="pool"), name="flatten")
    g.output(g.matmul(x, p["fc.w"], p["fc.b"], name="fc"), "logits")
    return g


NETWORKS = {"mlp": mlp, "cnn": cnn}
