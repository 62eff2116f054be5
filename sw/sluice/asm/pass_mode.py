"""What a PASS_MODE asks of the streams of a VECTOR_PASS."""

from __future__ import annotations

from collections.abc import Mapping

from sluice_hw.isa import Operand, Stream

__all__ = ["mode_problem", "needed_streams", "operand_streams"]

_STREAMS = {Operand.X: Stream.X, Operand.Y: Stream.Y, Operand.COLUMN: Stream.COLUMN}


def operand_streams(mode: Mapping[str, int], alu: str) -> set[Stream]:
    """Streams that operands b and c of the ALU ``first`` or ``second`` select; none when it is not used.

    Parameters
    ----------
    mode
        Fields of a PASS_MODE.
    """
    if not mode[f"use_{alu}"]:
        return set()
    operands = (Operand(mode[f"{alu}_{operand}"]) for operand in "bc")
    return {_STREAMS[operand] for operand in operands if operand in _STREAMS}


def needed_streams(mode: Mapping[str, int]) -> list[Stream]:
    """Streams that a pass of this mode reads or writes, in their order."""
    out = {Stream.SOURCE} | operand_streams(mode, "first") | operand_streams(mode, "second")
    out |= {Stream.RESULT} if mode["store"] else set()
    out |= {Stream.REDUCED} if mode["use_reduce"] else set()
    return sorted(out)


def mode_problem(mode: Mapping[str, int]) -> str | None:
    """Why no pass of this mode can run; None when one can."""
    if not mode["store"] and not mode["use_reduce"]:
        return "needs store or use_reduce in its PASS_MODE: it has no result"
    twice = operand_streams(mode, "first") & operand_streams(mode, "second")
    if twice:
        return f"uses the stream {min(twice).name.lower()} in both ALUs; each stream serves one"
    return None
