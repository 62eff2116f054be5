"""What real memory costs: the same work on chips that differ in their memory only, measured on the chip in simulation.

For each chip: its usual memory and slices; an SRAM of the same rate with slices as large as DRAM needs; DRAM with ECC.
The first difference is padding and coarser trains, the second latency, turns between reads and writes, and refresh.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sluice.cli.digits import quantised
from sluice.compiler import compile as compile_graph
from sluice.compiler import matmul_graph
from sluice.compiler.graph import Graph
from sluice.estimate import estimate
from sluice.runtime import Device
from sluice_hw.config import ChipConfig, preset
from verif.system.configs import SETTLED

__all__ = ["run"]

_TINY, _MID = preset("tiny"), preset("mid128")
#: Chips by what they are compared as: usual, coarse slices, DRAM.
CHIPS: dict[str, tuple[ChipConfig, ChipConfig, ChipConfig]] = {
    "tiny": (_TINY, _TINY.replace(name="tiny-4k", slice_bytes=4096), preset("tiny-hbm2")),
    "mid128": (
        _MID,
        _MID.replace(name="mid128-32k", slice_bytes=32768),
        _MID.replace(name="mid128-hbm2", slice_bytes=32768, memory="hbm2", ecc="sideband"),
    ),
}
#: Estimated instead of measured: its model takes minutes to build, and the estimate of an SRAM is exact.
_ESTIMATED = ("mid128-32k",)
_MATMULS = {
    "tiny": ("64x64x64", "128x128x128", "100x16x8", "1x64x64"),
    "mid128": ("512x512x512", "1024x768x768", "1024x1024x1024", "1x1024x1024", "128x1024x1024"),
}
_NETS = {"tiny": (("mlp", 1), ("mlp", 50), ("cnn", 1), ("cnn", 16)), "mid128": ()}


def _programs(chip: str) -> Iterator[tuple[str, Graph]]:
    for text in _MATMULS[chip]:
        m, k, n = map(int, text.split("x"))
        yield text, matmul_graph(m, k, n, out="int32" if text == "128x128x128" else "int8")
    for name, batch in _NETS[chip]:
        yield f"digits {name}, batch {batch}", quantised(name, batch)


def _cycles(config: ChipConfig, program) -> tuple[int, float]:
    if config.name in _ESTIMATED:
        result = estimate(program, config)
        return result.cycles, result.mxu_utilisation
    with Device(config, "rtl") as device:
        device.transport.advance(SETTLED)
        report = device.run(program)
    return report.cycles, report.mxu_utilisation


def run() -> list[dict[str, Any]]:
    """A row for each chip and program."""
    rows = []
    for chip, configs in CHIPS.items():
        for name, graph in _programs(chip):
            row: dict[str, Any] = {"chip": chip, "program": name}
            for kind, config in zip(("sram", "coarse", "dram"), configs, strict=True):
                program = compile_graph(graph, config).program
                row[f"{kind}_cycles"], utilisation = _cycles(config, program)
                row[f"{kind}_mxu_%"] = round(100 * utilisation, 2)
                if kind == "dram":
                    error = estimate(program, config).cycles / row["dram_cycles"] - 1
                    row["estimate_error_%"] = round(100 * error, 3)
            row["dram_over_sram"] = round(row["dram_cycles"] / row["sram_cycles"], 4)
            row["dram_over_coarse"] = round(row["dram_cycles"] / row["coarse_cycles"], 4)
            rows.append(row)
    return rows
