"""One compilation for several programs: libraries and cocotb models from an archive, and their cache."""

import ctypes
import multiprocessing

import numpy as np
import pytest

from sluice.build import BuildFailed, build_archive, build_cocotb, sim_build_dir
from sluice.build import steps as steps_module
from sluice_hw.ram import Ram1RW

WIDTHS = (64, 128, 256, 2048)
ROWS = 1 << 15

#: Memories as behind a chip, of all widths, large enough not to be set row by row.
MEMORIES = Ram1RW(depth=2, width=8).verilog_modules()["sluice_ram_1rw"] + f"""
module memories (input wire clk, input wire we, input wire [14:0] addr, input wire [2047:0] wdata,
                 output wire [2047:0] rdata);
{"".join(f'''  wire [{w - 1}:0] rdata{w};
  sluice_ram_1rw #(.DEPTH({ROWS}), .WIDTH({w}), .GRANULARITY({w}), .ADDR_BITS(15)) ram{w}
    (.clk(clk), .en(1'b1), .we(we), .addr(addr), .wdata(wdata[{w - 1}:0]), .rdata(rdata{w}));
''' for w in WIDTHS)}
  assign rdata = {" ^ ".join(f"rdata{w}" for w in WIDTHS)};
endmodule
"""

HOST = """
#include <cstring>
#include "Vtop.h"
#include "Vtop___024root.h"
double sc_time_stamp() { return 0; }
void Vtop___024root___eval_nba(Vtop___024root* root);
namespace { struct Model { VerilatedContext context; Vtop top{&context}; }; }
extern "C" {
void* model_new() { return new Model; }
void model_delete(void* model) { delete static_cast<Model*>(model); }
void model_write(void* model, unsigned row, const unsigned char* data) {
    Vtop& top = static_cast<Model*>(model)->top;
    top.we = 1; top.addr = row;
    std::memcpy(&top.wdata, data, 256);
    top.clk = 0; top.eval(); top.clk = 1; top.eval();
}
unsigned char* model_memory(void* model, int width) {
    Vtop___024root* const root = static_cast<Model*>(model)->top.rootp;
    switch (width) {
MEMBERS
    }
    return nullptr;
}
}
"""


@pytest.fixture(scope="module")
def archive():
    return build_archive("memories", MEMORIES, "memories", public=("clk", "addr"), opt="-O0")


@pytest.fixture(scope="module")
def host(archive) -> str:
    found = {w: [m for m in archive.members() if m.endswith(f"ram{w}__DOT__mem")] for w in WIDTHS}
    assert all(len(names) == 1 for names in found.values()), found
    members = (f"    case {w}: return reinterpret_cast<unsigned char*>(&root->{found[w][0]});" for w in WIDTHS)
    return HOST.replace("MEMBERS", "\n".join(members))


def load(path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.model_new.restype = ctypes.c_void_p
    library.model_delete.argtypes = [ctypes.c_void_p]
    library.model_write.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_char_p]
    library.model_memory.argtypes, library.model_memory.restype = [ctypes.c_void_p, ctypes.c_int], ctypes.c_void_p
    return library


def test_memories_are_bytes_in_order(archive, host):
    """Row by row without gaps, least significant byte first, whatever the width."""
    library, rng = load(archive.library(host)), np.random.default_rng(1)
    model = library.model_new()
    rows = {row: rng.bytes(256) for row in (0, 1, 77, ROWS - 1)}
    for row, data in rows.items():
        library.model_write(model, row, data)
    for width in WIDTHS:
        size = width // 8
        memory = ctypes.string_at(library.model_memory(model, width), ROWS * size)
        for row, data in rows.items():
            assert memory[row * size : (row + 1) * size] == data[:size], (width, row)
    library.model_delete(model)


def test_one_edge_is_recognised(archive):
    assert archive.one_edge
    two = "module two (input wire clk, input wire d, output reg a, output reg b);\n" \
          "  always @(posedge clk) a <= d;\n  always @(negedge clk) b <= a;\nendmodule\n"
    assert not build_archive("two", two, "two", opt="-O0").one_edge


def test_links_are_cached_by_what_goes_into_them(archive, host, monkeypatch):
    first, model = archive.library(host), archive.cocotb()
    assert model.executable.is_file() and first.parent != model.folder != archive.folder
    monkeypatch.setattr("sluice.build.archive.run_step", lambda *a, **k: pytest.fail("built again"))
    assert archive.library(host) == first and archive.cocotb() == model
    assert build_archive("memories", MEMORIES, "memories", public=("clk", "addr"), opt="-O0") == archive


@pytest.mark.parametrize(
    "change",
    [{"verilog": MEMORIES + "// x\n"}, {"opt": "-O2"}, {"public": ("clk",)}, {"waves": True},
     {"hot": ("sequent", "-O3")}, {"verilator_args": ["-Wno-WIDTH"]}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_every_input_is_in_the_key(archive, change, monkeypatch):
    keys = []
    monkeypatch.setattr("sluice.build.archive.cached", lambda folder, build: keys.append(folder.name) or archive.folder)
    plain = {"name": "memories", "verilog": MEMORIES, "top": "memories", "public": ("clk", "addr"), "opt": "-O0"}
    build_archive(**plain)
    build_archive(**{**plain, **change})
    monkeypatch.setattr("sluice.build.archive.cpu_identity", lambda: "another CPU")
    build_archive(**plain)
    native = {**plain, "hot": ("sequent", "-march=native")}
    build_archive(**native)
    monkeypatch.setattr("sluice.build.archive.cpu_identity", lambda: "a third CPU")
    build_archive(**native)
    assert keys[0] == keys[2] != keys[1] and keys[3] != keys[4], "a cache may move to another machine"


def test_key_does_not_depend_on_the_build_folder(archive, tmp_path, monkeypatch):
    """Also with waves, for which headers and libraries lie there: another folder may hold links to the same models."""
    keys: list[set[str]] = [set(), set()]
    for number, module in enumerate(("archive", "model")):
        monkeypatch.setattr(
            f"sluice.build.{module}.cached", lambda folder, build, n=number: keys[n].add(folder.name) or archive.folder
        )
    for folder in ("a", "b"):
        monkeypatch.setenv("SLUICE_BUILD", str(tmp_path / folder))
        build_archive("memories", MEMORIES, "memories", waves=True)
        build_cocotb("memories", MEMORIES, "memories", waves=True)
    assert [len(names) for names in keys] == [1, 1]


@pytest.fixture
def empty_build(tmp_path, monkeypatch):
    shared = sim_build_dir()
    folder = tmp_path / "build"
    folder.mkdir()
    for name in ("runtime", "tools"):
        (shared / name).mkdir(exist_ok=True, parents=True)
        (folder / name).symlink_to(shared / name)
    monkeypatch.setenv("SLUICE_BUILD", str(folder))
    return folder


COUNTER = """
module counter (input wire clk, output reg [7:0] count);
  initial count = 0;
  always @(posedge clk) count <= count + 1;
endmodule
"""

TICK = """
#include "Vtop.h"
double sc_time_stamp() { return 0; }
extern "C" int tick(int n) {
    VerilatedContext context;
    Vtop top{&context};
    while (n--) { top.clk = 0; top.eval(); top.clk = 1; top.eval(); }
    return top.count;
}
"""


def entries(folder) -> list[str]:
    return sorted(p.name for p in (folder / "models").glob("*") if p.is_dir() and not p.name.startswith("."))


def test_a_broken_step_poisons_nothing(empty_build, monkeypatch):
    """A compiler that is killed, a full disk, a wrong text: an error, no entry, and the next try is new."""
    real = steps_module.run_logged

    def killed(command, *, cwd, env, log):
        if "libVtop.a" in command or "main.o" in command:
            (cwd / "model.so").write_bytes(b"half")
            return "signal SIGKILL"
        return real(command, cwd=cwd, env=env, log=log)

    monkeypatch.setattr(steps_module, "run_logged", killed)
    with pytest.raises(BuildFailed, match=r"C\+\+ failed for 'counter' \(signal SIGKILL\)") as caught:
        build_archive("counter", COUNTER, "counter", opt="-O0")
    assert caught.value.log.is_file() and not entries(empty_build)
    monkeypatch.setattr(steps_module, "run_logged", real)
    archive = build_archive("counter", COUNTER, "counter", opt="-O0")
    monkeypatch.setattr(steps_module, "run_logged", killed)
    with pytest.raises(BuildFailed, match="SIGKILL"):
        archive.library(TICK)
    assert entries(empty_build) == [archive.folder.name]
    monkeypatch.setattr(steps_module, "run_logged", real)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sluice.build.archive.run_step", full)
        with pytest.raises(OSError, match="No space"):
            archive.library(TICK)
    with pytest.raises(BuildFailed, match="nothing"):
        archive.library(TICK + "int f() { return nothing; }\n")
    assert entries(empty_build) == [archive.folder.name]
    assert ctypes.CDLL(str(archive.library(TICK))).tick(300) == 300 % 256


def _build(_: int) -> str:
    return str(build_archive("counter", COUNTER, "counter", opt="-O0").library(TICK))


def test_concurrent_builds_happen_once(empty_build):
    """Three processes want the same: all get it, and each step has run once."""
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        paths = pool.map(_build, range(3))
    assert len(set(paths)) == 1 and ctypes.CDLL(paths[0]).tick(5) == 5
    assert len(entries(empty_build)) == 2
