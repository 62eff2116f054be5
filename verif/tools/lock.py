"""Read and check the lock files that :mod:`verif.tools.relock` writes."""

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["LOCKS", "ROOT", "Pin", "problems", "read_lock"]

ROOT = Path(__file__).resolve().parents[2]
LOCKS = {"base": ROOT / "requirements.lock", "test": ROOT / "requirements-test.lock"}


@dataclass
class Pin:
    """One locked package: its version, and the sha256 digests of the wheels that may be installed."""

    name: str
    version: str
    hashes: list[str] = field(default_factory=list)


def read_lock(path: Path) -> dict[str, Pin]:
    """Packages of a lock file, by canonical name.

    Raises
    ------
    ValueError
        For a line that is no pin, hash or comment: a lock names no addresses, options or ranges.
    """
    pins: dict[str, Pin] = {}
    last: Pin | None = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.removesuffix("\\").strip()
        if not text or text.startswith("#"):
            continue
        if match := re.fullmatch(r"([a-z0-9-]+)==([0-9A-Za-z.]+)", text):
            last = pins[match[1]] = Pin(match[1], match[2])
        elif (match := re.fullmatch(r"--hash=sha256:([0-9a-f]{64})", text)) and last is not None:
            last.hashes.append(match[1])
        else:
            allowed = "'name==version' and '--hash=sha256:...'"
            raise ValueError(f"{path.name}:{number}: a lock holds {allowed}, not {text!r}")
    return pins


def problems(project: dict[str, object], base: dict[str, Pin], test: dict[str, Pin]) -> list[str]:
    """What is wrong between ``pyproject.toml`` (parsed) and the two locks; empty when they agree."""
    found = [f"{pin.name} has no hash" for pin in [*base.values(), *test.values()] if not pin.hashes]
    found += [
        f"{name} differs between the two locks" for name, pin in base.items() if test.get(name) != pin
    ]
    meta = project["project"]
    wanted = {
        "base": (base, [*meta["dependencies"], *project["build-system"]["requires"]]),
        "test": (test, meta["optional-dependencies"]["test"]),
    }
    for kind, (lock, requirements) in wanted.items():
        for requirement in map(Requirement, requirements):
            pin = lock.get(canonicalize_name(requirement.name))
            if pin is None:
                found.append(f"{requirement.name} is not in the {kind} lock")
            elif not requirement.specifier.contains(pin.version, prereleases=True):
                found.append(f"{requirement} does not admit the locked {pin.version}")
    return found


def main() -> int:
    """Print what is wrong with the committed files."""
    found = problems(
        tomllib.loads((ROOT / "pyproject.toml").read_text()), read_lock(LOCKS["base"]), read_lock(LOCKS["test"])
    )
    print("\n".join(found) or "lock files agree with pyproject.toml")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
