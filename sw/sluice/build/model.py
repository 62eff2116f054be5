"""Build simulation models with Verilator and run cocotb tests on them.

Three products come from the same steps: a cocotb executable (:func:`build_cocotb`), a shared library with a C interface
for ``ctypes`` (:func:`build_shared`), and a lint verdict (:func:`lint`). Models are cached by content, see
:mod:`sluice.build.cache`. Verilator is called directly and not through cocotb's runner, which would make every signal
of the design public and slow the model several times.
"""

import importlib.metadata
import os
import random
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from .cache import BuildFailed, cached, content_hash, sim_build_dir
from .compiling import make_products
from .embed import launcher
from .steps import (
    RECIPE,
    check_build,
    cpu_identity,
    library_flags,
    log_tail,
    run_logged,
    run_step,
)
from .toolchain import find_toolchain

__all__ = ["CaseResult", "CocotbModel", "Results", "SimulationFailed", "build_cocotb", "build_shared", "lint"]


class SimulationFailed(AssertionError):
    """A cocotb test failed, the simulator died, or no test ran.

    Attributes
    ----------
    log
        Output of the simulation.
    seed
        Seed that replays it.
    """

    def __init__(self, message: str, *, log: Path, seed: int):
        super().__init__(message)
        self.log = log
        self.seed = seed


@dataclass(frozen=True)
class CaseResult:
    """Verdict on one cocotb test: ``status`` is ``passed``, ``failed`` or ``skipped``; ``message`` says why."""

    name: str
    status: Literal["passed", "failed", "skipped"]
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Results:
    """What a run left behind.

    Attributes
    ----------
    cases
        One entry per cocotb test.
    seed
        Seed of the run.
    folder, log, xml
        Result folder, simulation output, JUnit file.
    waves
        Waveform file, or ``None``.
    coverage
        Verilator coverage data, or ``None``.
    """

    cases: tuple[CaseResult, ...]
    seed: int
    folder: Path
    log: Path
    xml: Path
    waves: Path | None = None
    coverage: Path | None = None

    @property
    def passed(self) -> int:
        """Number of passed tests."""
        return sum(case.status == "passed" for case in self.cases)


@dataclass(frozen=True, kw_only=True)
class CocotbModel:
    """A compiled model that cocotb tests run on.

    Attributes
    ----------
    name, top
        Name given to the build, and the Verilog top module.
    folder
        Cache entry, with the sources in ``src`` and the build's output in ``build.log``.
    executable
        The simulator: a program, or a library when ``embedded``.
    embedded
        The model runs inside the Python program, see :mod:`sluice.build.embed`.
    waves, coverage
        Whether the model can trace and collect coverage.
    """

    name: str
    top: str
    folder: Path
    executable: Path
    waves: bool
    coverage: bool = False
    embedded: bool = False

    def run(
        self,
        test_module: str | Sequence[str],
        *,
        testcase: str | Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        seed: int | None = None,
        waves_file: Path | str | None = None,
        results_dir: Path | str | None = None,
    ) -> Results:
        """Run the cocotb tests of a module.

        Parameters
        ----------
        test_module
            Importable name(s) of the module(s) that hold the ``@cocotb.test`` functions.
        testcase
            Only tests of these names (a parametrised test is chosen by its base name or its full one).
        env
            Environment variables for the tests.
        seed
            Seed of Python's ``random`` in the tests, also given as ``SLUICE_SEED``. ``None``: see :func:`pick_seed`.
        waves_file
            Write an FST file here (needs a model built with ``waves``).
        results_dir
            Folder for log and results. Two runs at one time need two folders.

        Raises
        ------
        SimulationFailed
            When a test failed, the simulator ended early, or no test ran.
        ValueError
            When ``waves_file`` is given for a model without tracing.
        """
        if waves_file is not None and not self.waves:
            raise ValueError(f"model {self.name!r} was built with waves=False and cannot write {str(waves_file)!r}")
        modules = test_module if isinstance(test_module, str) else ",".join(test_module)
        seed = pick_seed() if seed is None else seed
        folder = Path(results_dir or sim_build_dir() / "runs" / self.folder.name / modules.replace(",", "+")).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        log, xml, coverage = folder / "sim.log", folder / "results.xml", folder / "coverage.dat"
        for stale in (log, xml, coverage):
            stale.unlink(missing_ok=True)
        (folder / "seed").write_text(f"{seed}\n")
        (folder / "model").write_text(f"{self.folder}\n")

        command = [sys.executable if self.embedded else str(self.executable)]
        waves = Path(waves_file).absolute() if waves_file is not None else None
        if waves:
            waves.parent.mkdir(parents=True, exist_ok=True)
            command += ["--trace", "--trace-file", str(waves)]
        if self.coverage:
            command.append(f"+verilator+coverage+file+{coverage}")
        environment = self._environment(modules, testcase, xml, seed, env or {})
        status = run_logged(command, cwd=folder, env=environment, log=log)

        def fail(what: str) -> SimulationFailed:
            return SimulationFailed(
                f"{self.name}: {what}\n  seed {seed} (replay with SLUICE_SEED={seed})\n  log: {log}\n"
                + (f"  waves: {waves}\n" if waves else "")
                + log_tail(log),
                log=log,
                seed=seed,
            )

        if not xml.is_file():
            raise fail(f"the simulator ended early ({status}) and left no results")
        cases = _read_results(xml)
        failed = [case for case in cases if case.status == "failed"]
        if failed:
            names = "; ".join(f"{case.name}: {case.message}" if case.message else case.name for case in failed)
            raise fail(f"{len(failed)} of {len(cases)} cocotb tests failed: {names}")
        if not any(case.status == "passed" for case in cases):
            wanted = f" named {testcase!r}" if testcase else ""
            raise fail(f"no cocotb test{wanted} ran in {modules}")
        if status != "exit status 0":
            raise fail(f"all tests passed but the simulator ended with {status}")
        return Results(
            cases=cases,
            seed=seed,
            folder=folder,
            log=log,
            xml=xml,
            waves=waves,
            coverage=coverage if coverage.is_file() else None,
        )

    def _environment(
        self, modules: str, testcase: str | Sequence[str] | None, xml: Path, seed: int, extra: Mapping[str, str]
    ) -> dict[str, str]:
        import cocotb_tools.config  # costs a quarter second, and only runs need it

        env = dict(os.environ)
        libpython = None
        if self.embedded:
            env.update(LD_PRELOAD=str(launcher(find_toolchain())), SLUICE_MODEL=str(self.executable))
        else:
            libpython = _find_libpython()
        # pytest's own variables would make cocotb believe that it runs inside pytest.
        env = {k: v for k, v in env.items() if not k.startswith(("COCOTB_", "PYTEST_", "GPI_", "PYGPI_"))}
        env.update(
            PYTHONPATH=os.pathsep.join([p for p in sys.path if p]),
            PYGPI_PYTHON_BIN=sys.executable,
            GPI_USERS=";".join([*filter(None, [libpython]), cocotb_tools.config.pygpi_entry_point()]),
            COCOTB_TOPLEVEL=self.top,
            COCOTB_TEST_MODULES=modules,
            COCOTB_RESULTS_FILE=str(xml),
            COCOTB_RANDOM_SEED=str(seed),
            # pytest's words for a failed assertion cost a second per run when all that Python imports is to have them.
            COCOTB_REWRITE_ASSERTION_FILES=" ".join(f"{m.replace('.', '/')}.py" for m in modules.split(",")),
            # Verilator applies written values at the time cocotb asks for; without this cocotb queues them again.
            COCOTB_TRUST_INERTIAL_WRITES="1",
            TOPLEVEL_LANG="verilog",
            SLUICE_SEED=str(seed),
        )
        if testcase is not None:
            names = [testcase] if isinstance(testcase, str) else list(testcase)
            # The full name is module.test, followed by /parameters for a parametrised test.
            env["COCOTB_TEST_FILTER"] = r"\.(" + "|".join(map(re.escape, names)) + r")(/.*)?$"
        env.update(extra)
        return env


def pick_seed() -> int:
    """Seed for a run that was given none: ``$SLUICE_SEED``, which may be ``random`` for a new one, else 1."""
    text = os.environ.get("SLUICE_SEED", "").strip() or "1"
    if text == "random":
        return random.SystemRandom().randrange(1, 2**31)
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"SLUICE_SEED must be an integer or 'random', not {text!r}") from None


def build_cocotb(
    name: str,
    verilog: str | Sequence[str],
    top: str,
    *,
    waves: bool = False,
    public: Literal["top", "all"] = "top",
    public_vars: Sequence[tuple[str, str]] = (),
    opt: str = "-O1",
    coverage: bool = False,
    verilator_args: Sequence[str] = (),
    parameters: Mapping[str, object] | None = None,
) -> CocotbModel:
    """Build a model for cocotb, or take it from the cache.

    Parameters
    ----------
    name
        Readable part of the cache entry's name: letters, digits, ``_``, ``-`` and ``.``.
    verilog
        Text(s) of the Verilog source.
    top
        Top module.
    waves
        Compile FST tracing in. It slows the model even while no file is written.
    public
        Signals that cocotb can reach: those of the top module, or all (slows the model about three times).
    public_vars
        Further ``(module, variable)`` patterns that cocotb can reach, ``*`` and ``?`` allowed.
    opt
        C++ optimisation of the model, for example ``"-O3 -march=native"`` for a long run.
    coverage
        Collect line and toggle coverage; each run then leaves ``coverage.dat``.
    verilator_args
        Further Verilator options.
    parameters
        Verilog parameters of the top module.

    Raises
    ------
    ToolchainError
        When a tool is missing.
    BuildFailed
        When Verilator or the C++ compiler fails; the message ends with the path of the log.
    """
    import cocotb_tools.config

    if public not in ("top", "all"):
        raise ValueError(f"public must be 'top' or 'all', not {public!r}")
    embedded = _find_libpython() is None
    libs = cocotb_tools.config.libs_dir
    main = cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp"
    patterns = [(top, "*"), *public_vars]
    control = "`verilator_config\n" + "".join(
        f'public_flat_rw -module "{module}" -var "{variable}"\n' for module, variable in patterns
    )
    args = ["--exe", "-o", "model", "--vpi", *verilator_args]
    args += ["--public-flat-rw"] if public == "all" else []
    args += ["--trace-fst"] if waves else []
    args += ["--coverage-line", "--coverage-toggle", "--coverage-user"] if coverage else []
    folder = _build(
        name,
        verilog,
        top,
        files={} if public == "all" else {"public.vlt": control},
        args=args,
        sources=[main],
        cflags=[],
        ldflags=[*(["-shared"] if embedded else []), f"-Wl,-rpath,{libs}", f"-L{libs}", "-lcocotbvpi_verilator"],
        opt=opt,
        parameters=parameters or {},
        fst=waves,
        product="model",
        versions=["cocotb", importlib.metadata.version("cocotb")],
    )
    return CocotbModel(
        name=name,
        top=top,
        folder=folder,
        executable=folder / "model",
        waves=waves,
        coverage=coverage,
        embedded=embedded,
    )


def build_shared(
    name: str,
    verilog: str | Sequence[str],
    top: str,
    cpp: str,
    *,
    waves: bool = False,
    opt: str = "-O3",
    coverage: bool = False,
    verilator_args: Sequence[str] = (),
    parameters: Mapping[str, object] | None = None,
) -> Path:
    """Build a shared library around a model, or take it from the cache.

    Parameters
    ----------
    cpp
        C++ text of the wrapper. It includes ``"Vtop.h"`` (the model is always class ``Vtop``, whatever ``top`` is) and
        defines the ``extern "C"`` functions that ``ctypes`` will call.
    name, verilog, top, waves, opt, coverage, verilator_args, parameters
        As in :func:`build_cocotb`. With ``waves`` the wrapper includes ``verilated_fst_c.h`` and opens the file.

    Returns
    -------
    pathlib.Path
        The ``.so`` file. Load it with ``ctypes.CDLL``; several models can live in one process.
    """
    args = ["--exe", "-o", "model.so", *verilator_args]
    args += ["--trace-fst"] if waves else []
    args += ["--coverage-line", "--coverage-toggle", "--coverage-user"] if coverage else []
    folder = _build(
        name,
        verilog,
        top,
        files={"wrapper.cpp": cpp},
        args=args,
        sources=[],
        cflags=["-DVL_TIME_CONTEXT"],
        ldflags=["-shared", "-Wl,-Bsymbolic"],
        opt=opt,
        parameters=parameters or {},
        fst=waves,
        product="model.so",
        versions=[],
    )
    return folder / "model.so"


def lint(verilog: str | Sequence[str], top: str, waivers: Path | None = None) -> None:
    """Check Verilog with ``verilator --lint-only -Wall``.

    Parameters
    ----------
    verilog
        Text(s) of the source.
    top
        Top module.
    waivers
        Verilator control file (``.vlt``) with ``lint_off`` rules.

    Raises
    ------
    BuildFailed
        When a warning is not waived; the message holds them all.
    """
    toolchain = find_toolchain()
    texts = [verilog] if isinstance(verilog, str) else list(verilog)
    key = content_hash(RECIPE, "lint", toolchain.identity, top, *texts, waivers.read_text() if waivers else "")

    def run(work: Path) -> None:
        paths = []
        for index, text in enumerate(texts):
            path = work / f"{top}{index or ''}.v"
            path.write_text(text)
            paths.append(path.name)
        command = [str(toolchain.verilator), "--lint-only", "-Wall", "--top-module", top]
        command += [str(waivers.absolute())] if waivers else []
        log = work / "build.log"
        status = run_logged([*command, *paths], cwd=work, env=toolchain.environment(), log=log)
        if status != "exit status 0":
            raise BuildFailed(f"Verilator lint of {top}: {status}\n{log.read_text()}")

    cached(sim_build_dir() / "lint" / f"{top}-{key}", run)


def _build(
    name: str,
    verilog: str | Sequence[str],
    top: str,
    *,
    files: Mapping[str, str],
    args: Sequence[str],
    sources: Sequence[Path],
    cflags: Sequence[str],
    ldflags: Sequence[str],
    opt: str,
    parameters: Mapping[str, object],
    fst: bool,
    product: str,
    versions: Sequence[str],
) -> Path:
    """Verilate, compile and link ``product``; returns the cache entry that holds it."""
    check_build(name)
    toolchain = find_toolchain()
    root = sim_build_dir()
    texts = [verilog] if isinstance(verilog, str) else list(verilog)
    fst_cflags, fst_ldflags = toolchain.fst_flags() if fst else ([], [])
    cflags = [*toolchain.cflags, *library_flags(toolchain), *cflags]
    ldflags = [*ldflags, *fst_ldflags]
    opt_flags = shlex.split(opt)
    # Of the run-time library long runs alone notice the difference; all others then share one build of it.
    library = "-O2" if "-O3" in opt_flags else "-O1"
    options = [
        *("--top-module", top, "--prefix", "Vtop", "-cc", "-Mdir", "obj", "--assert", "-Wno-fatal"),
        *([] if {"--timing", "--no-timing"} & set(args) else ["--no-timing"]),
        *args,
        *[f"-G{key}={value}" for key, value in parameters.items()],
        *[word for flag in cflags for word in ("-CFLAGS", flag)],
        *[word for flag in ldflags for word in ("-LDFLAGS", flag)],
    ]
    cpu = cpu_identity() if any("native" in flag for flag in opt_flags) else ""
    # The place of what FST tracing needs lies in the build folder, which is no input.
    inputs = [word for word in options if word not in fst_ldflags]
    key = content_hash(
        *(RECIPE, toolchain.identity, cpu, *versions, *inputs, opt, library, *map(str, sources)),
        *[part for item in sorted(files.items()) for part in item],
        *texts,
    )

    def steps(work: Path) -> None:
        src = work / "src"
        src.mkdir()
        paths: list[str] = []
        for file, text in files.items():
            (src / file).write_text(text)
            paths.append(str(src / file))
        for index, text in enumerate(texts):
            # Relative, because the model remembers the name and this folder is renamed in the end.
            path = f"src/{top}{index or ''}.v"
            (work / path).write_text(text)
            paths.append(path)
        command = [str(toolchain.verilator), *options, *map(str, sources), *paths]
        run_step("Verilator", name, command, work=work, env=toolchain.environment())
        make_products(
            name, work, toolchain, [product], fast=opt, library=library,
            sources=[*sources, *(src / file for file in files if file.endswith(".cpp"))],
            settings=[f"USER_CPPFLAGS={' '.join(fst_cflags)}"],
        )  # fmt: skip
        os.replace(work / "obj" / product, work / product)
        shutil.rmtree(work / "obj")

    return cached(root / "models" / f"{name}-{key}", steps)


def _find_libpython() -> str | None:
    """Shared library of this Python, which the simulator loads; ``None`` when there is none."""
    import find_libpython

    return os.environ.get("LIBPYTHON_LOC") or find_libpython.find_libpython()


def _read_results(xml: Path) -> tuple[CaseResult, ...]:
    cases = []
    for case in ElementTree.parse(xml).getroot().iter("testcase"):
        name = f"{case.get('classname', '')}.{case.get('name', '')}".lstrip(".")
        bad = [child for tag in ("failure", "error") for child in case.findall(tag)]
        if bad:
            message = next((child.get("message") or child.get("error_msg") or "" for child in bad), "")
            cases.append(CaseResult(name, "failed", message))
        else:
            cases.append(CaseResult(name, "skipped" if case.find("skipped") is not None else "passed"))
    return tuple(cases)
