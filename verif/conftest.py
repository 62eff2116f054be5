"""Settings of all tests: the seed in the header, generated files kept in ``sim_build``, and what a session leaves."""

import os
import time
from pathlib import Path

import hypothesis
import pytest

from sluice.build import sim_build_dir
from sluice.build.model import pick_seed
from verif.harness import report_name
from verif.tools import summary

# Numerics tests take long on a loaded machine without being wrong, so hypothesis sets no deadline. Examples are drawn
# from the run's seed (see ``--hypothesis-seed``) and failures print what reproduces them.
hypothesis.settings.register_profile("sluice", deadline=None, print_blob=True)
hypothesis.settings.load_profile("sluice")
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(sim_build_dir() / "hypothesis"))


_BEGAN = time.time()


def pytest_configure(config: pytest.Config) -> None:
    # One seed for the whole session, also under pytest-xdist, whose workers inherit the environment.
    os.environ["SLUICE_SEED"] = str(pick_seed())
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = int(os.environ["SLUICE_SEED"])
    if summary.NESTED not in os.environ and not hasattr(config, "workerinput"):  # not a worker of pytest-xdist
        report = sim_build_dir() / "report"
        (report / summary.CHANGED_CYCLES).unlink(missing_ok=True)
        if not config.option.xmlpath:
            config.option.xmlpath = str(report / "junit.xml")


def pytest_report_header() -> list[str]:
    return [f"seed: SLUICE_SEED={os.environ['SLUICE_SEED']}", f"generated files: {sim_build_dir()}"]


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:  # noqa: ANN001
    """Write the summary of the session, and run what failed again for its waveforms."""
    if summary.NESTED in os.environ:
        return
    stats = terminalreporter.stats
    failed = [r.nodeid for kind in ("failed", "error") for r in stats.get(kind, ())]
    seconds: dict[str, float] = {}
    for result in [r for kind in ("passed", "failed", "error", "") for r in stats.get(kind, ())]:
        seconds[result.nodeid] = seconds.get(result.nodeid, 0.0) + result.duration  # fixtures count: they build models
    report, seed = sim_build_dir() / "report", int(os.environ["SLUICE_SEED"])
    result = summary.Summary(
        seed=seed,
        seconds=time.time() - _BEGAN,
        counts={kind: len(stats.get(kind, ())) for kind in ("passed", "failed", "error", "skipped", "xfailed")},
        failed=failed,
        slowest=sorted(seconds.items(), key=lambda item: -item[1])[:10],
        cycles=summary.read_cycles(report),
    )
    path = result.write(report)
    terminalreporter.write_line(f"summary: {path}; JUnit: {config.option.xmlpath}")
    if failed and os.environ.get("SLUICE_RERUN", "1") != "0":
        folders = {test: report / report_name(test) for test in failed}
        terminalreporter.write_line(f"running {min(len(failed), summary.RERUNS)} failed test(s) again with waveforms")
        for log in summary.rerun_failed(failed, folders, seed, Path(config.rootpath)):
            terminalreporter.write_line(f"  {log}")


@pytest.fixture
def seed() -> int:
    """The session's seed."""
    return int(os.environ["SLUICE_SEED"])
