"""What a run of the tests leaves for its reader: JUnit XML, a summary, and waveforms of what failed.

``conftest.py`` calls this at the end of every session. In ``sim_build/report``:

- ``junit.xml``, one entry per test (unless ``--junitxml`` names another file),
- ``summary.md`` and ``summary.json``: counts, seed, time, coverage if it was collected, cycle counts that differ from
  the recorded ones, and the failed tests with the command that repeats each,
- ``<test>/rerun.log`` and waveforms of the first failed tests, which run once more with ``WAVES=1`` and the same seed
  (``SLUICE_RERUN=0`` leaves that out).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sluice.build import sim_build_dir

__all__ = ["CHANGED_CYCLES", "NESTED", "Summary", "command", "note_cycles", "rerun_failed"]

#: File, under the report folder, of the cycle counts that a test found changed: one JSON object a line.
CHANGED_CYCLES = "cycles.jsonl"
#: Set in the environment of a session that :func:`rerun_failed` started.
NESTED = "SLUICE_NESTED_SESSION"
#: Failed tests that run again for their waveforms, and the seconds that each may take.
RERUNS = 3
RERUN_SECONDS = 900


def note_cycles(name: str, config: str, recorded: int | None, measured: int) -> None:
    """Record that a program took another number of cycles than its baseline says (None: it has none)."""
    path = sim_build_dir() / "report" / CHANGED_CYCLES
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = {"name": name, "config": config, "recorded": recorded, "measured": measured}
    with path.open("a") as file:  # one short write, so that parallel workers do not mix their lines
        file.write(json.dumps(entry) + "\n")


def command(test: str, seed: int) -> str:
    """The command that repeats one test, of the soak too, from the project's folder."""
    return f"SLUICE_SEED={seed} .venv/bin/python -m pytest '{test}' -m ''"


@dataclass(kw_only=True)
class Summary:
    """Outcome of a session."""

    seed: int
    seconds: float
    counts: dict[str, int]
    failed: list[str] = field(default_factory=list)
    slowest: list[tuple[str, float]] = field(default_factory=list)
    cycles: list[dict[str, object]] = field(default_factory=list)
    coverage: str = ""

    def text(self) -> str:
        """As Markdown."""
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items() if count) or "none"
        lines = [
            "# Test run", "",
            f"- tests: {counts}",
            f"- time: {self.seconds / 60:.1f} min",
            f"- seed: {self.seed} (SLUICE_SEED={self.seed})",
            f"- coverage: {self.coverage or 'not collected (make coverage)'}",
        ]  # fmt: skip
        if self.cycles:
            lines += ["", "Cycle counts that differ from their baselines:", ""]
            lines += [f"- {c['name']} on {c['config']}: {c['recorded']} -> {c['measured']}" for c in self.cycles]
        else:
            lines.append("- cycle counts: none differs from its baseline")
        if self.failed:
            lines += ["", "Failed; logs, seeds and waveforms are in the folders beside this file:", ""]
            lines += [f"- `{command(test, self.seed)}`" for test in self.failed]
        if self.slowest:
            lines += ["", "Slowest:", ""]
            lines += [f"- {seconds:.1f} s {test}" for test, seconds in self.slowest]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path) -> Path:
        """Write both files; the path of the text."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "summary.json").write_text(json.dumps(asdict(self), indent=1) + "\n")
        path = folder / "summary.md"
        path.write_text(self.text())
        return path


def read_cycles(folder: Path) -> list[dict[str, object]]:
    """What :func:`note_cycles` wrote since the session began, each program once."""
    path = folder / CHANGED_CYCLES
    if not path.is_file():
        return []
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return list({(e["name"], e["config"]): e for e in entries}.values())


def rerun_failed(tests: Sequence[str], folders: dict[str, Path], seed: int, root: Path) -> list[Path]:
    """Run failed tests once more with waveforms; the logs, in the order of the tests.

    Parameters
    ----------
    tests
        Their pytest ids; the first ``RERUNS`` are taken.
    folders
        Report folder of each.
    root
        Folder that the ids are relative to.
    """
    logs = []
    env = {**os.environ, "WAVES": "1", "SLUICE_SEED": str(seed), NESTED: "1"}
    for name in [name for name in env if name.startswith(("PYTEST_", "COV_"))]:
        del env[name]
    for test in tests[:RERUNS]:
        log = folders[test] / "rerun.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        # Its own summary and JUnit file would replace this session's.
        args = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "", "--junitxml", str(log.with_suffix(
            ".xml")), test]  # fmt: skip
        with log.open("w") as file:
            try:
                subprocess.run(
                    args, cwd=root, env=env, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                    timeout=RERUN_SECONDS, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                file.write(f"\nended after {RERUN_SECONDS} s\n")
            except OSError as error:  # the session's own result matters more
                file.write(f"\ncould not run again: {error}\n")
        logs.append(log)
    return logs
