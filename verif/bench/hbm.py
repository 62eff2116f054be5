"""The slice controller on DRAM: bandwidth by pattern, latency and waits, on its RTL with every command judged.

Bandwidths are fractions of what the pins can move, refresh included, of one channel: column commands per clock, each of
32 bytes in one of the two pseudo-channels, over ``CYCLES`` clocks after a warm-up. A run in which the checker finds a
broken rule, or a beat differs, is no result. ``_bound`` twins:

* streams and random slices: 1 with per-bank refresh, 1 - tRFC/tREFI with all-bank refresh;
* alternating pieces of n bursts per pseudo-channel: 4n / (4n + t), t the clocks that the two turns cost where the bank
  group stays the same (24 with HBM2), with per-bank refresh; ``_all_bank`` twins have the refresh's factor as well. The
  controller ends a piece in other bank groups than it begins the next with, which is why it can pass this bound.
"""

from __future__ import annotations

import random
from typing import Any

from sluice_hw.config import ChipConfig
from sluice_hw.hbm.dram_config import DramConfig
from sluice_hw.hbm.timing import TIMINGS
from verif.models.dram import Counts, DramBench, build

__all__ = ["run", "summary"]

#: Devices and slices that are measured.
ROWS = (
    ("hbm2-2gb", 4096), ("hbm2-4gb", 4096), ("hbm2-8gb", 4096), ("hbm2-4gb", 16384), ("hbm2-4gb", 65536),
    ("hbm3-4gb", 8192),
)  # fmt: skip
CYCLES, WARM = 156_000, 19_500
#: What others reach, as fractions of the pins' bandwidth.
TO_BEAT = (
    "to beat: Alveo U280, measured, sequential reads 0.924; an FR-FCFS model of HBM2, streams 0.945 / 0.874, "
    "alternating 4 / 16 / 64 KiB 0.55 / 0.81 / 0.79"
)


class Bench:
    """One controller, compiled."""

    def __init__(self, timing: str, slice_bytes: int, refresh: str) -> None:
        chip = ChipConfig(slice_bytes=slice_bytes, hbm_bytes=256 << 20)
        self.config = DramConfig(chip=chip, timing=timing, refresh=refresh)
        self.library = build(self.config, opt="-O2")
        self.latencies: set[int] = set()
        self.worst_wait = 0

    def _take(self, bench: DramBench) -> Counts:
        counts = bench.counts()
        if counts.wrong or counts.stuck or bench.broken:
            raise AssertionError(f"{self.config}: {bench.first_wrong or 'it stands still'}; {bench.broken}")
        self.latencies |= set(counts.distinct_latencies)
        self.worst_wait = max(self.worst_wait, *counts.worst_wait)
        return counts

    def measure(self, fill) -> float:
        """Fraction of the pins' bandwidth; ``fill(bench, slices)`` asks for more than so many."""
        with DramBench(self.config, self.library) as bench:
            fill(bench, (CYCLES + WARM) // (self.config.units * self.config.schedule.unit) + 20)
            bench.run(WARM)
            self._take(bench)
            bench.clear()
            bench.run(CYCLES)
            return self._take(bench).utilisation

    def sequential(self) -> float:
        return self.measure(lambda bench, slices: bench.read(0, min(slices, self.config.chip.hbm_slices)))

    def random(self) -> float:
        def fill(bench: DramBench, slices: int) -> None:
            rng = random.Random(1)
            for _ in range(slices):
                bench.read(rng.randrange(self.config.chip.hbm_slices))

        return self.measure(fill)

    def one_set(self) -> float:
        """Every slice in the same four banks, where no refresh is free."""
        step = self.config.run * self.config.sets

        def fill(bench: DramBench, slices: int) -> None:
            for i in range(slices):
                bench.read(i * 7 * step % self.config.chip.hbm_slices)

        return self.measure(fill)

    def alternating(self, kib: int) -> float | None:
        """Trains of ``kib`` KiB, read and written in turn, at two places."""
        count, rest = divmod(kib << 10, self.config.chip.slice_bytes)
        if rest:
            return None

        def fill(bench: DramBench, slices: int) -> None:
            half = self.config.chip.hbm_slices // 2
            for at in range(0, slices // 2 + count, count):
                bench.read(at % half, count)
                bench.write(half + at % half, count)

        return self.measure(fill)

    def stress(self) -> None:
        """Slices of both kinds at random places (10,000 units with per-bank refresh), then long trains with pauses."""
        rng = random.Random(2)
        slices = self.config.chip.hbm_slices
        with DramBench(self.config, self.library) as bench:
            for _ in range((10_000 if self.config.refresh == "per-bank" else 3_000) // self.config.units):
                (bench.write if rng.random() < 0.4 else bench.read)(rng.randrange(slices))
            bench.drain()
            self._take(bench)
        with DramBench(self.config, self.library) as bench:
            bench.pauses(request=90, sink=5)
            for _ in range(400 // self.config.units):
                bench.read(rng.randrange(slices // 2 - 64), rng.choice([1, 1, 4, 40]))
                bench.write(slices // 2 + rng.randrange(slices // 2 - 64), rng.choice([1, 1, 4, 40]))
            bench.drain()
            self._take(bench)

    def alternating_bound(self, kib: int) -> float:
        t = self.config.timing
        n = (kib << 10) // self.config.channels // 64
        return 4 * n / (4 * n + t.rtw - t.burst + t.wl + t.wtr_l)


def row(timing: str, slice_bytes: int) -> dict[str, Any]:
    """All figures of a device and a size of slices."""
    per, all_ = Bench(timing, slice_bytes, "per-bank"), Bench(timing, slice_bytes, "all-bank")
    t = TIMINGS[timing]
    refreshed = 1 - t.rfc / t.refi
    out: dict[str, Any] = {"device": timing, "density_gb": t.density_gb, "slice_bytes": slice_bytes}

    def put(name: str, value: float | None, bound: float) -> None:
        out[name], out[f"{name}_bound"] = value, bound

    put("sequential_read_per_bank", per.sequential(), 1.0)
    put("sequential_read_all_bank", all_.sequential(), refreshed)
    put("random_read_per_bank", per.random(), 1.0)
    put("random_read_all_bank", all_.random(), refreshed)
    for kib in (4, 16, 64):
        put(f"alternating_{kib}k", per.alternating(kib), per.alternating_bound(kib))
        put(f"alternating_{kib}k_all_bank", all_.alternating(kib), per.alternating_bound(kib) * refreshed)
    put("one_set_read_per_bank", per.one_set(), 1.0)
    put("one_set_read_all_bank", all_.one_set(), refreshed)
    for bench, name in ((per, ""), (all_, "_all_bank")):
        bench.stress()
        out[f"granted_latency_cycles{name}"] = sorted(bench.latencies)
        out[f"worst_wait_cycles{name}"] = bench.worst_wait
        out[f"wait_bound_cycles{name}"] = bench.config.wait_bound
    print(f"  {timing}, slices of {slice_bytes}: done", flush=True)
    return out


def run() -> dict[str, Any]:
    """The document: ``rows`` have every figure of a configuration, ``printed`` one figure each."""
    full = [row(*which) for which in ROWS]
    shown = []
    for one in full:
        for name in one:
            if f"{name}_bound" in one and one[name] is not None:
                shown.append({
                    "device": one["device"], "slice": one["slice_bytes"], "figure": name, "value": one[name],
                    "bound": one[f"{name}_bound"], "of_bound": one[name] / one[f"{name}_bound"],
                })  # fmt: skip
    return {"rows": full, "printed": shown}


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """What stands below the table."""
    lines = []
    for one in rows:
        lines.append(
            f"{one['device']}, slices of {one['slice_bytes']}: one set of banks {one['one_set_read_per_bank']:.4f} "
            f"per-bank, {one['one_set_read_all_bank']:.4f} all-bank; clocks from grant to last beat "
            f"{one['granted_latency_cycles']}, waits up to {one['worst_wait_cycles']} of {one['wait_bound_cycles']}"
        )
    return [*lines, TO_BEAT]
