"""Compile Verilog into simulators: toolchain discovery, a shared build cache, cocotb models and shared libraries."""

from .archive import Archive, build_archive
from .cache import BuildFailed, sim_build_dir
from .model import CaseResult, CocotbModel, Results, SimulationFailed, build_cocotb, build_shared, lint
from .toolchain import Toolchain, ToolchainError, find_toolchain

__all__ = [
    "Archive",
    "BuildFailed",
    "CaseResult",
    "CocotbModel",
    "Results",
    "SimulationFailed",
    "Toolchain",
    "ToolchainError",
    "build_archive",
    "build_cocotb",
    "build_shared",
    "find_toolchain",
    "lint",
    "sim_build_dir",
]
