"""Save files for GTKWave, from real FST files."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from sluice.build import build_cocotb
from sluice.errors import UsageError
from sluice.waves import Signal, fst_signals, lz4_block, save_text, write_save_file
from sluice_hw.config import preset

VERILOG = """
module unit (input wire clk, output reg [3:0] state, output reg [5:0] opcode);
  initial begin state = 0; opcode = 0; end
  always @(posedge clk) begin state <= state + 1; opcode <= opcode + 3; end
endmodule
module top (input wire clk, input wire rst, input wire s_axi_awvalid, output wire irq);
  wire [3:0] state; wire [5:0] opcode;
  unit ld_queue (.clk(clk), .state(state), .opcode(opcode));
  unit sequencer (.clk(clk), .state(), .opcode());
  unit mxu_queue (.clk(clk), .state(), .opcode());
  assign irq = state[3];
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
    assert found["top.irq"] == 1 and found["top.ld_queue.state"] == 4 and found["top.sequencer.opcode"] == 6


def test_save_file_names_only_what_is_there(fst):
    save = write_save_file(fst, preset("tiny"))
    text = save.read_text()
    names = {s.name for s in fst_signals(fst)}
    shown = [line for line in text.splitlines() if not line.startswith(("@", "-", "[", "^"))]
    assert shown and set(shown) <= names
    assert f'[dumpfile] "{fst}"' in text
    for group in ("Clock and reset", "Sequencer", "Units", "AXI4"):
        assert text.count(f"\n-{group}\n") == 2, group
    opened, closed = text.count("@800200"), text.count("@1000200")
    assert opened == closed >= 4
    table = Path(re.search(r"\^1 (\S+)\n.*ld_queue\.opcode", text)[1]).read_text()
    assert "13 pulse_array\n" in table and "1 halt\n" in table


def test_states_are_shown_as_words():
    signals = [Signal("t.s_axi_awvalid", 1), Signal("t.counters.mxu", 4, "[3:0]")]
    signals.append(Signal("t.ld_queue.level", 3, "[2:0]"))
    filters = {"causes": Path("/c"), "opcodes": Path("/o")}
    text = save_text(signals, Path("/x.fst"), filters, preset("tiny"))
    assert "@2022\n^1 /c\nt.counters.mxu[3:0]\n" in text and "@22\nt.ld_queue.level[2:0]\n" in text


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

