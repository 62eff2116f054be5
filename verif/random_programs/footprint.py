"""What ops of a tree touch, over all their iterations."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from sluice_hw.config import ChipConfig
from sluice_hw.isa import Unit
from verif.unit.compiler.races import accesses, setup_key, setup_value, trace

from .lower import Lowered
from .tree import Block, Loop, Node

__all__ = ["Footprint", "footprints", "of_item"]


@dataclass
class Footprint:
    """Sets of places as bit masks, by memory."""

    reads: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    writes: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, other: Footprint) -> None:
        for mine, theirs in ((self.reads, other.reads), (self.writes, other.writes)):
            for memory, mask in theirs.items():
                mine[memory] |= mask

    def meets(self, other: Footprint) -> bool:
        """Whether the two touch one place and one of them writes it."""
        return any(
            mask & (other.writes.get(memory, 0) | other.reads.get(memory, 0)) for memory, mask in self.writes.items()
        ) or any(mask & other.writes.get(memory, 0) for memory, mask in self.reads.items())


def _mask(places: np.ndarray) -> int:
    flags = np.zeros(int(places.max()) + 1, np.uint8)
    flags[places] = 1
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def footprints(lowered: Lowered, config: ChipConfig, params: list[int], entry: int) -> dict[Node, Footprint]:
    """By op; ops that are never executed touch nothing."""
    out: dict[Node, Footprint] = defaultdict(Footprint)
    setup: dict[tuple, dict] = {}
    for unit, uop in trace(lowered.program, config, params, entry):
        if "wait_ld" not in uop.fields:
            setup[setup_key(uop)] = setup_value(uop)
            continue
        node = lowered.nodes[uop.pc]
        assert node is not None
        for _, memory, places, write in accesses(config, unit, uop, setup):
            if len(places):
                (out[node].writes if write else out[node].reads)[memory] |= _mask(places)
    return out


def of_item(item: Node | Loop, known: dict[Node, Footprint]) -> dict[Unit, Footprint]:
    """By unit, for an op or all ops of a loop."""
    out: dict[Unit, Footprint] = {}
    body: Block = item.body if isinstance(item, Loop) else []
    parts = [of_item(inner, known) for inner in body]
    if isinstance(item, Node):
        parts = [{item.unit: known.get(item, Footprint())}]
    for part in parts:
        for unit, footprint in part.items():
            out.setdefault(unit, Footprint()).add(footprint)
    return out
