"""Compile what Verilator has written, in little time: most of it would go into the same headers again and again.

Verilator's own makefile sets the flags; what it compiles is arranged here.

- The run-time library, which is the same for every model, comes from the cache.
- So do the headers that all generated files include, precompiled: of a small model's time they take nine tenths.
- The generated files are joined into few units, which include those headers once each.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from .cache import cached, content_hash, sim_build_dir
from .steps import RECIPE, cpu_identity, run_step
from .toolchain import Toolchain

__all__ = ["make_products"]

#: Bytes of generated C++ in one unit, about. Larger ones leave cores idle, smaller ones read the headers more often.
_UNIT = 1_000_000

#: Bytes of rarely executed C++ from which on it is a unit of its own, compiled without optimisation.
_SLOW_UNIT = 100_000

#: What the generated files, cocotb's main program and wrappers include.
_HEADERS = """\
#include "verilated.h"
#include "verilated_dpi.h"
#include "verilated_vpi.h"
#if VM_COVERAGE
#include "verilated_cov.h"
#endif
#if VM_TRACE_FST
#include "verilated_fst_c.h"
#endif
"""

#: Settings in Verilator's makefiles that flags of the compiler follow from.
_FLAG_SETTINGS = {"VM_COVERAGE", "VM_SC", "VM_TIMING", "VM_TRACE", "VM_TRACE_FST", "VM_TRACE_SAIF", "VM_TRACE_VCD"}


def make_products(
    name: str, work: Path, toolchain: Toolchain, products: Sequence[str], *, fast: str, library: str,
    sources: Sequence[Path] = (), alone: Sequence[str] = (), files: Sequence[str] = (), settings: Sequence[str] = (),
) -> None:
    """Compile what Verilator has left in ``work/obj``.

    Parameters
    ----------
    products
        Targets of make.
    fast, library
        C++ optimisation of the model and of the run-time library; rarely executed code has none.
    sources
        C++ files given to Verilator, which see the model's headers.
    alone
        Names, without suffix, of generated files that become units of their own.
    files, settings
        Further makefiles in ``obj``, and settings that concern nothing but the design.

    Raises
    ------
    BuildFailed
        When the compiler fails.
    """
    obj = work / "obj"
    classes, makefile = (obj / "Vtop_classes.mk").read_text(), (obj / "Vtop.mk").read_text()
    flags = {"fast": fast, "slow": "-O0", "global": library}
    makefiles = [word for file in ("Vtop.mk", *files) for word in ("-f", file)]
    make = [toolchain.make, "-C", "obj", *makefiles, f"-j{os.cpu_count() or 1}", *toolchain.make_args,
            *(f"OPT_{kind.upper()}={flag}" for kind, flag in flags.items()), *settings]  # fmt: skip
    if toolchain.ccache:
        make.append(f"OBJCACHE={toolchain.ccache}")

    def step(targets: Sequence[str]) -> None:
        run_step("C++", name, [*make, *targets], work=work, env=toolchain.environment())

    listed = re.findall(r"^(VM_[A-Z_]+) = (\d+)$", classes + makefile, re.M)
    common = [RECIPE, toolchain.identity, *(f"{key}={value}" for key, value in listed if key in _FLAG_SETTINGS),
              *_words("VM_USER_CFLAGS", makefile)]  # fmt: skip
    _share_runtime(obj, [f"{word}.o" for word in _words("VM_GLOBAL_FAST", classes)], [*common, library], step)
    make += _join(obj, classes, fast, sources, alone)
    if "clang" not in toolchain.cxx_version:  # it refuses headers whose files are newer than it remembers
        for kind in ("fast", "slow"):
            cpu = cpu_identity() if "native" in flags[kind] else ""
            _share_headers(obj, kind, [*common, flags[kind], cpu], step)
    step(products)


def _words(variable: str, makefile: str) -> list[str]:
    """Value of a variable that Verilator writes with a word in each line."""
    found = re.search(rf"^{variable} \+?= \\\n((?:  .*\\\n)*)", makefile, re.M)
    return found[1].replace("\\", " ").split() if found else []


def _share_runtime(
    obj: Path, objects: Sequence[str], key: Sequence[str], compile_objects: Callable[[Sequence[str]], None]
) -> None:
    """Take the objects of Verilator's run-time library from an earlier model with the same flags."""

    def build(work: Path) -> None:
        compile_objects(objects)
        for name in objects:
            shutil.copyfile(obj / name, work / name)

    entry = cached(sim_build_dir() / "runtime" / content_hash(*key, *objects), build)
    for name in objects:  # copyfile gives the present time, newer than the makefile that the objects depend on
        shutil.copyfile(entry / name, obj / name)


def _share_headers(obj: Path, kind: str, key: Sequence[str], compile_headers: Callable[[Sequence[str]], None]) -> None:
    """Take precompiled headers from an earlier model with the same flags, in place of those of this model alone."""

    def build(work: Path) -> None:
        (obj / "headers.h").write_text(_HEADERS)
        compile_headers([f"headers.h.{kind}.gch"])
        shutil.move(obj / f"headers.h.{kind}.gch", work / "headers.gch")

    if not (obj / f"unit_{kind}.cpp").exists():
        return
    entry = cached(sim_build_dir() / "runtime" / f"headers-{content_hash(*key, _HEADERS)}", build)
    header = obj / "Vtop__pch.h"
    (obj / f"{header.name}.{kind}").write_text(_HEADERS)  # what the compiler reads if the other is not to its liking
    (obj / f"{header.name}.{kind}.gch").symlink_to(entry / "headers.gch")
    os.utime(header, (0, 0))  # or make would take the precompiled ones for outdated


def _join(obj: Path, classes: str, fast: str, sources: Sequence[Path], alone: Sequence[str]) -> list[str]:
    """Write units that include the generated files and the `sources`; arguments of make that name them."""
    listed = {
        kind: [word for part in ("CLASSES", "SUPPORT") for word in _words(f"VM_{part}_{kind.upper()}", classes)]
        for kind in ("fast", "slow")
    }
    fast_words, slow_words = ([word for word in words if word not in alone] for words in listed.values())
    if fast == "-O0" or sum(_size(obj, word) for word in slow_words) < _SLOW_UNIT:
        fast_words, slow_words = fast_words + slow_words, []
    names: dict[str, list[str]] = {}
    for kind, words in (("fast", fast_words), ("slow", slow_words)):
        units = _units(obj, words)
        names[kind] = [f"unit_{kind}{number or ''}" for number in range(len(units))]
        for unit, name in zip(units, names[kind], strict=True):
            # The given sources come last: what they define is not for the generated code.
            files = [*(f"{word}.cpp" for word in unit), *(map(str, sources) if name == "unit_fast" else ())]
            (obj / f"{name}.cpp").write_text("".join(f'#include "{file}"\n' for file in files))
    first, rest = (names["fast"][:1], names["fast"][1:]) if sources else ([], names["fast"])
    rules = [f"{name}.o: CXXFLAGS += $(VK_PCH_I_FAST)\n{name}.o: $(VK_PCH_H).fast.gch\n" for name in first]
    (obj / "units.mk").write_text("".join(rules))
    return ["-f", "units.mk", "VM_PARALLEL_BUILDS=1", f"VM_FAST={' '.join([*rest, *alone])}",
            f"VM_SLOW={' '.join(names['slow'])}", f"VM_USER_CLASSES={' '.join(first)}"]  # fmt: skip


def _units(obj: Path, words: Sequence[str]) -> list[list[str]]:
    """Names of files in groups of about `_UNIT` bytes."""
    units: list[list[str]] = []
    for word in words:
        if not units or sum(_size(obj, other) for other in units[-1]) + _size(obj, word) > _UNIT:
            units.append([])
        units[-1].append(word)
    return units


def _size(obj: Path, word: str) -> int:
    return (obj / f"{word}.cpp").stat().st_size
