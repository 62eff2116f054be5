"""Functional coverage of random programs: ops x shapes x dialects x what their unit waited for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

from sluice.golden.units import MicroOp
from sluice.runtime import RunReport
from sluice_hw.config import ChipConfig
from sluice_hw.isa import OPS, UNIT_CAUSES, Cause, Op, Reduce, Requant, Residual, Source, Unit
from verif.unit.compiler.races import trace

from .legal import Case

__all__ = ["Crosses"]

_SLICES = ("1 slice", "2 or 3 slices", "4 slices and more")
_PULSE_ROWS = ("1 row", "fewer rows than the array", "as many rows and more")

#: The values that an op's classes can have, crossed with each other and with the causes of its unit.
_CLASSES: dict[Op, tuple[tuple[str, ...], ...]] = {
    Op.HBM_READ_SLICE: (_SLICES, ("a row", "rows")),
    Op.HBM_WRITE_SLICE: (_SLICES, ("a row", "rows")),
    Op.LOAD_WEIGHTS: (("part of the rows", "all rows"), ("part of the columns", "all columns")),
    Op.PULSE_ARRAY: (_PULSE_ROWS, ("walk", "padded"), ("1 segment", "segments"), ("overwrites", "adds")),
    Op.VECTOR: (
        (*(x.name.lower() for x in Requant), "int32 rows"), tuple(x.name.lower() for x in Source),
        tuple(x.name.lower() for x in Reduce), tuple(f"residual {x.name.lower()}" for x in Residual),
    ),
}  # fmt: skip


def _causes(unit: Unit) -> list[str]:
    """What a unit can wait for, as reports name it."""
    return [c.name.lower() for c in UNIT_CAUSES[unit.name.lower()] if c not in (Cause.BUSY, Cause.IDLE)]


def _possible(op: Op, classes: tuple[str, ...]) -> bool:
    """A residual is added in the dialect of the narrowing, and not to int32 rows."""
    if op is not Op.VECTOR or classes[3] == "residual none":
        return True
    return classes[0] == "bypass" or classes[0] != "int32 rows" and ("float" in classes[0]) == ("float" in classes[3])


class Crosses:
    """Bins by group (``program.`` and the op), and how often programs hit them."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, int]] = {
            f"program.{op.name.lower()}": {
                ", ".join((*classes, cause)): 0
                for classes in product(*sets) if _possible(op, classes)
                for cause in _causes(OPS[op].unit)
            }
            for op, sets in _CLASSES.items()
        }  # fmt: skip

    def add(self, case: Case, report: RunReport) -> None:
        """Count the ops of a program that ran; an op meets every cause that its unit was in during the program."""
        draft = case.draft
        for unit, op, classes in _classified(trace(case.lowered.program, case.config, draft.params, draft.entry),
                                             case.config):  # fmt: skip
            bins = self.groups[f"program.{op.name.lower()}"]
            stalls = report.stalls[unit.name.lower()]
            for cause in _causes(unit):
                if stalls[cause]:
                    bins[", ".join((*classes, cause))] += 1

    def write(self, path: Path) -> None:
        """For ``make coverage``, which sums all such files."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.groups, indent=1) + "\n")


def _classified(ops: list[tuple[Unit, MicroOp]], config: ChipConfig) -> Iterator[tuple[Unit, Op, tuple[str, ...]]]:
    """The ops that work, with their classes; shapes and modes are those of the last setup words."""
    setup: dict[tuple[Unit, Op], Mapping[str, int]] = {}
    for unit, uop in ops:
        fields = uop.fields
        if uop.op in (Op.HBM_READ_SLICE, Op.HBM_WRITE_SLICE):
            count = fields["count"]
            slices = _SLICES[(count > 1) + (count > 3)]
            yield unit, uop.op, (slices, "a row" if setup[unit, Op.DMA_SHAPE]["rows"] == 1 else "rows")
        elif uop.op is Op.LOAD_WEIGHTS:
            rows = "all rows" if fields["k"] == config.rows else "part of the rows"
            yield unit, uop.op, (rows, "all columns" if fields["n"] == config.col_bytes else "part of the columns")
        elif uop.op is Op.PULSE_ARRAY:
            shape = setup[unit, Op.FEED_SHAPE]
            rows = shape["n0"] * shape["n1"] * shape["n2"]
            yield unit, uop.op, (
                _PULSE_ROWS[(rows > 1) + (rows >= config.rows)], "padded" if shape["pad"] else "walk",
                "1 segment" if shape["segments"] == 1 else "segments",
                "adds" if uop.accumulate else "overwrites",
            )  # fmt: skip
        elif uop.op is Op.VECTOR:
            mode = setup[unit, Op.VECTOR_MODE]
            wide = mode["wide"]
            yield unit, uop.op, (
                "int32 rows" if wide else Requant(mode["requant"]).name.lower(), Source(mode["source"]).name.lower(),
                Reduce(mode["reduce"]).name.lower(),
                f"residual {'none' if wide else Residual(mode['residual']).name.lower()}",
            )  # fmt: skip
        else:
            setup[unit, uop.op] = fields
