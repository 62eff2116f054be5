"""Commands that run the simulated chip: the digits job, matmul and run with their default backend, Verilog, waves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from sluice.build import sim_build_dir
from sluice.cli import main
from sluice.cli.sim import KEYS
from sluice.waves import GROUPS, fst_signals, fst_times

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "asm"


@pytest.fixture
def build(tmp_path, monkeypatch):
    """A build folder of its own for what commands write, that shares the models that are built."""
    shared = sim_build_dir()
    folder = tmp_path / "build"
    folder.mkdir()
    for part in ("models", "runtime", "tools", "verilog", "lint"):
        (shared / part).mkdir(parents=True, exist_ok=True)
        (folder / part).symlink_to(shared / part)
    monkeypatch.setenv("SLUICE_BUILD", str(folder))
    return folder


def test_digits(build, capsys):
    """A part of the main job (`make sim` runs all of it): the report has exactly its keys, and they agree."""
    assert main(["sim", "--images", "30"]) == 0
    out, err = capsys.readouterr()
    assert "mlp: running 30 images" in err and re.search(r"^cycles +\d+ +\d+$", out, re.M)
    report = json.loads((build / "report" / "digits.json").read_text())
    assert list(report) == ["mlp", "cnn"]
    for entry in report.values():
        assert tuple(entry) == KEYS
        assert entry["images"] == 30 and entry["mismatches"] == 0
        assert abs(entry["accuracy_float"] - entry["accuracy_rtl"]) <= 0.05
        for key in ("accuracy_float", "accuracy_rtl", "mxu_utilisation", "mxu_starvation", "hbm_utilisation"):
            assert 0 <= entry[key] <= 1
        assert entry["cycles"] > 0 and entry["macs"] > 0 and entry["sim_cycles_per_second"] > 0
        assert set(entry["stalls"]) == {"seq", "ld", "st", "mxu", "vpu", "hbm"}
        for causes in entry["stalls"].values():
            assert {"busy", "idle"} <= set(causes) and sum(causes.values()) == entry["cycles"]


def test_digits_as_json(build, capsys):
    assert main(["sim", "--images", "3", "--net", "mlp", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and json.loads(out)["mlp"]["images"] == 3


def test_matmul_on_the_chip_is_the_default(build, capsys):
    assert main(["matmul", "--m", "37", "--k", "70", "--n", "19", "--config", "tiny", "--seed", "5", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    report = json.loads(out)
    assert report["backend"] == "rtl" and report["mismatches"] == 0 and report["macs"] == 37 * 70 * 19
    assert all(sum(causes.values()) == report["cycles"] for causes in report["stalls"].values())


def test_run_on_the_chip(build, capsys, tmp_path):
    values = np.random.default_rng(2).integers(-128, 128, (8, 8, 8)).astype(np.int8)
    largest = values.reshape(4, 2, 4, 2, 8).max(axis=(1, 3))
    image = tmp_path / "image.npz"
    np.savez(image, **{"image@0": values, "expect:max@2": largest})
    assert main(["run", str(EXAMPLES / "pooling.s"), "--mem", str(image)]) == 0
    out = capsys.readouterr().out
    assert "max int8[4, 4, 8], 0 of 128 values differ" in out and re.search(r"cycles +\d+", out)


def test_verilog(build, capsys, tmp_path):
    texts = []
    for path in (tmp_path / "a.v", tmp_path / "b.v"):
        assert main(["verilog", "--config", "tiny", "--out", str(path)]) == 0
        texts.append(path.read_bytes())
    assert texts[0] == texts[1] and b"module sluice_top" in texts[0]
    assert main(["verilog", "--emit", "loop"]) == 0
    path = build / "verilog" / "sluice_tiny_loop.v"
    text = path.read_text()
    lines = text.count("\n")
    assert capsys.readouterr().out.endswith(f"{path}: {lines} lines\n")
    for port in ("s_axil_awaddr", "s_axi_wdata", "s_axi_rlast", "irq"):
        assert re.search(rf"(input|output)[^;]*\b{port}\b", text)


@pytest.mark.soak
def test_waves_of_a_window(build, capsys):
    """Cycles after the doorbell, 10 ns each; a window behind the end leaves a message and no file."""
    argv = ["matmul", "--m", "9", "--k", "9", "--n", "9"]
    assert main([*argv, "--waves=100:180"]) == 0
    fst, save = map(Path, re.search(r"doorbell: gtkwave (\S+) (\S+)", capsys.readouterr().err).groups())
    assert "100-180" in fst.name and save.is_file()
    assert {s.name for s in fst_signals(fst)} >= {"sluice_top.irq"}
    assert fst_times(fst) == (1000, 1795)
    assert main([*argv, "--waves=900000:900001"]) == 0
    out, err = capsys.readouterr()
    assert "0 of 81 values differ" in out
    assert "no waves: the simulation ended before cycles 900000 to 900000 after the doorbell" in err


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--waves=3000:1000"], "--waves=3000:1000: a window of waves needs 0 <= FIRST < LAST, not 3000:1000"),
        (["--waves=5"], "--waves=5: a window of waves is FIRST:LAST, cycles after the doorbell"),
        (["--waves=1:2", "--backend", "cocotb"], "--waves=1:2 needs --backend rtl: cocotb shows all cycles or none"),
        (["--waves=1:2", "--backend", "golden"], "--waves needs --backend rtl or cocotb: golden has no signals"),
    ],
)
def test_bad_windows_are_named(build, capsys, argv, text):
    for command in (["matmul", "--m", "1", "--k", "1", "--n", "1"], ["sim"], ["run", str(EXAMPLES / "pooling.s")]):
        assert main([*command, *argv]) == 2
        assert text in capsys.readouterr().err


def test_waves(build, capsys):
    """An FST file of the chip, and a save file whose every group has signals."""
    argv = ["matmul", "--m", "9", "--k", "9", "--n", "9", "--waves"]
    assert main(argv) == 0
    err = capsys.readouterr().err
    fst, save = map(Path, re.search(r"waves: gtkwave (\S+) (\S+)", err).groups())
    text, names = save.read_text(), {s.name for s in fst_signals(fst)}
    for title, wanted in GROUPS.items():
        shown = re.findall(r"^\+\{(.*?)\} (.*)$", text.split(f"\n-{title}\n")[1], re.M)
        assert {name for _, name in shown} <= names, title
        assert len(shown) >= len(wanted), f"{title}: {[label for label, _ in shown]}"
