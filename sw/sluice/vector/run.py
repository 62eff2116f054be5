"""Compiled vector programs and how they are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sluice.asm import Program
from sluice.errors import UsageError
from sluice.golden.vector_program import Matmul, Part, Space, Step
from sluice.runtime import Device, RunReport
from sluice_hw.config import ChipConfig

from .emit import emit
from .lower import Image, lower
from .roll import roll
from .values import Tensor, analyse

__all__ = ["VectorProgram", "compile_program"]


@dataclass(frozen=True)
class VectorProgram:
    """Microcode of a vector program, and where its tensors lie in HBM.

    Attributes
    ----------
    config
        The chip it is for.
    program
        Its words; parameter register 0 is the first slice of the program's memory.
    inputs, outputs
        Images in that memory, by name.
    slices
        Size of that memory.
    lane_cycles
        What the passes' blocks take in the vector unit: a cycle each, or as many as the memory that is asked most.
    """

    config: ChipConfig
    program: Program
    inputs: Mapping[str, Image]
    outputs: Mapping[str, Image]
    slices: int
    lane_cycles: int

    def run(self, device: Device, tensors: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], RunReport]:
        """Run on a device: write the inputs, run, read the results.

        Parameters
        ----------
        tensors
            float32 (or their patterns as uint32) by name; what the program does not read is not looked at.

        Returns
        -------
        dict
            Results by name, float32 of golden's bits.
        RunReport
            What the run cost.

        Raises
        ------
        UsageError
            For a tensor that is missing, has another shape, or is not bf16 where the program was told so.
        """
        size = self.config.slice_bytes
        with device.alloc((self.slices * size,), "uint8", name="a vector program's tensors") as memory:
            for name, image in self.inputs.items():
                if name not in tensors:
                    raise UsageError(f"tensor {name!r} is missing; the program reads {', '.join(self.inputs)}")
                device.write_memory(memory.address + image.first * size, pack(image, np.asarray(tensors[name])))
            report = device.run(self.program, params=[memory.slice])
            results = {}
            for name, image in self.outputs.items():
                raw = device.read_memory(memory.address + image.first * size, image.rows * image.pitch)
                results[name] = unpack(image, raw)
        return results, report


def compile_program(
    steps: Sequence[Step],
    tensors: Mapping[str, Tensor | tuple[int, ...]],
    config: ChipConfig,
    *,
    outputs: Sequence[str] | None = None,
) -> VectorProgram:
    """Compile a program of passes and matmuls to microcode.

    Parameters
    ----------
    steps
        As :func:`sluice.golden.vector_program.run` takes them; the chip gives the same bits as that with the chip's
        ``cols`` as lanes and its ``rows``.
    tensors
        What the program is given, by name: a :class:`Tensor`, or the shape of an fp32 one. One that the steps write in
        parts, all of them before they read it, need not be given to :meth:`VectorProgram.run`.
    config
        The chip, of bf16.
    outputs
        Names to give back; by default what the last step writes.

    Raises
    ------
    CompileError
        Naming step and tensor, where something does not fit or the chip cannot do it.
    UsageError
        For a chip without floating point, or an empty program.
    """
    if not config.is_float:
        raise UsageError(f"vector programs need a chip of bf16, and {config.name!r} is one of {config.dtype}")
    if not steps:
        raise UsageError("a vector program must have at least one step")
    given = {name: t if isinstance(t, Tensor) else Tensor(tuple(t)) for name, t in tensors.items()}
    analysis = analyse(steps, given, outputs if outputs is not None else [_result(steps[-1])], config.cols)
    lowered = lower(analysis, config)
    program = emit(roll(lowered.nodes), config)
    return VectorProgram(config, program, lowered.inputs, lowered.outputs, lowered.slices,
                         lowered.lane_cycles)  # fmt: skip


def _result(step: Step) -> str:
    dst = step.dst
    if dst is None and not isinstance(step, (Matmul, Space)):
        return step.reduce.dst
    return dst.of if isinstance(dst, Part) else dst


def pack(image: Image, array: np.ndarray) -> bytes:
    """Bytes of a tensor as its image has them.

    Raises
    ------
    UsageError
        As :meth:`VectorProgram.run`.
    """
    value = image.value
    if array.dtype not in (np.float32, np.uint32):
        raise UsageError(f"tensor {value!r} takes float32, or uint32 patterns, not {array.dtype}")
    if array.shape != value.shape:
        raise UsageError(f"tensor {value!r} must have shape {value.shape}, not {array.shape}")
    bits = np.ascontiguousarray(array).view(np.uint32).reshape(value.rows, value.cols)
    if value.bf16:
        if (bits & 0xFFFF).any():
            raise UsageError(f"tensor {value!r} must hold bf16 values")
        bits = (bits >> 16).astype("<u2")
    bits = bits.T if value.flipped else bits
    raw = np.ascontiguousarray(bits.astype(bits.dtype.newbyteorder("<"))).view(np.uint8)
    out = np.zeros((image.rows, image.pitch), np.uint8)
    out[:, : raw.shape[1]] = raw
    return out.tobytes()


def unpack(image: Image, raw: bytes) -> np.ndarray:
    """The tensor of an image, float32."""
    value = image.value
    rows = np.frombuffer(raw, np.uint8).reshape(image.rows, image.pitch)
    bits = rows.view("<u2").astype(np.uint32) << 16 if value.bf16 else rows.view("<u4").astype(np.uint32)
    return bits.view(np.float32).reshape(value.shape)
