"""The project's own files: locks, licences, Makefile, setup."""

import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

from verif.tools import licences
from verif.tools.lock import LOCKS, ROOT, Pin, problems, read_lock

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


#: Imports each module in a process that has imported none of them; prints those that cannot be first.
IMPORTS = """
import importlib, os, sys
import amaranth.lib.wiring, amaranth.lib.data, amaranth.lib.stream, amaranth.lib.fifo, numpy
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(name, error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize("package", ["hw/sluice_hw", pytest.param("sw/sluice", marks=pytest.mark.soak)])
def test_each_module_can_be_imported_first(package):
    """No import goes round in a circle, whichever module a program begins with."""
    source = (ROOT / package).parent
    files = [path.relative_to(source) for path in sorted((ROOT / package).rglob("*.py")) if path.stem != "__main__"]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files]
    assert len(names) > 50
    done = subprocess.run([sys.executable, "-c", IMPORTS, *names], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": f"{ROOT / 'hw'}:{ROOT / 'sw'}"})  # fmt: skip
    assert done.stdout == ""


def test_locks_agree_with_the_project():
    assert problems(PROJECT, read_lock(LOCKS["base"]), read_lock(LOCKS["test"])) == []


def test_lock_problems_are_found():
    base, test = read_lock(LOCKS["base"]), read_lock(LOCKS["test"])
    base["numpy"] = Pin("numpy", "1.26.4", ["0" * 64])
    del base["cocotb"], test["ruff"]
    base["amaranth"].hashes.clear()
    found = problems(PROJECT, base, test)
    assert "amaranth has no hash" in found
    assert "numpy differs between the two locks" in found
    assert "cocotb is not in the base lock" in found
    assert "ruff is not in the test lock" in found
    assert "numpy<3,>=2.0 does not admit the locked 1.26.4" in found


@pytest.mark.parametrize("line", ["--index-url https://example.org", "numpy>=2", "numpy @ file:///x.whl", "-e ."])
def test_lock_holds_pins_only(line, tmp_path):
    path = tmp_path / "x.lock"
    path.write_text(f"# comment\nnumpy==2.4.6 \\\n    --hash=sha256:{'0' * 64}\n{line}\n")
    with pytest.raises(ValueError, match=re.escape(f"x.lock:4: a lock holds 'name==version' and '--hash=sha256:...', "
                                                   f"not {line!r}")):  # fmt: skip
        read_lock(path)


def test_each_dependency_has_a_reason():
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    for number, line in enumerate(lines):
        if re.fullmatch(r'    "[a-z].*[=<>].*",', line):
            assert lines[number - 1].startswith("    # "), f"pyproject.toml:{number + 1} has no rationale: {line}"


def test_licences():
    assert licences.refused(licences.table()) == []


def test_exceptions_are_needed():
    names = set(read_lock(LOCKS["test"]))
    assert set(licences.EXCEPTIONS) | set(licences.STATED_ELSEWHERE) <= names
    for name in licences.STATED_ELSEWHERE:
        with pytest.raises(LookupError):
            licences.licence_of(name)


@pytest.mark.parametrize(
    ("licence", "verdict"),
    [("MIT", True), ("Apache-2.0 OR GPL-2.0-only", True), ("BSD-3-Clause AND 0BSD AND Zlib", True),
     ("GPL-2.0-only", False), ("MIT AND LGPL-3.0-only", False), ("UNKNOWN", False)],
)  # fmt: skip
def test_licence_rule(licence, verdict):
    assert licences.refused({"p": (licence, "")}) == ([] if verdict else [f"p: {licence}"])


def test_licence_file_is_whole():
    text = (ROOT / "LICENSE").read_text()
    assert text.lstrip().startswith("Apache License\n") and "END OF TERMS AND CONDITIONS" in text


def test_help_lists_the_targets():
    out = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"^  make (\S+) +\S", out, re.MULTILINE)
    wanted = {"sim", "test", "formal", "waves", "verilog", "asm", "lint", "bench", "coverage", "soak", "clean"}
    assert wanted <= set(listed)


def _setup(tmp_path, path: str, **env: str) -> subprocess.CompletedProcess:
    """Run setup.sh in a bare copy of the project, with only ``path`` on PATH."""
    for name in ("requirements.lock", "requirements-test.lock", "pyproject.toml", "verif/tools/setup.sh"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    (tmp_path / "sim_build").mkdir(exist_ok=True)
    (tmp_path / "sim_build" / ".gitignore").touch()
    clean = {k: v for k, v in os.environ.items() if k not in ("CXX", "PYTHON", "SLUICE_SETUP_LOCKED")}
    command = ["/bin/sh", "verif/tools/setup.sh", "base"]
    return subprocess.run(command, cwd=tmp_path, env={**clean, "PATH": path, **env}, capture_output=True, text=True)


@pytest.fixture
def tools(tmp_path):
    """A folder of links to the programs that setup.sh uses before it looks for the ones a user may lack."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("cat", "sha256sum", "cut", "dirname", "uname", "rm", "grep", "sh"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


def _add(folder, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_setup_names_missing_packages(tmp_path, tools):
    done = _setup(tmp_path / "p", str(tools))
    assert done.returncode == 1
    assert done.stderr.strip().endswith("install with: apt-get install g++ perl")


def test_setup_refuses_an_old_python(tmp_path, tools):
    for name in ("c++", "perl"):
        _add(tools, name, "exit 0")
    _add(tools, "python3", 'case "$1" in -V) echo Python 3.9.2;; *) exit 1;; esac')
    done = _setup(tmp_path / "p", str(tools))
    assert done.returncode == 1
    assert "no Python 3.11, 3.12 or 3.13 on PATH (python3 is Python 3.9.2)" in done.stderr
    done = _setup(tmp_path / "p", str(tools), PYTHON="/no/python")
    assert done.returncode == 1
    assert "PYTHON=/no/python is not a Python 3.11, 3.12 or 3.13 that runs" in done.stderr


def test_setup_names_the_venv_package(tmp_path, tools):
    for name in ("c++", "perl"):
        _add(tools, name, "exit 0")
    _add(tools, "python3", 'case "$2" in *ensurepip*) exit 1;; *print*) echo 3.11;; esac')
    done = _setup(tmp_path / "p", str(tools))
    assert done.returncode == 1
    assert "install with: apt-get install python3-venv" in done.stderr


def test_setup_refuses_spaces(tmp_path, tools):
    done = _setup(tmp_path / "a project", str(tools))
    assert done.returncode == 1
    assert "has spaces" in done.stderr


def test_every_cocotb_test_runs():
    """Where a test file names the tests of a bench that it runs, it names all of them."""
    benches = {path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path
               for path in (ROOT / "verif").rglob("bench_*.py")}  # fmt: skip
    missing, used = [], set()
    for path in (ROOT / "verif").rglob("test_*.py"):
        text = path.read_text()
        for module, bench in benches.items():
            if not re.search(rf"{re.escape(module)}\b", text):
                continue
            used.add(module)
            tests = re.findall(r"@cocotb\.test\b[^\n]*(?:\n@[^\n]*)*\nasync def (\w+)", bench.read_text())
            calls = re.findall(r"run\w*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", text)
            if all("testcase" in call for call in calls if module in call):
                missing += [f"{path.name}: {test} of {bench.name}" for test in tests if test not in text]
    assert not missing
    assert used == benches.keys(), f"no test runs {benches.keys() - used}"
