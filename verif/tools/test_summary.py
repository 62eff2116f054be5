"""What a session leaves: a small project of its own, run by pytest in a child process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from verif.tools import summary

ROOT = Path(__file__).resolve().parents[2]

TESTS = """
import os
from verif.harness import report_dir, waves_wanted
from verif.tools.summary import note_cycles

def test_good():
    note_cycles("matmul", "tiny", 100, 101)
    note_cycles("matmul", "tiny", 100, 101)

def test_bad():
    if waves_wanted():
        folder = report_dir("x")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "waves.fst").write_text(os.environ["SLUICE_SEED"])
    assert False, "wrong"
"""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess, Path]:
    """Output of the session, and its report folder."""
    tmp_path = tmp_path_factory.mktemp("session")
    tests = tmp_path / "checks"
    tests.mkdir()
    (tests / "test_it.py").write_text(TESTS)
    (tests / "conftest.py").write_text("from verif.conftest import *\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    skip = ("PYTEST_", "WAVES", "SLUICE_", "COV_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(skip)}
    env |= {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "hw", ROOT / "sw"))), "SLUICE_SEED": "77"}
    env["SLUICE_BUILD"] = str(tmp_path / "build")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "--import-mode=importlib", "checks"], cwd=tmp_path, env=env, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    return run, tmp_path / "build" / "report"


def test_session(session: tuple[subprocess.CompletedProcess, Path]) -> None:
    run, report = session
    assert run.returncode == 1, run.stdout + run.stderr
    result = json.loads((report / "summary.json").read_text())
    assert (result["counts"]["passed"], result["counts"]["failed"], result["seed"]) == (1, 1, 77)
    assert result["failed"] == ["checks/test_it.py::test_bad"]
    assert result["cycles"] == [{"name": "matmul", "config": "tiny", "recorded": 100, "measured": 101}]
    text = (report / "summary.md").read_text()
    assert "matmul on tiny: 100 -> 101" in text
    assert "SLUICE_SEED=77 .venv/bin/python -m pytest 'checks/test_it.py::test_bad'" in text
    names = {case.get("name") for case in ElementTree.parse(report / "junit.xml").getroot().iter("testcase")}
    assert names == {"test_good", "test_bad"}


def test_failure_leaves_waves(session: tuple[subprocess.CompletedProcess, Path]) -> None:
    _, report = session
    folder = report / "checks.test_it.test_bad"
    assert (folder / "waves.fst").read_text() == "77"
    log = (folder / "rerun.log").read_text()
    assert "wrong" in log and "1 failed" in log
    assert not (report / "checks.test_it.test_good").exists()


def test_text_of_a_good_run() -> None:
    text = summary.Summary(seed=5, seconds=90, counts={"passed": 3, "failed": 0}).text()
    assert "- tests: 3 passed\n" in text and "1.5 min" in text and "SLUICE_SEED=5" in text and "none differs" in text
    assert "Failed" not in text
