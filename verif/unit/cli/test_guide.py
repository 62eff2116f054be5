"""The programmer's guide says what really happens: its commands and its Python are run, and their output compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.build import sim_build_dir

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "programmers-guide.md").read_text()
BLOCK = re.compile(r"^```(console|python|output)\n(.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Run a shell command where the guide's reader stands; its whole output."""
    folder = tmp_path_factory.mktemp("guide")
    (folder / "bin").mkdir()
    script = folder / "bin" / "sluice"
    # Progress has times, which differ from run to run and are not in the guide.
    script.write_text(f"""#!/bin/sh
"{sys.executable}" -m sluice.cli "$@" 2>errors.$$
status=$?
grep -v '^\\[' errors.$$ >&2
rm errors.$$
exit $status
""")
    script.chmod(0o755)
    (folder / "examples").symlink_to(ROOT / "examples")
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    packages = f"{ROOT / 'hw'}:{ROOT / 'sw'}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": packages, "SLUICE_BUILD": str(sim_build_dir())}

    def run(command: list[str] | str) -> str:
        done = subprocess.run(command, shell=isinstance(command, str), cwd=folder, env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)  # fmt: skip
        return done.stdout

    return run


def test_guide(shell):
    blocks = BLOCK.findall(GUIDE)
    assert len(blocks) > 10
    printed = ""
    for kind, text in blocks:
        if kind == "python":
            printed = shell([sys.executable, "-c", text])
            assert "Traceback" not in printed, printed
        elif kind == "output":
            assert printed == text
            printed = ""
        else:
            for entry in re.split(r"^\$ ", text, flags=re.M)[1:]:
                command, _, want = entry.partition("\n")
                on_chip = "sluice run" in command and "golden" not in command
                assert form(shell(command), on_chip) == form(want, on_chip), command


def form(text: str, on_chip: bool) -> str:
    """Cycle figures belong to the chip as it is today; of its report only the first word of a line counts here."""
    if not on_chip:
        return text
    return "\n".join(line if line.startswith("sluice") else line.split()[0] for line in text.splitlines())
