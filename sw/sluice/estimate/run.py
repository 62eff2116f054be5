"""From a program to its cycles."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.asm import Program
from sluice.golden.faults import UnitFault
from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Unit

from .engine import Engine
from .errors import EstimateError
from .issue import Issue
from .load import TimedLoad
from .mxu import TimedMatrix
from .result import Estimate
from .store import TimedStore
from .timing import Timing
from .vpu import TimedVector

__all__ = ["estimate"]

#: Words that a program may execute; far more than an instant.
WORD_LIMIT = 5_000_000


def estimate(
    program: Program | Sequence[int],
    config: ChipConfig,
    *,
    params: Sequence[int] = (),
    entry: int = 0,
    word_limit: int = WORD_LIMIT,
) -> Estimate:
    """The cycles that a program takes on a chip, from doorbell to interrupt as the chip's counter has them.

    Parameters
    ----------
    program
        Words of the microcode store from address 0.
    params
        Parameter registers from 0; the rest are 0.
    entry
        Address of the first word.
    word_limit
        Words that it may execute, loops included.

    Raises
    ------
    EstimateError
        For a program that would stop by an error of the sequencer, would not end, or executes too many words.
    """
    if config.is_float:
        raise EstimateError(f"the cost model knows int8 chips, and '{config.name}' multiplies {config.dtype}")
    if config.ecc == "inband":
        raise EstimateError(f"the cost model knows no check bits in HBM itself, and '{config.name}' has ECC 'inband'")
    words = program.words if isinstance(program, Program) else list(program)
    engine = Engine(config)
    ld, st, mxu, vpu = TimedLoad(engine), TimedStore(engine), TimedMatrix(engine), TimedVector(engine)
    engine.units = {Unit.LD: ld, Unit.ST: st, Unit.MXU: mxu, Unit.VPU: vpu}
    registers = [*params, *[0] * (isa.PARAM_REGISTERS - len(params))]
    issue = Issue(engine, words, registers, entry, word_limit)
    try:
        engine.run()
    except UnitFault as fault:
        raise EstimateError(f"the program stops at word {issue.pc}: {fault.reason}") from None
    stuck = [unit.stuck for unit in engine.units.values() if unit.queue]
    if issue.halted_at is None or stuck:
        raise EstimateError(f"the program does not end: {'; '.join(stuck) or 'the sequencer waits'}")
    last = max(unit.ends for unit in engine.units.values())
    cycles = max(issue.halted_at, last + 1) + Timing.HALT
    return Estimate.of(engine, cycles)
