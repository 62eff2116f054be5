"""What the compiler hands to the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sluice.asm import Program
from sluice_hw.config import ChipConfig

from .graph import Graph
from .layout import Layout
from .reference import dequantise_array, quantise_array
from .tensors import GraphError, QuantParams

__all__ = ["Compiled", "Constant", "TensorSpec"]


@dataclass(frozen=True)
class TensorSpec:
    """An input or output: where it lies in HBM, and how the host packs it.

    Attributes
    ----------
    name
        Of the graph's input or output.
    shape, dtype
        Of the array that the host sees.
    slice_address, slices
        First slice, and slices that it has.
    layout
        How it lies there.
    convert
        Quantisation that the host applies, where the graph's own type is float32; None otherwise.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    slice_address: int
    slices: int
    layout: Layout
    convert: QuantParams | None = None

    def pack(self, array: np.ndarray) -> bytes:
        """Bytes for the slices.

        Raises
        ------
        GraphError
            When shape or dtype are not those of the tensor.
        """
        array = np.asarray(array)
        if array.shape != self.shape or array.dtype.name != self.dtype:
            raise GraphError(
                f"tensor '{self.name}' is {array.dtype.name}{list(array.shape)}; "
                f"allowed: {self.dtype}{list(self.shape)}"
            )
        if self.convert is not None:
            array = quantise_array(array, self.convert)
        return self.layout.pack(array)

    def unpack(self, data: bytes) -> np.ndarray:
        """The array in the bytes of the slices."""
        array = self.layout.unpack(bytes(data)).reshape(self.shape)
        return array if self.convert is None else dequantise_array(array, self.convert)

    def __str__(self) -> str:
        shape = ",".join(map(str, self.shape))
        host = "" if self.convert is None else f", converted by the host with {self.convert}"
        return f"{self.name}: {self.dtype}[{shape}] at slice {self.slice_address} +{self.slices}: {self.layout}{host}"


@dataclass(frozen=True)
class Constant:
    """Weights or parameters in HBM."""

    name: str
    slice_address: int
    slices: int
    data: bytes


@dataclass(frozen=True)
class Compiled:
    """A program with all that belongs to it.

    Attributes
    ----------
    graph
        The quantised graph it computes; ``run_quantised(graph, ...)`` gives the same values.
    program
        Microcode; entry 0, no parameters.
    constants
        What the host writes once, before the first run.
    inputs, outputs
        Tensors by name.
    macs
        Multiply-adds that the graph asks for, all its inputs together.
    cycles
        Estimate of the time from start to interrupt.
    hbm_slices
        One past the last slice that belongs to the program.
    plan
        Title and text of every pass.
    """

    graph: Graph
    config: ChipConfig
    program: Program
    constants: tuple[Constant, ...]
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    macs: int
    cycles: int
    hbm_base: int
    hbm_slices: int
    plan: tuple[tuple[str, str], ...] = field(default=())

    @property
    def params(self) -> tuple[int, ...]:
        """Values of the parameter registers: none is used."""
        return ()

    def hbm_image(self) -> bytes:
        """The constants as they lie in HBM from slice ``hbm_base`` on."""
        size = self.program_slice_bytes
        last = max((c.slice_address + c.slices for c in self.constants), default=self.hbm_base)
        image = bytearray((last - self.hbm_base) * size)
        for c in self.constants:
            at = (c.slice_address - self.hbm_base) * size
            image[at : at + len(c.data)] = c.data
        return bytes(image)

    @property
    def program_slice_bytes(self) -> int:
        return self.config.slice_bytes

    def describe(self) -> str:
        """The plan of every pass, as text."""
        return "\n\n".join(f"{title}\n{text}" for title, text in self.plan)
