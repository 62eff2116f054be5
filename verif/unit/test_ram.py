"""The RAM primitives."""

import json

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from sluice_hw.emit.verilog import to_verilog
from sluice_hw.ram import Ram1R1W, Ram1RW
from verif.harness import run_verilog

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")

KINDS = {"1rw": Ram1RW, "1r1w": Ram1R1W}
SHAPES = [("1rw", 12, 32, 8), ("1rw", 1, 7, 7), ("1rw", 100, 130, 13), ("1r1w", 5, 3, 1), ("1r1w", 300, 64, 64),
          ("1r1w", 33, 96, 32)]


class Rams(wiring.Component):
    """All shapes side by side; port ``p`` of number n is ``r<n>__p``."""

    def __init__(self):
        self.rams = [KINDS[kind](depth=depth, width=width, granularity=granularity)
                     for kind, depth, width, granularity in SHAPES]
        super().__init__({f"r{number}": Out(ram.signature) for number, ram in enumerate(self.rams)})

    def elaborate(self, platform):
        m = Module()
        for number, ram in enumerate(self.rams):
            m.submodules[f"ram{number}"] = ram
            for name, member in ram.signature.members.items():
                inside, outside = getattr(ram, name), getattr(getattr(self, f"r{number}"), name)
                m.d.comb += outside.eq(inside) if member.flow is Out else inside.eq(outside)
        return m


@pytest.mark.parametrize("form", ["simulation", "synthesis"])
def test_ram(form):
    """The same traffic on what the simulator reads and on what synthesis reads."""
    text = to_verilog(Rams(), name="top")
    if form == "synthesis":
        assert text.count("`ifdef VERILATOR") == 2
        text = text.replace("`ifdef VERILATOR", "`ifdef NEVER")
    run_verilog(text, "verif.unit.bench_ram", name=f"ram_{form}", top="top", env={"SHAPES": json.dumps(SHAPES)})


@pytest.mark.parametrize("kind", KINDS.values())
def test_text_does_not_depend_on_depth(kind):
    texts = [to_verilog(kind(depth=depth, width=2048), name="top") for depth in (1 << 10, 1 << 20)]
    assert abs(len(texts[0]) - len(texts[1])) < 200
    assert all("initial" not in text for text in texts)


def test_defaults():
    ram = Ram1RW(depth=9, width=40)
    assert (ram.depth, ram.width, ram.granularity) == (9, 40, 40)
    assert (len(ram.addr), len(ram.we)) == (4, 1)
    assert len(Ram1R1W(depth=1, width=4, granularity=2).waddr) == 1


@pytest.mark.parametrize("kind", KINDS.values())
def test_bad_parameters(kind):
    with pytest.raises(ValueError, match="RAM depth must be at least 1, not 0"):
        kind(depth=0, width=8)
    with pytest.raises(TypeError, match="RAM width must be an integer, not 8.0"):
        kind(depth=4, width=8.0)
    with pytest.raises(ValueError, match="granularity must divide the width 12, 8 does not"):
        kind(depth=4, width=12, granularity=8)
