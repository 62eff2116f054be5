"""Apply a mutation to a copy of the project and run its test."""

from __future__ import annotations

import enum
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from sluice.build import sim_build_dir

from .catalogue import Mutation

__all__ = ["ROOT", "Outcome", "Verdict", "mutate", "try_mutation"]

ROOT = Path(__file__).resolve().parents[2]
#: A mutation may make a test hang until its own limits end it.
LIMIT_SECONDS = 1200


class Verdict(enum.Enum):
    """What the test said."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    #: The hardware could not be elaborated or built, or no test ran: nothing was tried.
    BROKEN = "BROKEN"


@dataclass(frozen=True)
class Outcome:
    """Verdict on a mutation, the time it took, and the test's output."""

    verdict: Verdict
    seconds: float
    log: Path


def mutate(mutation: Mutation, text: str) -> str:
    """The changed text of the mutation's file.

    Raises
    ------
    ValueError
        When ``old`` does not stand in it exactly once.
    """
    count = text.count(mutation.old)
    if count != 1:
        raise ValueError(
            f"mutation {mutation.name!r}: {mutation.old!r} must stand once in {mutation.file}, not {count} times"
        )
    return text.replace(mutation.old, mutation.new)


def try_mutation(mutation: Mutation) -> Outcome:
    """Run the mutation's test on a copy of the project with the mutation in it."""
    slug = re.sub(r"[^a-z0-9]+", "-", f"{mutation.file} {mutation.name}".lower()).strip("-")
    log = sim_build_dir() / "mutation" / f"{slug}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sluice-mutation-") as name:
        work = Path(name)
        shutil.copytree(ROOT / "hw", work / "hw", ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("sw", "verif", "examples", "docs", "pyproject.toml"):
            (work / part).symlink_to(ROOT / part)
        target = work / "hw" / "sluice_hw" / mutation.file
        target.write_text(mutate(mutation, target.read_text()))
        # Its own build folder, of which the compiled run-time library is kept for the next one.
        build = sim_build_dir() / "mutation" / "build"
        shutil.rmtree(build / "models", ignore_errors=True)
        drop = ("PYTEST_", "WAVES", "COV_", "SLUICE_COVERAGE")
        env = {key: value for key, value in os.environ.items() if not key.startswith(drop)}
        env.update(
            SLUICE_BUILD=str(build), SLUICE_RERUN="0", PYTHONDONTWRITEBYTECODE="1",
            PYTHONPATH=os.pathsep.join(str(work / part) for part in ("hw", "sw", ".")),
        )  # fmt: skip
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"verif/{mutation.catcher}"]
        with log.open("w") as file:
            try:
                status = subprocess.run(
                    command, cwd=work, env=env, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                    timeout=LIMIT_SECONDS, check=False,
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                status = 1
    return Outcome(_verdict(status, log.read_text(errors="replace")), time.monotonic() - began, log)


def _verdict(status: int, text: str) -> Verdict:
    if status == 0:
        return Verdict.SURVIVED
    said = r"SimulationFailed|ProofFailed|AssertionError|ChipError|^E +assert "
    if status == 1 and re.search(said, text, re.MULTILINE):
        return Verdict.CAUGHT
    return Verdict.BROKEN
