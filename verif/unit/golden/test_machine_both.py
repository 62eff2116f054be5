"""Golden's chip of int8 and bf16: what a program must not mix; the whole of it runs in ``verif/system``."""

from __future__ import annotations

import pytest

from sluice.asm import AsmError, assemble
from sluice.golden import GoldenMachine, UndefinedError
from verif.system.configs import BOTH_TYPES
from verif.unit.golden.machine_kit import TINY, poke, rng_of, run_text

SETUP = "addr r0 base=0\nfeed_shape n0=2 s0=8 segments=1\nfeed_segment index=0 lo=0 hi={hi}\n"


@pytest.mark.parametrize(("load", "pulse", "hi", "message"), [
    ("int8", "", 4, "is of bf16, and the weight tile is not"),
    ("", "int8", 4, "is of int8, and the weight tile is not"),
    ("int8 n=5", "int8", 4, "n must be at most 4 with int8, not 5"),
    ("int8", "int8", 5, "segment 0 must end at array row 4, not 5"),
    ("int8 transpose", "int8", 4, "transpose must be 0 with int8"),
])
def test_what_does_not_go_together(load, pulse, hi, message):
    n = "" if "n=" in load else "n=4"
    ops = f"load_weights vmem=r0 pitch=4 k=2 {n} {load}\npulse_array vmem=r0 acc=r0 swap {pulse}\nhalt"
    machine = GoldenMachine(BOTH_TYPES)
    poke(machine.vmem, 0, rng_of("both").integers(0, 256, 64, "uint8"))
    with pytest.raises(UndefinedError, match=message):
        run_text(machine, SETUP.format(hi=hi) + ops, check=False)


def test_other_chips_have_one_type():
    for config in (TINY, TINY.replace(name="bf16", dtype="bf16")):
        with pytest.raises(AsmError, match="LOAD_WEIGHTS int8 must be 0 to 0, not 1"):
            assemble("load_weights int8\nhalt", config)
    with pytest.raises(AsmError, match="LOAD_WEIGHTS transpose must be 0 with int8"):
        assemble("load_weights int8 n=2 transpose\nhalt", BOTH_TYPES)
