"""Functional coverage: named bins that benches hit, summed over all runs by ``make coverage``.

A bench declares a group once and hits its bins::

    opcodes = Cover("sequencer.opcode", [op.name for op in Opcode])
    opcodes.hit("LOOP")

Each simulation leaves ``functional.json`` in its report folder. Streams watched by
:class:`verif.transactors.StreamMonitor` are covered without further words.
"""

import atexit
import json
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Cover", "covering"]

_groups: dict[str, "Cover"] = {}


def covering() -> bool:
    """Whether this run collects coverage (``SLUICE_COVERAGE`` set and not ``0``)."""
    return os.environ.get("SLUICE_COVERAGE", "0") not in ("", "0")


class Cover:
    """A group of bins; two objects of one name share their counts.

    Parameters
    ----------
    group
        Name with dots, for example ``"dma.direction"``.
    bins
        All bins, also those that this bench does not aim at.

    Raises
    ------
    ValueError
        When the group was declared before with other bins, or has none.
    """

    def __init__(self, group: str, bins: Iterable[str]):
        names = list(bins)
        if not names:
            raise ValueError(f"coverage group {group!r} has no bins")
        known = _groups.setdefault(group, self)
        if known is not self and list(known.counts) != names:
            raise ValueError(f"coverage group {group!r} has the bins {list(known.counts)}, not {names}")
        self.group = group
        self.counts: dict[str, int] = dict.fromkeys(names, 0) if known is self else known.counts
        if covering() and len(_groups) == 1:
            # The simulator runs in the report folder; its Python ends after the last test.
            atexit.register(_write, Path.cwd() / "functional.json")

    def hit(self, name: str) -> None:
        """Count a bin; ``KeyError`` for one that was not declared."""
        if name not in self.counts:
            raise KeyError(f"coverage group {self.group!r} has no bin {name!r}, only {list(self.counts)}")
        self.counts[name] += 1


def _write(path: Path) -> None:
    path.write_text(json.dumps({name: cover.counts for name, cover in _groups.items()}, indent=1) + "\n")
