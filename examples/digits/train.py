"""Train the digits networks in float and write the data files that everything else reads.

This is the only file of the project that needs scikit-learn, and it needs it for one thing: the images. Training is
plain NumPy (Adam, cross entropy, image shifts by one pixel) from a fixed seed::

    pip install numpy scikit-learn
    python examples/digits/train.py

It rewrites ``digits.npz``, ``mlp.npz`` and ``cnn.npz`` beside itself and prints the float accuracies. On one machine
and one NumPy the same bytes come out every time; between CPUs the last bits of the weights may differ.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

# One thread: a BLAS that splits sums by the number of cores would make the weights depend on the machine's core count.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402  (the environment must be set before NumPy loads its BLAS)

HERE = Path(__file__).resolve().parent
SEED = 20240
TEST_IMAGES = 360
MLP_WIDTHS = (64, 64, 32, 10)
CNN_CHANNELS = (1, 8, 16)

Params = dict[str, np.ndarray]


def load_split() -> dict[str, np.ndarray]:
    """Images (uint8, 0..16) and labels of scikit-learn's digits with a fixed, stratified split.

    Returns
    -------
    dict
        ``images`` uint8[1797, 8, 8], ``labels`` uint8[1797], ``train_index`` and ``test_index`` int16, both sorted.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    train, test = train_test_split(
        np.arange(len(digits.target)), test_size=TEST_IMAGES, stratify=digits.target, random_state=SEED
    )
    return {
        "images": digits.images.astype(np.uint8),
        "labels": digits.target.astype(np.uint8),
        "train_index": np.sort(train).astype(np.int16),
        "test_index": np.sort(test).astype(np.int16),
    }


def he(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal weights with variance 2 / fan-in (He et al. 2015); the last axis is the output axis."""
    fan_in = int(np.prod(shape[:-1]))
    return rng.normal(0.0, np.sqrt(2.0 / fan_in), shape).astype(np.float32)


def im2col(x: np.ndarray) -> np.ndarray:
    """3x3 patches of zero-padded NHWC images: [N, H, W, 9 * C], patch axis ordered (ky, kx, c)."""
    n, h, w, c = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.concatenate([padded[:, ky : ky + h, kx : kx + w] for ky in range(3) for kx in range(3)], axis=-1)


def col2im(cols: np.ndarray, channels: int) -> np.ndarray:
    """Transpose of `im2col`: adds patches back into images."""
    n, h, w, _ = cols.shape
    padded = np.zeros((n, h + 2, w + 2, channels), cols.dtype)
    for tap in range(9):
        ky, kx = divmod(tap, 3)
        padded[:, ky : ky + h, kx : kx + w] += cols[..., tap * channels : (tap + 1) * channels]
    return padded[:, 1:-1, 1:-1]


class MLP:
    """64 -> 64 -> 32 -> 10 with ReLU between."""

    def init(self, rng: np.random.Generator) -> Params:
        params: Params = {}
        for i, (k, n) in enumerate(zip(MLP_WIDTHS, MLP_WIDTHS[1:], strict=False), start=1):
            params[f"fc{i}.w"] = he(rng, k, n)
            params[f"fc{i}.b"] = np.zeros(n, np.float32)
        return params

    def forward(self, p: Params, images: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        layers = len(MLP_WIDTHS) - 1
        x = images.reshape(len(images), -1)
        saved = []
        for i in range(1, layers + 1):
            saved.append(x)
            x = x @ p[f"fc{i}.w"] + p[f"fc{i}.b"]
            if i < layers:
                x = np.maximum(x, 0)
        return x, saved

    def backward(self, p: Params, saved: list[np.ndarray], grad: np.ndarray) -> Params:
        grads: Params = {}
        for i in range(len(saved), 0, -1):
            x = saved[i - 1]
            grads[f"fc{i}.w"] = x.T @ grad
            grads[f"fc{i}.b"] = grad.sum(0)
            grad = (grad @ p[f"fc{i}.w"].T) * (x > 0)
        return grads


class CNN:
    """conv 3x3 -> ReLU -> conv 3x3 -> ReLU -> max pool 2x2 -> fully connected."""

    def init(self, rng: np.random.Generator) -> Params:
        c0, c1, c2 = CNN_CHANNELS
        return {
            "conv1.w": he(rng, 3, 3, c0, c1), "conv1.b": np.zeros(c1, np.float32),
            "conv2.w": he(rng, 3, 3, c1, c2), "conv2.b": np.zeros(c2, np.float32),
            "fc.w": he(rng, 16 * c2, 10), "fc.b": np.zeros(10, np.float32),
        }  # fmt: skip

    def forward(self, p: Params, images: np.ndarray) -> tuple[np.ndarray, tuple]:
        n = len(images)
        cols1 = im2col(images[..., None])
        a1 = np.maximum(cols1 @ p["conv1.w"].reshape(-1, CNN_CHANNELS[1]) + p["conv1.b"], 0)
        cols2 = im2col(a1)
        a2 = np.maximum(cols2 @ p["conv2.w"].reshape(-1, CNN_CHANNELS[2]) + p["conv2.b"], 0)
        windows = a2.reshape(n, 4, 2, 4, 2, -1).transpose(0, 1, 3, 5, 2, 4).reshape(n, 4, 4, -1, 4)
        winner = windows.argmax(-1)
        flat = windows.max(-1).reshape(n, -1)
        return flat @ p["fc.w"] + p["fc.b"], (cols1, a1, cols2, a2, winner, flat)

    def backward(self, p: Params, saved: tuple, grad: np.ndarray) -> Params:
        cols1, a1, cols2, a2, winner, flat = saved
        n = len(flat)
        grads = {"fc.w": flat.T @ grad, "fc.b": grad.sum(0)}
        pooled = (grad @ p["fc.w"].T).reshape(winner.shape)
        windows = np.where(np.arange(4) == winner[..., None], pooled[..., None], 0).astype(np.float32)
        d2 = windows.reshape(n, 4, 4, -1, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(a2.shape) * (a2 > 0)
        grads["conv2.w"] = np.tensordot(cols2, d2, axes=([0, 1, 2], [0, 1, 2])).reshape(p["conv2.w"].shape)
        grads["conv2.b"] = d2.sum((0, 1, 2))
        d1 = col2im(d2 @ p["conv2.w"].reshape(-1, CNN_CHANNELS[2]).T, CNN_CHANNELS[1]) * (a1 > 0)
        grads["conv1.w"] = np.tensordot(cols1, d1, axes=([0, 1, 2], [0, 1, 2])).reshape(p["conv1.w"].shape)
        grads["conv1.b"] = d1.sum((0, 1, 2))
        return grads


def shifted(rng: np.random.Generator, images: np.ndarray) -> np.ndarray:
    """Move every image by -1, 0 or 1 pixel along each axis, zeros coming in: the only augmentation."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    out = np.empty_like(images)
    for i, (dy, dx) in enumerate(rng.integers(0, 3, (len(images), 2))):
        out[i] = padded[i, dy : dy + 8, dx : dx + 8]
    return out


def train(net: MLP | CNN, images: np.ndarray, labels: np.ndarray, *, epochs: int, shift: float) -> Params:
    """Adam (Kingma & Ba 2014) with a cosine step size, weight decay and a share `shift` of moved images."""
    rng = np.random.default_rng(SEED)
    params = net.init(rng)
    first = {k: np.zeros_like(v) for k, v in params.items()}
    second = {k: np.zeros_like(v) for k, v in params.items()}
    batch, peak, decay, step = 64, 2e-3, 1e-4, 0
    total = epochs * -(-len(images) // batch)
    for _ in range(epochs):
        order = rng.permutation(len(images))
        for start in range(0, len(order), batch):
            pick = order[start : start + batch]
            x = images[pick]
            moved = rng.random(len(pick)) < shift
            x = np.where(moved[:, None, None], shifted(rng, x), x)
            logits, saved = net.forward(params, x)
            prob = np.exp(logits - logits.max(1, keepdims=True))
            prob /= prob.sum(1, keepdims=True)
            prob[np.arange(len(pick)), labels[pick]] -= 1
            grads = net.backward(params, saved, (prob / len(pick)).astype(np.float32))
            step += 1
            rate = peak * 0.5 * (1 + np.cos(np.pi * step / total))
            for k, g in grads.items():
                g = g + decay * params[k] if k.endswith(".w") else g
                first[k] = 0.9 * first[k] + 0.1 * g
                second[k] = 0.999 * second[k] + 0.001 * g * g
                update = (first[k] / (1 - 0.9**step)) / (np.sqrt(second[k] / (1 - 0.999**step)) + 1e-8)
                params[k] = (params[k] - rate * update).astype(np.float32)
    return params


def accuracy(net: MLP | CNN, params: Params, images: np.ndarray, labels: np.ndarray) -> float:
    return float((net.forward(params, images)[0].argmax(1) == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the npz files (default: beside this file)")
    parser.add_argument("--epochs", type=int, default=120)
    args = parser.parse_args()
    data = load_split()
    np.savez_compressed(args.out / "digits.npz", **data)
    pixels = data["images"].astype(np.float32) / 16
    tr, te = data["train_index"], data["test_index"]
    for name, net, shift in (("mlp", MLP(), 0.3), ("cnn", CNN(), 0.5)):
        params = train(net, pixels[tr], data["labels"][tr], epochs=args.epochs, shift=shift)
        np.savez(args.out / f"{name}.npz", **params)
        print(
            f"{name}: train {accuracy(net, params, pixels[tr], data['labels'][tr]):.4f} "
            f"held out {accuracy(net, params, pixels[te], data['labels'][te]):.4f} "
            f"({sum(v.size for v in params.values())} parameters)",
            flush=True,
        )


if __name__ == "__main__":
    main()
