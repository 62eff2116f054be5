"""An encoder layer of random weights on a chip: a transformer's layer to try without a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluice.errors import UsageError
from sluice.golden.numerics_float import fp32_from_bits
from sluice.golden.transformer import ENCODER_WEIGHTS, encoder_layer
from sluice.golden.vector_ops import AluOp, alu
from sluice.golden.vector_program import Step, run
from sluice_hw.config import ChipConfig

from .run import VectorProgram, compile_program
from .values import Tensor

__all__ = ["RandomLayer", "random_weights", "rows_of", "to_bf16"]


def rows_of(rng: np.random.Generator, rows: int, cols: int, size: float = 3.0) -> np.ndarray:
    """Normally distributed fp32 values."""
    return (rng.standard_normal((rows, cols)) * size).astype(np.float32)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """fp32 values rounded to bf16."""
    return fp32_from_bits(alu(AluOp.TO_BF16, x.astype(np.float32)))


def random_weights(rng: np.random.Generator, hidden: int) -> dict[str, np.ndarray]:
    """Weights of an encoder layer by the names of :data:`ENCODER_WEIGHTS`, sized so that values stay about 1."""
    shapes = {"query": (hidden, hidden), "key": (hidden, hidden), "value": (hidden, hidden), "mix": (hidden, hidden),
              "up": (4 * hidden, hidden), "down": (hidden, 4 * hidden)}  # fmt: skip
    out = {}
    for name, shape in shapes.items():
        out[name] = rows_of(rng, *shape, shape[1] ** -0.5)
        out[f"{name}.bias"] = rows_of(rng, 1, shape[0], 0.1)[0]
        if name in ("mix", "down"):
            out[f"{name}.gamma"] = 1 + rows_of(rng, 1, hidden, 0.1)[0]
            out[f"{name}.beta"] = rows_of(rng, 1, hidden, 0.1)[0]
    assert set(out) == set(ENCODER_WEIGHTS)
    return out


@dataclass(frozen=True)
class RandomLayer:
    """A layer of BERT's shape, (sequence, hidden) to the same, with random input and weights.

    Attributes
    ----------
    steps
        For tensor-level golden.
    inputs
        Input ``x`` and weights ``w.*``, float32; matrices and ``x`` are bf16 values.
    program
        For the chip; its result is ``y``.
    """

    config: ChipConfig
    steps: list[Step]
    inputs: dict[str, np.ndarray]
    program: VectorProgram

    @classmethod
    def make(cls, config: ChipConfig, *, sequence: int, hidden: int, heads: int, causal: bool = False, seed: int = 1
             ) -> RandomLayer:  # fmt: skip
        """Draw and compile it.

        Raises
        ------
        UsageError
            For sizes that are no positive integers, heads that do not divide ``hidden``, or a chip without
            floating-point lanes.
        SluiceError
            For a layer that does not fit the chip.
        """
        for name, value in (("sequence", sequence), ("hidden", hidden), ("heads", heads)):
            if value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")
        if hidden % heads:
            raise UsageError(f"heads must divide hidden: {heads} does not divide {hidden}")
        if not config.is_float:
            raise UsageError(f"a layer needs a chip with floating-point lanes (dtype bf16, such as v2), and chip "
                             f"{config.name!r} is of {config.dtype}")  # fmt: skip
        rng = np.random.default_rng(seed)
        inputs = {"x": to_bf16(rows_of(rng, sequence, hidden, 1.0))}
        for name, w in random_weights(rng, hidden).items():
            inputs[f"w.{name}"] = to_bf16(w) if w.ndim == 2 else w
        steps = encoder_layer("x", "y", weights="w.", sequence=sequence, hidden=hidden, heads=heads, causal=causal,
                              lanes=config.cols)  # fmt: skip
        tensors = {name: Tensor(x.shape, bf16=x.ndim == 2) for name, x in inputs.items()}
        return cls(config, steps, inputs, compile_program(steps, tensors, config, outputs=["y"]))

    def golden(self) -> np.ndarray:
        """What the layer must give, bit for bit: float32 (sequence, hidden)."""
        memory = dict(self.inputs)
        run(self.steps, memory, lanes=self.config.cols, rows=self.config.rows)
        return fp32_from_bits(np.asarray(memory["y"]).view(np.uint32))
