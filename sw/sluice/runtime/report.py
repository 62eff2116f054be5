"""What a run cost: cycles, where they went, and how well the array was used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sluice.asm import Program
from sluice.errors import ReportError
from sluice_hw import csr, isa
from sluice_hw.config import ChipConfig

__all__ = ["RunReport"]

Stalls = dict[str, dict[str, int]]


@dataclass(frozen=True)
class RunReport:
    """Counters of one or more programs, and the ratios that follow from them.

    Cycle figures are ``None`` (empty, for mappings) where the backend has no time. All ratios are 0..1.

    Attributes
    ----------
    config
        The chip.
    backend
        What ran it.
    work
        Work counters by name (:data:`sluice_hw.csr.WORK_COUNTERS`).
    cycles
        From each program's start to its end.
    window
        Cycles from the first to the last array row.
    starved
        Cycles of the window without a row, by what the MXU did meanwhile.
    stalls
        ``{unit: {cause: cycles}}``; the causes of a unit, ``busy`` and ``idle`` among them, sum to ``cycles``.
    sim_cycles, sim_seconds
        Cycles simulated while the programs ran, and the wall time of that.
    halt_code
        Of the (last) program.
    programs
        How many programs it sums up.
    estimated
        Cycles that the cost model gives (:meth:`with_estimate`); None when it was not asked.
    """

    config: ChipConfig
    backend: str
    work: Mapping[str, int]
    cycles: int | None = None
    window: int | None = None
    starved: Mapping[str, int] = field(default_factory=dict)
    stalls: Stalls = field(default_factory=dict)
    sim_cycles: int = 0
    sim_seconds: float = 0.0
    halt_code: int = 0
    programs: int = 1
    estimated: int | None = None

    def __post_init__(self) -> None:
        if self.cycles is None:
            return
        for unit, causes in self.stalls.items():
            if sum(causes.values()) != self.cycles:
                raise ReportError(
                    f"counters of {unit} sum to {sum(causes.values())}, not to the {self.cycles} cycles of the run: "
                    f"{causes}"
                )
        if sum(self.starved.values()) + self.work["array_rows"] != self.window:
            raise ReportError(
                f"{self.work['array_rows']} array rows and {sum(self.starved.values())} starved cycles are not the "
                f"{self.window} cycles of the window"
            )

    @classmethod
    def from_counters(
        cls,
        config: ChipConfig,
        backend: str,
        counters: Mapping[str, int],
        *,
        timed: bool = True,
        **more: Any,
    ) -> RunReport:
        """A report from counter values by name (:func:`sluice_hw.csr.counters`).

        Raises
        ------
        ReportError
            When the counters contradict each other.
        """
        work = {name: counters[name] for name in csr.WORK_COUNTERS}
        if not timed:
            return cls(config, backend, work, **more)
        starved = {c.name.lower(): counters[f"starved_{c.name.lower()}"] for c in isa.UNIT_CAUSES["mxu"]}
        stalls = {
            unit: {c.name.lower(): counters[f"{unit}_{c.name.lower()}"] for c in causes}
            for unit, causes in isa.UNIT_CAUSES.items()
        }
        return cls(config, backend, work, counters["cycles"], counters["window"], starved, stalls, **more)

    @classmethod
    def merge(cls, reports: Sequence[RunReport]) -> RunReport:
        """The sum of several reports of one chip and backend."""
        first = reports[0]
        if any((r.config, r.backend) != (first.config, first.backend) for r in reports):
            raise ReportError("reports of different chips or backends cannot be added up")

        def total(maps: list[Mapping[str, int]]) -> dict[str, int]:
            return {key: sum(m[key] for m in maps) for key in maps[0]}

        timed = first.cycles is not None
        return dataclasses.replace(
            first,
            work=total([r.work for r in reports]),
            cycles=sum(r.cycles or 0 for r in reports) if timed else None,
            window=sum(r.window or 0 for r in reports) if timed else None,
            starved=total([r.starved for r in reports]),
            stalls={unit: total([r.stalls[unit] for r in reports]) for unit in first.stalls},
            sim_cycles=sum(r.sim_cycles for r in reports),
            sim_seconds=sum(r.sim_seconds for r in reports),
            halt_code=reports[-1].halt_code,
            programs=sum(r.programs for r in reports),
            estimated=None if any(r.estimated is None for r in reports) else sum(r.estimated or 0 for r in reports),
        )

    def with_estimate(self, program: Program, params: Sequence[int] = ()) -> RunReport:
        """The same with the cost model's cycles of the program that ran.

        Without, where the backend has no time or the model does not follow the program.
        """
        from sluice.estimate import EstimateError, estimate  # not needed by those who only run programs

        if self.cycles is None:
            return self
        try:
            return dataclasses.replace(self, estimated=estimate(program, self.config, params=params).cycles)
        except EstimateError:
            return self

    # -- figures -------------------------------------------------------------------------------------------------
    @property
    def macs(self) -> int:
        """Multiply-accumulates on useful rows and columns of the weight tiles."""
        return self.work["macs"]

    @property
    def mxu_utilisation(self) -> float | None:
        """``macs / (rows x cols x cycles)``."""
        return _ratio(self.macs, self.config.macs_per_cycle, self.cycles)

    @property
    def mxu_starvation(self) -> float | None:
        """Share of the window in which no row entered the array."""
        return None if self.window is None else _ratio(sum(self.starved.values()), 1, self.window)

    @property
    def starvation_causes(self) -> dict[str, float] | None:
        """:attr:`mxu_starvation` by cause."""
        if self.window is None:
            return None
        return {cause: _ratio(n, 1, self.window) or 0.0 for cause, n in self.starved.items()}

    @property
    def hbm_bytes(self) -> int:
        """Bytes of the slices moved."""
        return (self.work["ld_slices"] + self.work["st_slices"]) * self.config.slice_bytes

    @property
    def hbm_utilisation(self) -> float | None:
        """``hbm_bytes / (hbm_bytes_per_cycle x cycles)``."""
        return _ratio(self.hbm_bytes, self.config.hbm_bytes_per_cycle, self.cycles)

    @property
    def sim_cycles_per_second(self) -> float | None:
        """Cycles of the program simulated in a second of wall time."""
        return self.sim_cycles / self.sim_seconds if self.sim_seconds > 0 and self.cycles is not None else None

    def figures(self) -> dict[str, Any]:
        """The figures that every JSON report has."""
        speed = self.sim_cycles_per_second
        return {
            "cycles": self.cycles,
            "macs": self.macs,
            "mxu_utilisation": self.mxu_utilisation,
            "mxu_starvation": self.mxu_starvation,
            "hbm_utilisation": self.hbm_utilisation,
            "sim_cycles_per_second": None if speed is None else round(speed),
            "stalls": self.stalls if self.cycles is not None else None,
        }

    def to_json(self) -> dict[str, Any]:
        """All figures."""
        return {
            "config": self.config.name,
            "backend": self.backend,
            "programs": self.programs,
            **self.figures(),
            "estimated_cycles": self.estimated,
            "mxu_starvation_causes": self.starvation_causes,
            "work": dict(self.work),
        }

    def _estimate_lines(self) -> list[str]:
        if self.estimated is None or not self.cycles:
            return []
        error = self.estimated - self.cycles
        return [f"  estimated        {self.estimated} ({error:+}, {100 * error / self.cycles:+.2f} %)"]

    def __str__(self) -> str:
        lines = [f"{self.config.name} chip ({self.config.rows}x{self.config.cols} array), backend {self.backend}"]
        if self.cycles is not None:
            speed = self.sim_cycles_per_second if self.sim_cycles >= 10_000 else None  # of less it says nothing
            lines += [
                f"  cycles           {self.cycles}" + (f" ({speed:.0f} a second simulated)" if speed else ""),
                *self._estimate_lines(),
                f"  MXU utilisation  {percent(self.mxu_utilisation)} ({self.macs} MACs)",
                f"  MXU starvation   {percent(self.mxu_starvation)}" + _top(self.starvation_causes),
                f"  HBM utilisation  {percent(self.hbm_utilisation)} ({self.hbm_bytes} bytes)",
            ]
            for unit, causes in self.stalls.items():
                parts = [f"{cause} {percent(n / self.cycles)}" for cause, n in causes.items() if n]
                lines.append(f"  {unit:<4} {', '.join(parts)}")
        else:
            lines.append("  no cycle figures: this backend has no time")
        lines.append("  " + ", ".join(f"{name} {n}" for name, n in self.work.items()))
        return "\n".join(lines)


def percent(value: float | None) -> str:
    """A ratio as text; ``-`` for none."""
    return "-" if value is None else f"{100 * value:.1f} %"


def _ratio(part: int, per_cycle: int, cycles: int | None) -> float | None:
    if cycles is None:
        return None
    return part / (per_cycle * cycles) if cycles else 0.0


def _top(causes: Mapping[str, float] | None) -> str:
    parts = [f"{c} {percent(v)}" for c, v in sorted((causes or {}).items(), key=lambda x: -x[1]) if v >= 0.0005]
    return f" ({', '.join(parts)})" if parts else ""
