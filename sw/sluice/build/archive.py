"""A design that is Verilated and compiled once, for several programs: a cocotb model and libraries for ``ctypes``.

Nearly all of the time that a large model takes to build goes into Verilator and the C++ compiler; here both run once
and leave an archive of objects, position-independent so that it fits everywhere. What is linked from it is a cheap
build step of its own with a cache entry of its own.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .cache import cached, content_hash, sim_build_dir
from .compiling import make_products
from .model import CocotbModel, _find_libpython
from .steps import RECIPE, check_build, cpu_identity, library_flags, run_step
from .toolchain import find_toolchain

__all__ = ["Archive", "build_archive"]

#: Raise it when the steps below change what they produce.
_RECIPE = f"{RECIPE}.1"

#: Rows from which on a memory is not set row by row when a model is made, see :func:`_leave_memories`.
_LARGE_ROWS = 1 << 14


@dataclass(frozen=True, kw_only=True)
class Archive:
    """Objects, headers and compiler settings of a Verilated design, whose class is ``Vtop``.

    Attributes
    ----------
    name, top
        Name given to the build, and the Verilog top module.
    folder
        Cache entry: ``libVtop.a``, ``libverilated.a``, headers, the source in ``src``, ``build.log``.
    waves
        Whether it can trace (FST).
    one_edge
        The model has a single event, a rising edge of its clock, and no logic that runs before its NBA region: a cycle
        can be had by one call of that region (``Vtop___024root___eval_nba``).
    """

    name: str
    top: str
    folder: Path
    waves: bool
    one_edge: bool
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]

    def members(self) -> list[str]:
        """Names of the members of the root class, one for each signal that is left of the design."""
        text = (self.folder / "Vtop___024root.h").read_text()
        return re.findall(r"^\s+(?:CData|SData|IData|QData|VlWide|VlUnpacked)\S* .*?(\w+);$", text, re.M)

    def cocotb(self) -> CocotbModel:
        """The cocotb model of the design.

        Raises
        ------
        BuildFailed
            When the C++ compiler fails.
        """
        import cocotb_tools.config

        libs = cocotb_tools.config.libs_dir
        main = cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp"
        embedded = _find_libpython() is None
        flags = [*(["-shared"] if embedded else []), f"-Wl,-rpath,{libs}", f"-L{libs}", "-lcocotbvpi_verilator"]
        key = ["cocotb", importlib.metadata.version("cocotb"), str(libs)]
        folder = self._link("model", main.read_text(), [], flags, key)
        return CocotbModel(
            name=self.name, top=self.top, folder=folder, executable=folder / "model", waves=self.waves,
            embedded=embedded,
        )  # fmt: skip

    def library(self, cpp: str, defines: Mapping[str, str] | None = None, *, opt: str = "-O2") -> Path:
        """A shared library of the design and a C++ text with ``extern "C"`` functions; several fit in one process.

        Parameters
        ----------
        cpp
            It includes ``"Vtop.h"`` and, where it looks inside, ``"Vtop___024root.h"``; it defines ``sc_time_stamp``.
        defines
            Macros for it.

        Raises
        ------
        BuildFailed
            When the C++ compiler fails.
        """
        flags = [opt, *(f"-D{name}={value}" for name, value in (defines or {}).items())]
        return self._link("model.so", cpp, flags, ["-shared", "-Wl,-Bsymbolic"], []) / "model.so"

    def _link(
        self, product: str, cpp: str, compile_flags: Sequence[str], link_flags: Sequence[str], key: Sequence[str]
    ) -> Path:
        """Compile one more file and link it with the archive; the cache entry that holds the product."""
        toolchain = find_toolchain()
        fst_cflags, fst_ldflags = toolchain.fst_flags() if self.waves else ([], [])
        hashed = content_hash(_RECIPE, self.folder.name, product, cpp, *compile_flags, *link_flags, *key)

        def build(work: Path) -> None:
            (work / "main.cpp").write_text(cpp)
            here = [f"-I{self.folder}", *fst_cflags, *self.compile_flags, *compile_flags]
            archives = [str(self.folder / f"lib{name}.a") for name in ("Vtop", "verilated")]
            for command in (
                [toolchain.cxx, *here, "-c", "-o", "main.o", "main.cpp"],
                [toolchain.cxx, "-o", product, "main.o", *archives, *link_flags, *fst_ldflags, *self.link_flags],
            ):
                run_step("C++", self.name, command, work=work, env=toolchain.environment())
            (work / "main.o").unlink()

        return cached(sim_build_dir() / "models" / f"{self.name}-{product.replace('.', '-')}-{hashed}", build)


def build_archive(
    name: str,
    verilog: str,
    top: str,
    *,
    waves: bool = False,
    public: Sequence[str] = ("*",),
    opt: str = "-O1",
    hot: tuple[str, str] | None = None,
    verilator_args: Sequence[str] = (),
) -> Archive:
    """Verilate and compile a design, or take it from the cache.

    Parameters
    ----------
    name
        Readable part of the cache entry's name: letters, digits, ``_``, ``-`` and ``.``.
    verilog
        Text of the Verilog source.
    top
        Top module.
    waves
        Compile FST tracing in.
    public
        Patterns of the top module's signals that cocotb can reach. Ports alone cost nothing; every other signal has
        what depends on it evaluated a second time, because it might have been written.
    opt
        C++ optimisation.
    hot
        A regular expression and further C++ flags: for those generated files in which it is found.
    verilator_args
        Further Verilator options.

    Raises
    ------
    ToolchainError
        When a tool is missing.
    BuildFailed
        When Verilator or the C++ compiler fails; the message ends with the path of the log.
    """
    check_build(name)
    toolchain = find_toolchain()
    cflags = [*toolchain.cflags, *library_flags(toolchain)]
    control = "`verilator_config\n" + "".join(f'public_flat_rw -module "{top}" -var "{var}"\n' for var in public)
    options = [
        *("--top-module", top, "--prefix", "Vtop", "-cc", "-Mdir", "obj", "--assert", "-Wno-fatal", "--vpi"),
        *("--no-timing", "--x-initial", "fast", *verilator_args, *(["--trace-fst"] if waves else [])),
        *[word for flag in cflags for word in ("-CFLAGS", flag)],
    ]
    # These name a place in the build folder, which is no input: neither the key nor the entry holds it.
    fst_cflags = toolchain.fst_flags()[0] if waves else []
    cpu = cpu_identity() if "native" in f"{opt} {hot}" else ""
    hashed = content_hash(_RECIPE, toolchain.identity, cpu, *options, opt, *(hot or ()), control, verilog)

    def build(work: Path) -> None:
        src, obj = work / "src", work / "obj"
        src.mkdir()
        (src / "public.vlt").write_text(control)
        (src / f"{top}.v").write_text(verilog)
        command = [str(toolchain.verilator), *options, "src/public.vlt", f"src/{top}.v"]
        run_step("Verilator", name, command, work=work, env=toolchain.environment())
        _leave_memories(obj)
        files = sorted(obj.glob("Vtop___024root__[0-9]*.cpp"))
        text = {file: file.read_text() for file in files if "Slow" not in file.name}
        alone = [file.stem for file in text if hot and re.search(hot[0], text[file])]
        (obj / "archive.mk").write_text(_rules(alone, hot[1] if hot else ""))
        make_products(
            name, work, toolchain, ["libVtop.a", "libverilated.a", "flags"], fast=opt, library="-O1", alone=alone,
            files=["archive.mk"], settings=[f"USER_CPPFLAGS={' '.join(fst_cflags)}"],
        )  # fmt: skip
        lines = (obj / "flags").read_text().splitlines()
        compile_flags, link_flags = ([w for w in shlex.split(line) if w not in fst_cflags] for line in lines)
        facts = {"one_edge": _one_edge("".join(text.values())), "compile_flags": compile_flags,
                 "link_flags": link_flags}  # fmt: skip
        (work / "facts.json").write_text(json.dumps(facts))
        for file in (*obj.glob("*.h"), obj / "libVtop.a", obj / "libverilated.a"):
            os.replace(file, work / file.name)
        shutil.rmtree(obj)

    folder = cached(sim_build_dir() / "models" / f"{name}-{hashed}", build)
    facts = json.loads((folder / "facts.json").read_text())
    return Archive(
        name=name, top=top, folder=folder, waves=waves, one_edge=facts["one_edge"],
        compile_flags=tuple(facts["compile_flags"]), link_flags=tuple(facts["link_flags"]),
    )  # fmt: skip


def _rules(hot: Sequence[str], flags: str) -> str:
    """Further rules for the makefile: flags of single files, and a target that writes the settings down."""
    rules = []
    for name in hot:
        # A precompiled header belongs to the flags that it was compiled with.
        rules += [f"{name}.o: CXXFLAGS += {flags}", f"{name}.o: VK_PCH_I_FAST ="]
    # Compiler words with quotes do not occur; a line each for compiling and linking.
    rules += ["flags:", "\t@echo '$(CXXFLAGS) $(filter-out -MMD -I.,$(CPPFLAGS))' > flags",
              "\t@echo '$(LDFLAGS) $(LDLIBS)' >> flags"]  # fmt: skip
    return "\n".join(rules) + "\n"


def _leave_memories(obj: Path) -> None:
    """Take the loops out of the generated constructor that set large memories to zero, row by row.

    A large object's pages come from the operating system, as zeros, when they are first touched; a chip with 256 MiB
    then starts as fast as a small one and takes the room that it uses.
    """
    loop = re.compile(
        r"^ *for \(int (\w+) = 0; \1 < (\d+); \+\+\1\) \{\n[^\n]*\bvlSelf->\w+\[\1\](?:\)| = 0);\n *\}\n", re.M
    )
    for file in obj.glob("*__Slow.cpp"):
        text = file.read_text()
        shorter = loop.sub(lambda found: "" if int(found[2]) >= _LARGE_ROWS else found[0], text)
        if shorter != text:
            file.write_text(shorter)


def _one_edge(text: str) -> bool:
    """See :attr:`Archive.one_edge`: read off the generated functions, as they are in Verilator 5.048."""
    trigger = re.search(r"___eval_triggers_vec__act\(Vtop___024root\* vlSelf\) \{\n(.*?)^\}", text, re.M | re.S)
    region = re.search(r"___eval_nba\(Vtop___024root\* vlSelf\) \{\n(.*?)^\}", text, re.M | re.S)
    if not trigger or not region or "___eval_act(" in text:
        return False
    # One word of triggers, and of that one bit: clk and not what it was.
    one = len(re.findall(r"__VactTriggered\[", trigger[1])) == 1 and trigger[1].count("__Vtrigprevexpr") == 2
    rising = re.search(r"\(IData\)\(vlSelfRef\.\w*clk\)\s*&\s*\(~ \(IData\)\(vlSelfRef\.__Vtrigprevexpr", trigger[1])
    only = re.findall(r"if \((.*?)\) \{", region[1]) == ["(1ULL & vlSelfRef.__VnbaTriggered[0U])"]
    return bool(one and rising and only)
