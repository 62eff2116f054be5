"""What must hold for a program as a whole."""

from __future__ import annotations

from collections.abc import Callable

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Op

from .errors import ProgramError
from .pass_mode import mode_problem, needed_streams
from .program import Program
from .words import WordError, check_word

__all__ = ["check"]


def check(program: Program, config: ChipConfig) -> None:
    """Check the words and how they work together; what depends on run-time values is left to golden and the chip.

    Words: legal one by one, and no more than the microcode store holds. Loops: each LOOP ends at an END of its level,
    levels rise inwards. A HALT stands outside of every loop. Units: every op has the setup words that it needs before
    it, segments do not overlap, clamps make sense, a pass has a result and uses a stream once, no unit exchanges tokens
    with itself.

    Raises
    ------
    ProgramError
        With every problem found.
    """
    problems: list[tuple[int, str]] = []

    def report(pc: int, text: str) -> None:
        problems.append((pc, text))

    if not program.words:
        raise ProgramError([(0, "the program is empty")])
    if len(program) > config.microcode_words:
        report(len(program) - 1, f"{len(program)} words do not fit in the microcode store of {config.microcode_words}")
    ops: list[tuple[int, Op, dict[str, int]]] = []
    for pc, word in enumerate(program.words):
        try:
            ops.append((pc, *check_word(word, config)))
        except WordError as error:
            report(pc, str(error))
    if not problems:
        _check_flow(ops, report)
        _check_units(ops, config, report)
    if problems:
        raise ProgramError(sorted(problems))


def _check_flow(ops: list[tuple[int, Op, dict[str, int]]], report: Callable[[int, str], None]) -> None:
    open_loops: list[tuple[int, int, int]] = []  # level, end, pc of LOOP
    halted = False
    for pc, op, f in ops:
        if op is Op.LOOP:
            level, end = f["level"], f["end"]
            if open_loops and level <= open_loops[-1][0]:
                report(pc, f"LOOP level {level} inside level {open_loops[-1][0]}: levels must rise inwards")
            if end <= pc or end >= len(ops) or ops[end][1] is not Op.END or ops[end][2]["level"] != level:
                report(pc, f"LOOP end must be the address of a later END of level {level}, not {end}")
            elif open_loops and end >= open_loops[-1][1]:
                report(pc, f"LOOP end {end} lies outside of the loop around it, which ends at {open_loops[-1][1]}")
            open_loops.append((level, end, pc))
        elif op is Op.END:
            if not open_loops:
                report(pc, "END without an open LOOP")
                continue
            level, end, loop_pc = open_loops.pop()
            if level != f["level"] or end != pc:
                report(pc, f"END level {f['level']} does not close the LOOP at {loop_pc} (level {level}, end {end})")
        elif op is Op.HALT and not open_loops:
            halted = True
    for _, _, pc in open_loops:
        report(pc, "LOOP is never closed")
    if not halted:
        report(len(ops) - 1, "the program runs past its last word: no HALT outside of the loops")


def _check_units(
    ops: list[tuple[int, Op, dict[str, int]]], config: ChipConfig, report: Callable[[int, str], None]
) -> None:
    seen: set[object] = set()
    segments: dict[int, tuple[int, int]] = {}
    shape: dict[str, int] = {}
    mode: dict[str, int] = {}
    pass_mode: dict[str, int] = {}

    def need(pc: int, op: Op, what: object, text: str) -> None:
        if what not in seen:
            report(pc, f"{op.name} needs {text} before it")

    for pc, op, f in ops:
        unit = f["unit"] if op is Op.SYNC else isa.OPS[op].unit
        if "wait_ld" in f and (f[f"wait_{isa.Unit(unit).name.lower()}"] or f[f"signal_{isa.Unit(unit).name.lower()}"]):
            report(pc, f"{op.name} exchanges tokens with its own unit {isa.Unit(unit).name}, whose ops are in order")
        if op is Op.DMA_SHAPE:
            seen.add((op, f["unit"]))
        elif op is Op.FEED_SHAPE:
            seen.add(op)
            shape = f
        elif op is Op.FEED_SEGMENT:
            if f["lo"] >= f["hi"]:
                report(pc, f"FEED_SEGMENT hi must be above lo = {f['lo']}, not {f['hi']}")
            segments[f["index"]] = (f["lo"], f["hi"])
        elif op in (Op.VECTOR_SHAPE, Op.VECTOR_RESIDUAL):
            seen.add(op)
        elif op is Op.VECTOR_MODE:
            seen.add(op)
            mode = f
            if f["lo"] > f["hi"] and not f["wide"]:
                report(pc, f"VECTOR_MODE hi must be at least lo = {f['lo']}, not {f['hi']}")
        elif op in (Op.HBM_READ_SLICE, Op.HBM_WRITE_SLICE):
            need(pc, op, (Op.DMA_SHAPE, int(unit)), f"DMA_SHAPE unit={isa.Unit(unit).name.lower()}")
        elif op is Op.LOAD_WEIGHTS:
            seen.add(op)
            if f["transpose"] and f["n"] % 2:
                report(pc, f"LOAD_WEIGHTS n must be even with transpose, not {f['n']}")
            if f["transpose"] and f["int8"]:
                report(pc, "LOAD_WEIGHTS transpose must be 0 with int8")
        elif op is Op.PULSE_ARRAY:
            need(pc, op, Op.LOAD_WEIGHTS, "LOAD_WEIGHTS")
            need(pc, op, Op.FEED_SHAPE, "FEED_SHAPE")
            _check_segments(pc, shape, segments, report)
        elif op is Op.LOAD_PARAMS:
            seen.add(op)
        elif op is Op.VECTOR:
            need(pc, op, Op.VECTOR_SHAPE, "VECTOR_SHAPE")
            need(pc, op, Op.VECTOR_MODE, "VECTOR_MODE")
            if mode.get("residual") and not mode["wide"]:
                need(pc, op, Op.VECTOR_RESIDUAL, "VECTOR_RESIDUAL")
            if mode.get("bias") or (mode.get("per_channel") and not mode["wide"]):
                need(pc, op, Op.LOAD_PARAMS, "LOAD_PARAMS")
        elif op is Op.PASS_SHAPE:
            seen.add(op)
        elif op is Op.PASS_MODE:
            seen.add(op)
            pass_mode = f
        elif op is Op.PASS_STREAM:
            seen.add((op, f["stream"]))
        elif op is Op.VECTOR_PASS:
            need(pc, op, Op.PASS_SHAPE, "PASS_SHAPE")
            need(pc, op, Op.PASS_MODE, "PASS_MODE")
            if not pass_mode:
                continue
            problem = mode_problem(pass_mode)
            if problem:
                report(pc, f"VECTOR_PASS {problem}")
            for stream in needed_streams(pass_mode):
                need(pc, op, (Op.PASS_STREAM, stream), f"PASS_STREAM stream={stream.name.lower()}")


def _check_segments(
    pc: int, shape: dict[str, int], segments: dict[int, tuple[int, int]], report: Callable[[int, str], None]
) -> None:
    used = []
    for index in range(shape.get("segments", 0)):
        if index not in segments:
            report(pc, f"PULSE_ARRAY needs FEED_SEGMENT index={index} before it: segments={shape['segments']}")
            return
        used.append((*segments[index], index))
    used.sort()
    for (_, hi, a), (lo, _, b) in zip(used, used[1:], strict=False):
        if lo < hi:
            report(pc, f"PULSE_ARRAY has segments {a} and {b} that overlap in array row {lo}")
