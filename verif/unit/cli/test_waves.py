"""Save files for GTKWave, from real FST files."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from sluice.build import build_cocotb
from sluice.errors import UsageError
from sluice.waves import GROUPS, Signal, fst_signals, lz4_block, save_text, write_save_file
from sluice_hw.config import preset

VERILOG = r"""
module unit (input wire clk, output reg [3:0] level, output reg [5:0] opcode);
  initial begin level = 0; opcode = 0; end
  always @(posedge clk) begin level <= level + 1; opcode <= opcode + 3; end
endmodule
module tokens (input wire clk);
  reg [7:0] \counts[0][2] ; initial \counts[0][2] = 0;
  always @(posedge clk) \counts[0][2] <= \counts[0][2] + 1;
endmodule
module top (input wire clk, input wire rst, input wire s_axi_awvalid, output wire irq);
  wire [3:0] level; wire [5:0] opcode;
  unit ld_queue (.clk(clk), .level(level), .opcode(opcode));
  unit mxu_queue (.clk(clk), .level(), .opcode());
  tokens \tokens$581 (.clk(clk));
  assign irq = level[3];
endmodule
"""


@pytest.fixture(scope="module")
def fst(tmp_path_factory) -> Path:
    model = build_cocotb("waves", VERILOG, "top", waves=True, opt="-O0")
    folder = tmp_path_factory.mktemp("waves")
    model.run("verif.unit.cli.bench_waves", waves_file=folder / "w.fst", results_dir=folder / "run")
    return folder / "w.fst"


def test_signals_of_an_fst_file(fst):
    found = {s.path: s.width for s in fst_signals(fst)}
    assert found["top.irq"] == 1 and found["top.ld_queue.level"] == 4 and found["top.mxu_queue.opcode"] == 6
    assert found["top.tokens$581.counts[0][2]"] == 8


def test_save_file_names_only_what_is_there(fst):
    save = write_save_file(fst, preset("tiny"))
    text = save.read_text()
    names = {s.name for s in fst_signals(fst)}
    shown = re.findall(r"^\+\{(.*?)\} (.*)$", text, re.M)
    assert {name for _, name in shown} <= names
    assert {label for label, _ in shown} == {
        "clock", "reset", "interrupt", "LD op", "LD queue level", "MXU op", "MXU queue level", "tokens LD to MXU",
        "awvalid",
    }  # fmt: skip
    assert f'[dumpfile] "{fst}"' in text
    for group in ("Clock and reset", "Units", "Tokens", "AXI4"):
        assert text.count(f"\n-{group}\n") == 2, group
    assert text.count("@800200") == text.count("@1000200") == 4
    table = Path(re.search(r"\^1 (\S+)\n\+\{LD op\}", text)[1]).read_text()
    assert "13 pulse_array\n" in table and "1 halt\n" in table


def test_states_are_shown_as_words():
    signals = [Signal("t.s_axi_awvalid", 1), Signal("t.counters.mxu", 4, "[3:0]")]
    signals.append(Signal("t.ld_queue.level", 3, "[2:0]"))
    tables = {"causes": Path("/c"), "opcodes": Path("/o")}
    text = save_text(signals, Path("/x.fst"), tables, preset("tiny"))
    assert "@2022\n^1 /c\n+{MXU state} t.counters.mxu[3:0]\n" in text
    assert "@22\n+{LD queue level} t.ld_queue.level[2:0]\n" in text
    assert "Tokens" not in text and "Tokens" in GROUPS


def test_a_memory_beside_the_chip_is_not_the_chip():
    ports = [Signal(f"{scope}s_axi_awvalid", 1) for scope in ("$rootio.", "top.", "top.chip.")]
    signals = [*ports, Signal("top.chip.counters.mxu", 4, "[3:0]")]
    tables = {"causes": Path("/c"), "opcodes": Path("/o")}
    assert "+{MXU state} top.chip.counters.mxu[3:0]\n" in save_text(signals, Path("/x.fst"), tables, preset("tiny"))


def test_lz4_block():
    # Literals; a match that overlaps itself; long lengths.
    assert lz4_block(b"\x50hello", 5) == b"hello"
    assert lz4_block(b"\x11a\x01\x00\x50hello", 11) == b"aaaaaahello"
    assert lz4_block(b"\x1fa\x01\x00\xff\x02\x10b", 1 + 15 + 255 + 2 + 4 + 1) == b"a" * 277 + b"b"
    with pytest.raises(UsageError, match="5"):
        lz4_block(b"\x50hello", 6)


def test_not_an_fst_file(tmp_path):
    rng = random.Random(1)
    for data in (b"", b"hello", rng.randbytes(200)):
        path = tmp_path / "x.fst"
        path.write_bytes(data)
        with pytest.raises(UsageError, match="no FST file"):
            fst_signals(path)
