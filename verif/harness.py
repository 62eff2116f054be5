"""What unit tests use to run a hardware unit under cocotb.

A unit ``hw/sluice_hw/x.py`` is tested by two files: ``verif/unit/test_x.py`` (pytest: builds the unit and runs the
benches) and ``verif/unit/bench_x.py`` (the ``@cocotb.test`` functions, which run inside the simulator)::

    # test_x.py
    from verif.harness import run_bench

    def test_x():
        run_bench(X(width=8), "verif.unit.bench_x", name="x")

A failed run leaves its seed, log and, with waves, its FST file in ``sim_build/report/<test>``. Whole chips in this
process come from :func:`open_chip`, which traces there, too.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from amaranth.lib.wiring import Component

from sluice.build import Results, build_cocotb, sim_build_dir

if TYPE_CHECKING:
    from sluice.runtime import Device
    from sluice_hw.config import ChipConfig

__all__ = ["open_chip", "report_dir", "report_name", "run_bench", "run_verilog", "verilog_of", "waves_wanted"]


def verilog_of(component: Component, *, name: str = "top") -> str:
    """Verilog of a component with the RAM primitives it uses; ``name`` names its top module.

    A component can be elaborated once; make a new one for a second call.
    """
    from sluice_hw.emit.verilog import to_verilog

    return to_verilog(component, name=name)


def waves_wanted() -> bool:
    """Whether the environment asks for waveforms (``WAVES`` set and not ``0``)."""
    return os.environ.get("WAVES", "0").strip().lower() not in ("", "0", "no", "off", "false")


def report_dir(default: str) -> Path:
    """Folder for what a test leaves behind: ``sim_build/report/<test>``, named after the running pytest test."""
    current = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" (", 1)[0]
    return sim_build_dir() / "report" / (report_name(current) or default)


def report_name(test: str) -> str:
    """Name of a pytest test's report folder: ``verif/unit/test_x.py::test_y[8]`` has ``unit.test_x.test_y-8``."""
    text = re.sub(r"^(.*/)?verif/", "", test).replace(".py::", "::")
    return re.sub(r"[^A-Za-z0-9_.=-]+", ".", text.replace("[", "-").rstrip("]")).strip(".")


def run_bench(
    component: Component,
    bench_module: str,
    *,
    name: str,
    testcases: str | Sequence[str] | None = None,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
    waves: bool | None = None,
    public: Literal["top", "all"] = "top",
    public_vars: Sequence[tuple[str, str]] = (),
    opt: str = "-O1",
    coverage: bool | None = None,
    verilator_args: Sequence[str] = (),
) -> Results:
    """Emit a component as Verilog, build it and run the cocotb tests of ``bench_module`` on it.

    Parameters
    ----------
    component
        A fresh component.
    bench_module
        Importable name of the module with the ``@cocotb.test`` functions.
    name
        Readable name of the model; also the Verilog name of its top module, if that is a Verilog identifier.
    testcases
        Only these tests.
    seed
        Default ``$SLUICE_SEED``, else 1.
    env
        Parameters for the bench, read there with :func:`verif.transactors.parameter`.
    waves
        Trace to an FST file in the report folder. Default: the ``WAVES`` environment variable.
    public, public_vars, opt, verilator_args
        See :func:`sluice.build.build_cocotb`.
    coverage
        Collect coverage. Default: the ``SLUICE_COVERAGE`` environment variable.

    Raises
    ------
    SimulationFailed
        With the seed, the log's path and its last lines.
    """
    top = name if re.fullmatch(r"[A-Za-z]\w*", name) else "top"
    return run_verilog(
        verilog_of(component, name=top),
        bench_module,
        name=name,
        top=top,
        testcases=testcases,
        seed=seed,
        env=env,
        waves=waves,
        public=public,
        public_vars=public_vars,
        opt=opt,
        coverage=coverage,
        verilator_args=verilator_args,
    )


def run_verilog(
    verilog: str | Sequence[str],
    bench_module: str,
    *,
    name: str,
    top: str,
    testcases: str | Sequence[str] | None = None,
    seed: int | None = None,
    env: Mapping[str, str] | None = None,
    waves: bool | None = None,
    public: Literal["top", "all"] = "top",
    public_vars: Sequence[tuple[str, str]] = (),
    opt: str = "-O1",
    coverage: bool | None = None,
    verilator_args: Sequence[str] = (),
) -> Results:
    """As :func:`run_bench`, for Verilog text whose top module is ``top``."""
    waves = waves_wanted() if waves is None else waves
    coverage = os.environ.get("SLUICE_COVERAGE", "0") not in ("", "0") if coverage is None else coverage
    model = build_cocotb(
        name,
        verilog,
        top,
        waves=waves,
        public=public,
        public_vars=public_vars,
        opt=opt,
        coverage=coverage,
        verilator_args=verilator_args,
    )
    # A test may run several benches, or one with several parameters: each gets its own folder.
    folder = _fresh(report_dir(name) / name)
    results = model.run(
        bench_module,
        testcase=testcases,
        env={"COCOTB_REWRITE_ASSERTION_FILES": "verif/*.py", **(env or {})},  # helpers of a bench assert, too
        seed=seed,
        waves_file=folder / "waves.fst" if waves else None,
        results_dir=folder,
    )
    print(f"{name}: {results.passed} cocotb tests passed, seed {results.seed}, log {results.log}")
    return results


def open_chip(
    config: "ChipConfig", backend: str = "rtl", *, source: str | None = None, **options: object
) -> "Device":
    """A device for a test. Where the environment asks for waveforms, it traces to the test's report folder.

    Parameters
    ----------
    source
        Verilog of a chip that the driver does not make, as for :func:`sluice.runtime.chip_model.chip_archive`.
    options
        Further ones of :class:`sluice.runtime.Device`.
    """
    from sluice.runtime import Device
    from sluice.runtime.chip_model import chip_archive, chip_library

    if backend == "golden":
        return Device(config, backend, **options)
    waves = _fresh(report_dir(config.name) / f"{config.name}.fst") if waves_wanted() else None
    if source is not None:
        archive = chip_archive(config, source=source, waves=waves is not None)
        options["library"] = chip_library(archive, config)
    return Device(config, backend, waves=waves, **options)


def _fresh(path: Path) -> Path:
    """A path that no other run of this process has: the second gets ``.2`` before its suffix, and so on."""
    chosen, again = path, 2
    while chosen in _used:
        chosen, again = path.with_name(f"{path.stem}.{again}{path.suffix}"), again + 1
    _used.add(chosen)
    return chosen


_used: set[Path] = set()
