"""Run what the compiler made on a device, and compare every value with golden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sluice.compiler import Compiled, run_quantised
from sluice.errors import UsageError

from .device import Device
from .memory_info import compiled_parts
from .report import RunReport
from .transport import WORD

__all__ = ["CompiledModel", "RunOutcome", "Verification"]

Arrays = np.ndarray | Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Verification:
    """A comparison with golden.

    Attributes
    ----------
    values
        Values compared.
    mismatches
        Values that differ from the graph's integer executor, or from the golden machine on the same microcode.
    first
        The first of them in words, "" for none.
    """

    values: int
    mismatches: int
    first: str = ""


@dataclass(frozen=True)
class RunOutcome:
    """Results by output name, what they cost, and whether they are right (None: not asked for)."""

    outputs: dict[str, np.ndarray]
    report: RunReport
    verification: Verification | None = None


class CompiledModel:
    """A compiled graph on a device. A context manager: leaving it frees the device's memory.

    Parameters
    ----------
    compiled
        What :func:`sluice.compiler.compile` returned.
    device
        Where it runs; its HBM holds the constants from now on.

    Raises
    ------
    UsageError
        When the program was compiled for another chip.
    OutOfMemory
        When its place in HBM is taken.
    """

    def __init__(self, compiled: Compiled, device: Device) -> None:
        if compiled.config != device.config:
            raise UsageError(
                f"the program was compiled for config {compiled.config.name!r}, the device is a "
                f"{device.config.name!r}" + (" of other fields" if compiled.config.name == device.config.name else "")
            )
        self.compiled, self.device = compiled, device
        self._golden: CompiledModel | None = None
        base, size = compiled.hbm_base, device.config.slice_bytes
        self._place: int | None = device.hbm.reserve(
            base, compiled.hbm_slices - base, f"'{compiled.graph.name}'", compiled_parts(compiled)
        )
        try:
            for constant in compiled.constants:
                device.write_memory(constant.slice_address * size, _whole_words(constant.data))
        except BaseException:
            self.free()
            raise

    def free(self) -> None:
        """Give the device's memory back; a second call does nothing."""
        if self._place is not None:
            self.device.hbm.release(self._place)
            self._place = None
        if self._golden is not None:
            self._golden.device.close()
            self._golden = None

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.free()

    def run(self, inputs: Arrays, *, verify: bool = False, timeout_cycles: int | None = None) -> RunOutcome:
        """Run the graph on arrays.

        Parameters
        ----------
        inputs
            One array for a graph of one input, or arrays by name, of the graph's shapes and types.
        verify
            Compute the same with golden twice, from the graph and from the microcode, and count the differences.

        Raises
        ------
        UsageError, GraphError
            For arrays that are not the graph's inputs.
        ChipError, DeviceTimeout
            From the device.
        """
        specs = self.compiled.inputs
        if not isinstance(inputs, Mapping):
            if len(specs) != 1:
                raise UsageError(f"there are {len(specs)} inputs; give arrays by name: {', '.join(specs)}")
            inputs = {next(iter(specs)): inputs}
        if set(inputs) != set(specs):
            raise UsageError(f"inputs are {sorted(inputs)}; needed: {sorted(specs)}")
        if self._place is None:
            raise UsageError(f"'{self.compiled.graph.name}' has been freed")
        packed = {name: bytes(spec.pack(np.asarray(inputs[name]))) for name, spec in specs.items()}
        outputs, report = self._run(packed, timeout_cycles)
        if not verify:
            return RunOutcome(outputs, report)
        wanted = [("the graph's reference", run_quantised(self.compiled.graph, inputs))]
        if self.device.transport.name != "golden":
            if self._golden is None:
                self._golden = CompiledModel(self.compiled, Device(self.device.config, "golden"))
            wanted.append(("the golden machine", self._golden._run(packed, None)[0]))
        return RunOutcome(outputs, report, compare(outputs, wanted))

    def _run(self, packed: Mapping[str, bytes], timeout_cycles: int | None) -> tuple[dict[str, np.ndarray], RunReport]:
        device, size = self.device, self.device.config.slice_bytes
        for name, data in packed.items():
            device.write_memory(self.compiled.inputs[name].slice_address * size, _whole_words(data))
        if device.program is not self.compiled.program:
            device.load_program(self.compiled.program)
        report = device.run(params=self.compiled.params, timeout_cycles=timeout_cycles)
        outputs = {
            name: spec.unpack(device.read_memory(spec.slice_address * size, spec.slices * size))
            for name, spec in self.compiled.outputs.items()
        }
        return outputs, report


def compare(outputs: Mapping[str, np.ndarray], wanted: list[tuple[str, Mapping[str, np.ndarray]]]) -> Verification:
    """Count values that differ from at least one of several references."""
    values = mismatches = 0
    first = ""
    for name, got in outputs.items():
        wrong = np.zeros(got.shape, bool)
        for who, reference in wanted:
            want = reference[name]
            if got.shape != want.shape or got.dtype != want.dtype:
                raise UsageError(
                    f"output {name!r} is {got.dtype}{list(got.shape)}, {who} gives {want.dtype}{list(want.shape)}"
                )
            bad = got != want
            if bad.any() and not first:
                at = tuple(int(i) for i in np.argwhere(bad)[0])
                first = f"{name}{list(at)} is {got[at]}, {who} has {want[at]}"
            wrong |= bad
        values += got.size
        mismatches += int(wrong.sum())
    return Verification(values, mismatches, first)


def _whole_words(data: bytes) -> bytes:
    """Filled up, so that the driver need not read what stands behind it."""
    return data + bytes(-len(data) % WORD)
