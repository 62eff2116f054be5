"""Verilog text of a design with the modules that came as Verilog."""

import os
import shutil
import subprocess
import sys

import pytest
from amaranth import Instance, Module
from amaranth.back import rtlil
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

import sluice_hw.emit
from sluice.build.toolchain import find_toolchain
from sluice_hw.array import SystolicArray
from sluice_hw.emit.verilog import VerilogPlatform, to_modules, to_verilog, use_verilog
from sluice_hw.pe import PE
from sluice_hw.ram import Ram1R1W, Ram1RW

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


class Box(wiring.Component):
    """An instance of a module that comes as Verilog, or several of one name."""

    def __init__(self, *, text="module box(input x, output y); assign y = ~x; endmodule\n", other=None):
        self.texts = [text] if other is None else [text, other]
        super().__init__({"x": In(1), "y": Out(1)})

    def elaborate(self, platform):
        m = Module()
        for text in self.texts:
            use_verilog(platform, {"box": text})
        m.submodules.box = Instance("box", i_x=self.x, o_y=self.y)
        return m


def test_primitives_are_appended_once():
    class Two(wiring.Component):
        def __init__(self):
            super().__init__({"x": In(1), "y": Out(2)})

        def elaborate(self, platform):
            m = Module()
            for index in range(2):
                m.submodules[f"box{index}"] = box = Box()
                m.d.comb += [box.x.eq(self.x), self.y[index].eq(box.y)]
            return m

    text = to_verilog(Two(), name="two")
    assert text.count("module box(") == 1 and text.count("module two(") == 1
    assert list(to_modules(Two(), name="two")) == ["two", "box"]


def test_text_says_nothing_of_where_and_when():
    text = to_verilog(PE(rows=4), name="pe")
    assert "src" not in text and ".py" not in text and "Generated" not in text
    assert text.startswith("module pe(") and text == to_verilog(PE(rows=4), name="pe")
    assert "input left__valid;" in text and "output [17:0] down__psum;" in text


def test_same_bytes_in_every_process():
    """Nothing goes by the order of a set, which differs from process to process; cached models go by the text."""
    code = ("import sys; from sluice_hw.array import SystolicArray; from sluice_hw.config import preset;"
            "from sluice_hw.emit.verilog import to_verilog; from sluice_hw.vpu import Vpu;"
            "sys.stdout.write(to_verilog(Vpu(preset('tiny'), emission='loop'), name='vpu'));"
            "sys.stdout.write(to_verilog(SystolicArray(rows=3, cols=2, emission='loop'), name='array'))")
    path = os.pathsep.join(filter(None, sys.path))
    texts = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}).stdout for seed in "12"]
    assert texts[0] == texts[1] and "module vpu(" in texts[0]


def test_two_texts_of_one_name():
    with pytest.raises(ValueError, match="'box.v' is declared twice with different contents"):
        to_verilog(Box(other="module box; endmodule\n"), name="top")
    with pytest.raises(ValueError, match="Module name 'box' is that of a Verilog module inside the design"):
        to_verilog(Box(), name="box")
    platform = VerilogPlatform()
    platform.add_file("a.v", "one")
    platform.add_file("a.v", "one")
    assert platform.files == {"a.v": "one"}


def test_bad_parameters():
    with pytest.raises(ValueError, match="Module name must be a Verilog identifier, not 'a b'"):
        to_verilog(PE(rows=4), name="a b")
    with pytest.raises(TypeError, match="Only a Component can be emitted, not"):
        to_verilog(Module(), name="top")


def test_without_a_platform():
    """Plain RTLIL of a design with primitives still works; the Verilog is then somebody else's care."""
    assert "cell \\box" in rtlil.convert(Box(), name="top")


@pytest.mark.parametrize("make", [
    lambda: Ram1RW(depth=12, width=32, granularity=8),
    lambda: Ram1R1W(depth=5, width=3, granularity=1),
    lambda: PE(rows=5, latency=2),
    lambda: SystolicArray(rows=5, cols=3),
    lambda: SystolicArray(rows=5, cols=3, emission="loop"),
    lambda: SystolicArray(rows=1, cols=1, emission="loop"),
    lambda: SystolicArray(rows=3, cols=2, latency=4, dtype="bf16"),
    lambda: SystolicArray(rows=3, cols=2, latency=2, dtype="int8+bf16", emission="loop"),
], ids=["ram_1rw", "ram_1r1w", "pe", "structural", "loop", "loop_1x1", "bf16", "both_loop"])
def test_lint(make, tmp_path):
    """Verilator's whole lint, with the named waivers only."""
    (tmp_path / "top.v").write_text(to_verilog(make(), name="top"))
    shutil.copy(sluice_hw.emit.WAIVERS, tmp_path / "waivers.vlt")
    tools = find_toolchain()
    done = subprocess.run([tools.verilator, "--lint-only", "-Wall", "waivers.vlt", "top.v", "--top-module", "top"],
                          cwd=tmp_path, env=tools.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
