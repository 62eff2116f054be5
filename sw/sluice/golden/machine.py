"""The golden machine: an interpreter of microcode over NumPy memories.

It runs the sequencer and the units as the architecture page says, without time: one of them at a time does one thing,
chosen by a *schedule*. A properly synchronised program gives the same result under every schedule; one with a race does
not, which is what random schedules are for.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sluice.asm.program import Program
from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Error, Unit

from .dma import LoadUnit, StoreUnit
from .faults import DeadlockError, Fault, StepLimitError, UnitFault
from .float_vpu import FloatVectorUnit
from .memory import Memory
from .mxu import MatrixUnit
from .sequencer import Sequencer
from .units import UnitModel
from .vpu import VectorUnit

__all__ = ["GoldenMachine", "RunResult", "WorkCounters"]


@dataclass
class WorkCounters:
    """Work done, as the chip's counters count it; none depends on the schedule when a program ends at HALT.

    Attributes
    ----------
    ld_slices, st_slices
        ``count`` of every HBM_READ_SLICE / HBM_WRITE_SLICE that has finished.
    macs
        For every row that entered the array: k x n of the LOAD_WEIGHTS whose tile is active.
    array_rows
        Rows that entered the array: n0 x n1 x n2 of every PULSE_ARRAY.
    weight_tiles
        LOAD_WEIGHTS finished.
    vector_rows
        Result rows of VECTOR, n2 x n3 each; blocks of VECTOR_PASS, rows x blocks each.
    tokens
        Tokens given, one per unit that gets one.
    ops
        Ops that units have finished, SYNC included, setup words and the sequencer's own ops excluded.
    """

    ld_slices: int = 0
    st_slices: int = 0
    macs: int = 0
    array_rows: int = 0
    weight_tiles: int = 0
    vector_rows: int = 0
    tokens: int = 0
    ops: int = 0


@dataclass
class RunResult:
    """How a program ended.

    Attributes
    ----------
    halt_code
        Code of the HALT that ended it; None after an error.
    error
        What stopped the chip; None after HALT.
    counters
        Work done.
    steps
        Words the sequencer executed.
    tokens_left
        Tokens that nobody took, ``{(from, to): count}``, only those that are not 0.
    """

    halt_code: int | None
    error: Fault | None
    counters: WorkCounters
    steps: int
    tokens_left: dict[tuple[Unit, Unit], int] = field(default_factory=dict)

    @property
    def halted(self) -> bool:
        return self.halt_code is not None


class GoldenMachine:
    """A chip without time. Memories keep their contents between programs.

    Parameters
    ----------
    config
        The chip.

    Attributes
    ----------
    hbm, vmem, acc
        :class:`Memory`: uint8 bytes, uint8 bytes, int32 rows of ``cols`` (chips of bf16: patterns of fp32).
    hbm_lo, hbm_hi
        HBM_LO and HBM_HI: slices that a program may touch.
    """

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        # Zeroed pages come from the operating system when first touched, so a large HBM costs nothing until used.
        self.hbm = Memory("HBM", np.zeros(config.hbm_bytes, dtype=np.uint8), Error.HBM_ERROR)
        self.vmem = Memory("VMEM", np.zeros(config.vmem_bytes, dtype=np.uint8), Error.VMEM_RANGE)
        self.acc = Memory("ACC", np.zeros((config.acc_rows, config.cols), dtype=np.int32), Error.ACC_RANGE)
        self.hbm_lo, self.hbm_hi = 0, config.hbm_slices
        self._reset()

    # -- host ----------------------------------------------------------------------------------------------------
    def write_hbm(self, address: int, values: bytes | np.ndarray) -> None:
        """Write bytes at a byte address; arrays go in row-major order with their own bytes, little endian."""
        if isinstance(values, np.ndarray):
            values = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).tobytes()
        block = np.frombuffer(values, dtype=np.uint8)
        self._host_range(address, block.size)
        self.hbm.data[address : address + block.size] = block
        self.hbm.written[address : address + block.size] = True

    def read_hbm(self, address: int, count: int, *, allow_unwritten: bool = False) -> np.ndarray:
        """Copy of ``count`` bytes at a byte address, uint8.

        Raises
        ------
        UnwrittenReadError
            When neither host nor chip has written one of them, unless ``allow_unwritten``.
        """
        self._host_range(address, count)
        if allow_unwritten:
            return self.hbm.data[address : address + count].copy()
        return self.hbm.read(address, (), (), count).copy()

    def clear_memories(self) -> None:
        """Back to memories that nobody has written."""
        for memory in (self.hbm, self.vmem, self.acc):
            memory.clear()

    def _host_range(self, address: int, count: int) -> None:
        if address < 0 or count < 0 or address + count > self.config.hbm_bytes:
            raise ValueError(
                f"host access must lie in 0 to {self.config.hbm_bytes} bytes of HBM, not {address} to {address + count}"
            )

    # -- programs ------------------------------------------------------------------------------------------------
    def run(
        self,
        program: Program | Sequence[int] | bytes,
        *,
        params: Sequence[int] = (),
        entry: int = 0,
        max_steps: int | None = None,
        schedule_seed: int | None = None,
    ) -> RunResult:
        """Run a program to its HALT, or to the error that stops the chip.

        Parameters
        ----------
        program
            Words of the microcode store from address 0; the rest of the store is 0.
        params
            Parameter registers from 0, unsigned 32 bits; the rest are 0.
        entry
            Address of the first word.
        max_steps
            Words that the sequencer may execute; None for no limit.
        schedule_seed
            None: units take turns. A number: a random schedule, the same for the same number.

        Raises
        ------
        DeadlockError
            When nobody can go on.
        UnwrittenReadError, UndefinedError
            For what the contract gives no meaning to; the memories are then as the program left them.
        StepLimitError
            Beyond ``max_steps``.
        ValueError
            For a program or parameters that do not fit the chip.
        """
        if isinstance(program, (bytes, bytearray)):
            program = Program.from_bytes(bytes(program))
        words = program.words if isinstance(program, Program) else list(program)
        if len(words) > self.config.microcode_words:
            raise ValueError(f"{len(words)} words do not fit in the microcode store of {self.config.microcode_words}")
        self._reset()
        self._sequencer = Sequencer(self.config, words, _registers(params), self._units, entry)
        self._run(None if schedule_seed is None else random.Random(schedule_seed), max_steps)
        halt_code = None if self._fault else self._sequencer.halt_code
        left = {pair: n for pair, n in self.tokens.items() if n}
        return RunResult(halt_code, self._fault, self.counters, self._sequencer.steps, left)

    @property
    def stopped(self) -> bool:
        """Whether an error has stopped the chip: ops under way end, no other starts."""
        return self._fault is not None

    def stop(self, fault: Fault) -> None:
        """Stop by an error; the first one counts."""
        if self._fault is None:
            self._fault = fault

    def _reset(self) -> None:
        """What the start of a program clears: tokens, counters, loops, registers and setup of all units."""
        self.counters = WorkCounters()
        self.tokens: dict[tuple[Unit, Unit], int] = {(a, b): 0 for a in Unit for b in Unit}
        self._fault: Fault | None = None
        vector = FloatVectorUnit if self.config.is_float else VectorUnit
        kinds = {Unit.LD: LoadUnit, Unit.ST: StoreUnit, Unit.MXU: MatrixUnit, Unit.VPU: vector}
        self._units: dict[Unit, UnitModel] = {unit: kind(self, unit) for unit, kind in kinds.items()}

    def _run(self, rng: random.Random | None, max_steps: int | None) -> None:
        sequencer, units = self._sequencer, list(self._units.values())
        actors: list[Sequencer | UnitModel] = [sequencer, *units]
        # Unequal speeds find more orders than equal ones.
        speeds = [rng.choice((0.02, 0.2, 1.0)) for _ in actors] if rng else []
        while sequencer.halt_code is None and not self.stopped:
            if max_steps is not None and sequencer.steps >= max_steps:
                raise StepLimitError(f"the program is at pc {sequencer.pc} after {sequencer.steps} words")
            if rng is None:
                progress = False
                for actor in actors:
                    progress |= self._act(actor, None)
            else:
                chosen = rng.choices(actors, speeds)[0]
                progress = self._act(chosen, rng)
                if not progress:
                    progress = any(self._act(actor, rng) for actor in rng.sample(actors, len(actors)))
            if not progress and not self.stopped:
                raise self._deadlock()
        while any([self._act(unit, rng) for unit in units]):  # after an error, what is under way ends
            pass

    def _act(self, actor: Sequencer | UnitModel, rng: random.Random | None) -> bool:
        if isinstance(actor, UnitModel):
            return actor.step(rng)
        if self.stopped:
            return False
        try:
            return actor.step()
        except UnitFault as f:
            self.stop(Fault(f.code, actor.pc, f.field, f.info, "seq", f.reason))
            return True

    def _deadlock(self) -> DeadlockError:
        waiting: dict[str, tuple[str, int, str]] = {}
        at_sequencer = self._sequencer.waiting()
        if at_sequencer:
            waiting["seq"] = at_sequencer
        for unit in self._units.values():
            if unit.queue:
                head = unit.queue[0]
                waiting[unit.unit.name.lower()] = (head.op.name, head.pc, unit.waiting() or "nothing")
        return DeadlockError(waiting)


def _registers(params: Sequence[int]) -> list[int]:
    if len(params) > isa.PARAM_REGISTERS:
        raise ValueError(f"there are {isa.PARAM_REGISTERS} parameter registers, not {len(params)}")
    for i, value in enumerate(params):
        if not 0 <= value < 1 << 32:
            raise ValueError(f"parameter register {i} must be 0 to 2**32 - 1, not {value}")
    return [*params, *[0] * (isa.PARAM_REGISTERS - len(params))]
