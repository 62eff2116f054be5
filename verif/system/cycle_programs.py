"""The fixed set of programs whose cycles are recorded (``baselines/cycles.json``) and whose estimates are checked.

Nothing here depends on the session's seed. Timing does not depend on data, so programs run on whatever HBM holds.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sluice.asm import Program, assemble
from sluice.cli.digits import quantised
from sluice.compiler import compile as compile_graph
from sluice.compiler import matmul_graph, quantise
from sluice_hw.config import PRESETS, ChipConfig
from verif.models import vector_cases
from verif.system.configs import CONFIGS, FLOAT_CONFIGS, RANDOM_CONFIGS, examples
from verif.unit.compiler.random_graphs import random_image_graph

__all__ = ["CASES", "CHIPS", "Case", "chip", "estimated"]

TINY_BF16 = FLOAT_CONFIGS["tiny-bf16"]

#: int8 presets, a chip whose sizes are no powers of two, one whose memory moves three beats in four cycles, a very
#: small one with ECC, and one of bf16, whose programs nobody estimates.
CHIPS: dict[str, ChipConfig] = {
    **{name: config for name, config in PRESETS.items() if not config.is_float}, "wide": CONFIGS["wide"],
    "narrow": PRESETS["small"].replace(name="narrow", hbm_bytes_per_cycle=24),
    "odd": RANDOM_CONFIGS["odd"], TINY_BF16.name: TINY_BF16,
}


#: A program that was to stay unseen and found a mistake in the model (a load that ended twice).
_SEEN = {"wide-matmul-59x83x53-i32"}


@dataclass(frozen=True)
class Case:
    """A program for a chip."""

    config: str
    name: str
    build: Callable[[], Program]

    @property
    def unseen(self) -> bool:
        """Whether the cost model must not have been tuned with it: two of five, by the name's hash."""
        if str(self) in _SEEN:
            return False
        return hashlib.sha256(f"{self.config} {self.name}".encode()).digest()[0] % 5 < 2

    def __str__(self) -> str:
        return f"{self.config}-{self.name}"


def estimated(name: str) -> bool:
    """Whether the cost model knows the chip's programs."""
    return not CHIPS[name].is_float


def chip(name: str) -> ChipConfig:
    """The chip of a case."""
    return CHIPS[name]


def _matmul(config: str, text: str) -> Case:
    """``MxKxN``, with ``:i32`` for int32 results and ``:relu``."""
    shape, *options = text.split(":")
    m, k, n = map(int, shape.split("x"))

    def build() -> Program:
        graph = matmul_graph(m, k, n, out="int32" if "i32" in options else "int8", relu="relu" in options)
        return compile_graph(graph, chip(config)).program

    return Case(config, f"matmul-{text.replace(':', '-')}", build)


def _digits(config: str, net: str, batch: int) -> Case:
    return Case(config, f"{net}-{batch}", lambda: compile_graph(quantised(net, batch), chip(config)).program)


def _random(config: str, number: int) -> Case:
    def build() -> Program:
        rng = np.random.default_rng([1977, number])
        batch = int(rng.integers(1, 7))
        graph = random_image_graph(rng, int(rng.integers(1, 7)), batch)
        size = graph.inputs["x"].type.shape[1:]
        data = rng.normal(0, 1, (8, *size)).astype(np.float32)
        return compile_graph(quantise(graph, data, dialect=("fixed", "float")[number % 2]), chip(config)).program

    return Case(config, f"random-{number}", build)


def _example(path: Path) -> Case:
    return Case("tiny", f"asm-{path.stem}", lambda: assemble(path.read_text(), file=path.name))


@functools.cache
def _vector_cases() -> dict[str, vector_cases.Case]:
    return {case.name: case for case in vector_cases.cases(1)}


def _vector(name: str) -> Case:
    return Case(TINY_BF16.name, name, lambda: _vector_cases()[name].compile(TINY_BF16).program)


#: Of :func:`verif.models.vector_cases.cases`.
_VECTORS = (
    "softmax 11x17", "masked softmax 3x40", "LayerNorm 11x17", "RMSNorm 3x40", "GELU 11x17", "rotary bf16 9x12",
    "attention 5x9x8", "causal attention 17x17x3", "column sum 7", "depthwise by 2", "stages", "matmuls",
    "encoder 5x12", "encoder 24x8",
)  # fmt: skip
_MATMULS = {
    "tiny": "1x1x1 8x8x8 8x8x8:i32 9x17x7 37x70x19 64x64x64 64x64x64:i32 64x64x64:relu 128x128x128:i32 1x64x64 "
            "100x16x8 7x200x5 200x8x8:i32 16x16x128 60x60x60 31x9x100:relu 5x5x300 256x24x24",
    "wide": "1x1x1 5x5x12 59x83x53 59x83x53:i32 6x11x13 30x30x30:relu 4x40x90 100x7x12",
    "small": "1x1x1 16x16x16 8x8x8 63x64x64:relu 256x256x256 512x512x512 1x128x128 33x100x47:i32 17x300x40 100x100x100 "
             "200x64x200:relu 128x512x64:i32 300x16x16",
    "edgetpu": "1x1x1 64x64x64 128x512x256 1x256x256 200x300x100:i32 256x256x256 512x512x512 500x64x64:relu 33x700x90",
    "mid128": "1x1x1 128x128x128 1x1024x1024 8x1024x1024 32x1024x1024 128x1024x1024 512x512x512 1024x768x768 "
              "1024x1024x1024 100x300x200 300x500x700:i32 1000x128x128:relu",
    "v1-ddr3": "1x1x1 256x256x256 1x512x512 64x512x512 2048x1024x1024 100x300x700 512x256x256:relu",
    "narrow": "1x1x1 16x16x16 63x64x64:relu 64x256x64 1x128x128 33x100x47:i32 17x300x40 "
              "100x100x100 300x16x16 16x16x500",
    "odd": "1x1x1 6x6x5 9x17x7 12x12x10:i32 20x6x5:relu 37x30x19 1x40x40 64x64x64 31x9x50:relu 50x50x50",
    "tiny-hbm2": "1x1x1 8x8x8 64x64x64 64x64x64:i32 1x64x64 100x16x8 7x200x5 60x60x60 31x9x100:relu 128x128x128:i32 "
                 "37x70x19 128x64x128",
    "v1": "1x1x1 256x256x256 1x1024x1024 64x512x512 2048x1024x1024 100x300x700 300x500x700:i32 1000x256x256:relu",
}  # fmt: skip
# On `wide` some do not fit.
_RANDOM = {"tiny": range(12), "small": range(12), "wide": (0, 1, 4, 5, 6, 9, 10)}


def _cases() -> list[Case]:
    int8 = [config for config in CHIPS if estimated(config)]
    cases = [_matmul(config, text) for config in int8 for text in _MATMULS.get(config, "1x1x1 64x64x64").split()]
    for config in int8:
        if config == "odd":  # its memories hold no network
            continue
        cases += [_digits(config, net, batch) for net, batch in (("mlp", 1), ("mlp", 50), ("cnn", 1), ("cnn", 16))]
        cases += [_random(config, number) for number in _RANDOM.get(config, range(5))]
    return cases + [_example(path) for path in examples("tiny")] + [_vector(name) for name in _VECTORS]


CASES: list[Case] = _cases()
