"""Random legal words, for the tests of the assembler."""

from __future__ import annotations

import random

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Op


def random_fields(op: Op, config: ChipConfig, rng: random.Random) -> dict[str, int]:
    """Legal fields; the ends of the ranges and the defaults come up often."""
    out = {}
    for f in isa.OPS[op].fields:
        lo, hi = isa.field_range(f, config)
        default = min(max(0, lo), hi)
        out[f.name] = rng.choice((lo, hi, default, default, rng.randint(lo, hi)))
    if op is Op.ADDR and out["ring"]:
        for level in range(isa.LOOP_LEVELS):
            out[f"stride{level}"] = rng.choice((0, min(out["ring"], (1 << isa.STRIDE_BITS - 1) - 1)))
    return out


def random_word(op: Op, config: ChipConfig, rng: random.Random) -> int:
    return isa.encode(op, config, random_fields(op, config, rng))
