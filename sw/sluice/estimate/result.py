"""What the model says of a program: its cycles, what each resource needs of them, and what units wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice_hw.config import ChipConfig
from sluice_hw.isa import Unit

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["Estimate", "UnitTime"]


@dataclass(frozen=True)
class UnitTime:
    """One unit's part.

    Attributes
    ----------
    ops
        Ops started, setup words excluded.
    busy
        Cycles of work: beats moved, rows entering the array, rows through the vector unit.
    waits
        Cycles by cause: an op at the head of its queue that could not start (``token LD``: for a token of LD;
        ``earlier op``: for one of the same unit), or an access that was refused (``VMEM``, ``ACC``, ``HBM``).
    """

    ops: int
    busy: int
    waits: Mapping[str, int]


@dataclass(frozen=True)
class Estimate:
    """Cycles of a program, and where they go.

    Attributes
    ----------
    config
        The chip.
    cycles
        From doorbell to interrupt, as the counter CYCLES has them.
    needs
        Cycles that each resource needs by itself: ``array`` (its rows), ``weights`` (its tiles, R rows each), ``HBM``
        (beats both ways), ``vector`` (rows through the vector unit), ``issue`` (words and jumps of the sequencer).
    fill, drain
        From the doorbell to the first array row, and from the last one to the end; the whole run without array rows.
    starved
        Cycles between the first and the last array row without one.
    units
        By name.
    queue
        Cycles that the sequencer waits for room in a queue, by unit.
    macs
        Useful multiply-adds.
    words
        Words executed.
    """

    config: ChipConfig
    cycles: int
    needs: Mapping[str, int]
    fill: int
    drain: int
    starved: int
    units: Mapping[str, UnitTime]
    queue: Mapping[str, int]
    macs: int
    words: int

    @classmethod
    def of(cls, engine: Engine, cycles: int) -> Estimate:
        """After the engine has run."""
        from .mxu import TimedMatrix
        from .timing import Timing

        config, issue = engine.config, engine.issue
        mxu = engine.units[Unit.MXU]
        assert isinstance(mxu, TimedMatrix)
        busy = {u: engine.units[u].busy for u in Unit}
        needs = {
            "array": busy[Unit.MXU],
            "weights": mxu.tiles * config.rows,
            "HBM": -(-(busy[Unit.LD] + busy[Unit.ST]) * config.hbm_beat_rate[1] // config.hbm_beat_rate[0]),
            "vector": busy[Unit.VPU],
            "issue": issue.words + issue.jumps * (Timing.JUMP - 1),
        }
        fill, drain, starved = cycles, 0, 0
        if mxu.first_row is not None:
            entry = Timing.FEED
            fill, drain = mxu.first_row + entry, cycles - (mxu.last_row + entry) - 1
            starved = cycles - fill - drain - busy[Unit.MXU]
        units = {
            u.name.lower(): UnitTime(t.ops, t.busy, {cause: n for cause, n in sorted(t.waits.items()) if n})
            for u, t in engine.units.items()
        }
        queue = {u.name.lower(): n for u, n in issue.blocked.items() if n}
        return cls(config, cycles, needs, fill, drain, starved, units, queue, mxu.macs, issue.words)

    @property
    def critical(self) -> str:
        """The resource that needs most; ``fill/drain`` when the run is longer without array rows than that."""
        resource = max(self.needs, key=lambda key: self.needs[key])
        return resource if self.needs[resource] >= self.fill + self.drain else "fill/drain"

    @property
    def mxu_utilisation(self) -> float:
        """``macs / (rows x cols x cycles)``."""
        return self.macs / (self.config.macs_per_cycle * self.cycles)

    def to_json(self) -> dict[str, Any]:
        """All figures."""
        return {
            "config": self.config.name,
            "cycles": self.cycles,
            "critical": self.critical,
            "needs": dict(self.needs),
            "fill": self.fill, "starved": self.starved, "drain": self.drain,
            "mxu_utilisation": self.mxu_utilisation,
            "macs": self.macs,
            "words": self.words,
            "units": {
                name: {"ops": t.ops, "busy": t.busy, "waits": dict(t.waits)} for name, t in self.units.items()},
            "queue": dict(self.queue),
        }  # fmt: skip

    def __str__(self) -> str:
        c, total = self.config, self.cycles

        def share(n: int) -> str:
            return f"{n:>10} {100 * n / total:6.1f} %"

        beats, rows = self.units["ld"].busy + self.units["st"].busy, self.needs["array"]
        notes = {
            "array": f"{rows} rows, MXU utilisation {100 * self.mxu_utilisation:.1f} %",
            "weights": f"{self.needs['weights'] // c.rows} tiles of {c.rows} rows",
            "HBM": f"{beats * c.hbm_beat_bytes} bytes in {beats} beats of {c.hbm_beat_bytes}",
            "vector": f"{self.units['vpu'].ops} ops",
            "issue": f"{self.words} words",
        }
        lines = [
            f"{c.name} chip ({c.rows}x{c.cols} array), estimated",
            f"  cycles   {total:>10}; critical: {self.critical}",
            "what each resource needs by itself:",
            *(f"  {name:<8} {share(n)}  {notes[name]}" for name, n in self.needs.items()),
            "the run, by array rows:",
            f"  fill     {share(self.fill)}  before the first",
            f"  rows     {share(rows)}",
            f"  starved  {share(self.starved)}  between the first and the last",
            f"  drain    {share(self.drain)}  behind the last",
            "waits of the ops at the heads of the queues, and refused accesses:",
        ]
        for name, t in self.units.items():
            waits = ", ".join(f"{cause} {n}" for cause, n in t.waits.items()) or "-"
            lines.append(f"  {name:<8} {t.ops:>6} ops, busy {t.busy}; {waits}")
        if self.queue:
            lines.append("  seq      full queue of " + ", ".join(f"{name} {n}" for name, n in self.queue.items()))
        return "\n".join(lines)
