"""A case on a chip: what must be as on the golden machine."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

import numpy as np

from sluice.errors import ChipError, DeviceError, DeviceTimeout, UsageError
from sluice.runtime import Device, RunReport
from sluice_hw.isa import Error, Op, Unit
from verif.unit.compiler.races import trace

from .illegal import Broken
from .legal import Case

__all__ = ["Bench", "Mismatch", "place_of"]

#: Cycles that a program may take; the longest takes a tenth.
TIMEOUT = 400_000
#: Cycles without progress, above the longest train.
WATCHDOG = 4000
#: Slices looked at around the program's, where all of HBM would take too long.
GUARD = 2


class Mismatch(AssertionError):
    """The chip does something else than golden."""


class Bench:
    """A chip that runs cases one after the other, with what all of its HBM must hold.

    Memory between programs is not cleared: a program never reads what it has not written, and all that it does not
    write must stay.
    """

    def __init__(self, device: Device) -> None:
        self.device, self.config = device, device.config
        #: All of HBM as an array, where the chip is in this process.
        self._view: np.ndarray | None = None
        with contextlib.suppress(UsageError):
            self._view = device.hbm_view()
        rng = np.random.default_rng(1)
        self._expected = rng.integers(0, 256, self.config.hbm_bytes, np.uint8)
        if self._view is not None:
            self._view[:] = self._expected
        device.write_csr("WATCHDOG", WATCHDOG)

    def run(self, case: Case) -> RunReport:
        """Run a case; the chip's report of it.

        Raises
        ------
        Mismatch
            When something differs from golden. The chip can be used again.
        """
        window = self._prepare(case)
        device, draft = self.device, case.draft
        try:
            report = device.run(case.lowered.program, params=draft.params, entry=draft.entry, timeout_cycles=TIMEOUT,
                                verify=False)  # fmt: skip
        except (ChipError, DeviceTimeout) as error:
            self._repair()
            raise Mismatch(f"golden ends with HALT {case.result.halt_code}, the chip does not: {error}") from error
        except DeviceError as error:  # counters that do not add up
            self._repair()
            raise Mismatch(str(error)) from error
        wrong = [f"halt code {report.halt_code}, not {case.result.halt_code}"] * (
            report.halt_code != case.result.halt_code)  # fmt: skip
        for name, want in dataclasses.asdict(case.result.counters).items():
            if report.work[name] != want:
                wrong.append(f"counter {name} {report.work[name]}, not {want}")
        wrong += self._tokens(case)
        self._expected[window] = case.want
        wrong += self._memory(case, window)
        if wrong:
            self._repair()
            raise Mismatch("; ".join(wrong))
        return report

    def stop(self, case: Case, broken: Broken) -> None:
        """Run a broken program to its error, reset, and run the case itself.

        What stops the chip is what golden says, and of HBM only what the program may write can have changed.

        Raises
        ------
        Mismatch
            When that is not so.
        """
        window = self._prepare(case)
        device, draft, want = self.device, case.draft, broken.fault
        device.load_program(broken.program, verify=False)
        device.start(params=draft.params, entry=draft.entry)
        if not device.transport.wait_interrupt(TIMEOUT):
            device.reset()
            raise Mismatch(f"{broken.what}: no interrupt")
        got = device.last_error
        device.transport.advance(500)  # what is under way ends
        device.reset()
        # Which of the bytes or rows out of range is named differs: DMA looks at the last one first.
        # Of several streams of a pass that leave their memories either is named.
        ranges = (Error.VMEM_RANGE, Error.ACC_RANGE)
        known = want.code not in ranges
        expected = (want.code, want.pc, want.field, want.unit, want.info if known else 0)
        unit = {"sequencer": "seq"}.get(got.unit, got.unit.lower()) if got is not None else ""
        found = None if got is None else (got.code, got.pc, got.field, unit, got.info if known else 0)
        if found is not None and self.config.is_float and not known and found[0] in ranges and want.unit == "vpu":
            found = (want.code, *found[1:4], 0)
        if found != expected:
            self._repair()
            raise Mismatch(f"{broken.what}: the chip gives {found}, not {expected}")
        self._changed(case, window)
        wrong = self._memory(case, window)
        if wrong:
            self._repair()
            raise Mismatch(f"{broken.what}: {wrong[0]}")
        self.run(case)

    def interrupt(self, case: Case, moment: int) -> bool:
        """Start a case, reset the chip after ``moment`` cycles, then run the case whole; whether it still ran then.

        Nothing is left of it, and of HBM only what it may write can have changed.

        Raises
        ------
        Mismatch
            When that is not so.
        """
        window = self._prepare(case)
        device = self.device
        device.load_program(case.lowered.program, verify=False)
        device.start(params=case.draft.params, entry=case.draft.entry)
        device.transport.advance(moment)
        running = bool(device.status["running"])
        device.reset()
        left = [name for name, value in device.status.items() if value]
        for unit in Unit:
            state = device.read_fields(f"{unit.name}_STATE")
            if (state["idle"], state["head"], state["level"]) != (1, 0, 0):
                left.append(f"{unit.name}_STATE")
            if device.read_csr(f"TOKENS_{unit.name}"):
                left.append(f"TOKENS_{unit.name}")
        self._changed(case, window)
        wrong = [f"{name} is not as after a reset" for name in left] + self._memory(case, window)
        if wrong:
            self._repair()
            raise Mismatch(f"a reset after {moment} cycles: {'; '.join(wrong)}")
        self.run(case)
        return running

    def check_memory(self, case: Case) -> None:
        """HBM is as the case left it; raises :class:`Mismatch`."""
        wrong = self._memory(case, self._window(case))
        if wrong:
            raise Mismatch(wrong[0])

    def _changed(self, case: Case, window: slice) -> None:
        """Take over what a broken program may have written."""
        arena, size = case.draft.arena, self.config.slice_bytes
        for area in (arena.scratch, arena.dump):
            place = slice(area.start * size, area.end * size)
            if self._view is not None:
                self._expected[place] = self._view[place]
            else:
                data = self.device.read_memory(place.start, place.stop - place.start)
                self._expected[place] = np.frombuffer(data, np.uint8)

    def _window(self, case: Case) -> slice:
        """Bytes of HBM that the program may touch."""
        area, size = case.draft.arena.hbm, self.config.slice_bytes
        return slice(area.start * size, area.end * size)

    def _prepare(self, case: Case) -> slice:
        """Put the case's image into its window of HBM, and close the rest to the program; the window."""
        area, window = case.draft.arena.hbm, self._window(case)
        self._expected[window] = case.image
        if self._view is not None:
            self._view[window] = case.image
        else:
            wider = self._guarded(window)
            self.device.write_memory(wider.start, self._expected[wider].tobytes())
        self.device.write_csr("HBM_LO", area.start)
        self.device.write_csr("HBM_HI", area.end)
        return window

    def _repair(self) -> None:
        """After a failure HBM is what it must be before the next case."""
        if self._view is not None:
            self._view[:] = self._expected

    def _guarded(self, window: slice) -> slice:
        more = GUARD * self.config.slice_bytes
        return slice(max(0, window.start - more), min(self.config.hbm_bytes, window.stop + more))

    def _tokens(self, case: Case) -> list[str]:
        out = []
        for giver in Unit:
            left = self.device.read_fields(f"TOKENS_{giver.name}")
            for taker in Unit:
                name, want = f"to_{taker.name.lower()}", case.result.tokens_left.get((giver, taker), 0)
                if left.get(name, 0) != want:
                    out.append(f"tokens left from {giver.name} to {taker.name} {left[name]}, not {want}")
        return out

    def _memory(self, case: Case, window: slice) -> list[str]:
        if self._view is not None:
            got, start = self._view, 0
        else:
            wider = self._guarded(window)
            got = np.frombuffer(self.device.read_memory(wider.start, wider.stop - wider.start), np.uint8)
            start = wider.start
        want = self._expected[start : start + got.size]
        if np.array_equal(got, want):
            return []
        at = np.flatnonzero(got != want)
        first = int(at[0]) + start
        return [f"{at.size} bytes of HBM differ, the first in {place_of(case, first)}: "
                f"{got[at[0]]:#04x}, not {want[at[0]]:#04x}"]  # fmt: skip


def place_of(case: Case, address: int) -> str:
    """A byte of HBM in words: which store wrote it last, from where, or which area it is in."""
    size, arena, draft = case.config.slice_bytes, case.draft.arena, case.draft
    where = f"slice {address // size} byte {address % size}"
    shape: Mapping[str, int] = {}
    written = ""
    for unit, uop in trace(case.lowered.program, case.config, draft.params, draft.entry):
        if uop.op is Op.DMA_SHAPE and unit is Unit.ST:
            shape = uop.fields
        elif uop.op is Op.HBM_WRITE_SLICE:
            offset = address - uop.address["hbm"] * size
            row, column = divmod(offset, shape["row_bytes"])
            if 0 <= offset < uop.fields["count"] * size:
                source = f"VMEM {(uop.address['vmem'] + row * shape['pitch'] + column) % (1 << 32):#x}"
                written = f", from {source if row < shape['rows'] else 'the padding'} by the store at word {uop.pc}"
    if written:
        return where + written
    for name in ("raw", "clean", "scratch", "dump"):
        area = getattr(arena, name)
        if area.start <= address // size < area.end:
            return f"{where} ({name}, never written)"
    return f"{where}, outside of the program's"
