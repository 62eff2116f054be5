"""The command line: what it prints where, and its exit status. Simulated chips are tested in test_sim.py."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sluice import __version__
from sluice.asm import assemble
from sluice.cli import main, parser
from sluice.runtime import CompiledModel
from sluice_hw.config import PRESETS

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "asm"


@pytest.fixture
def sluice(capsys):
    """Run a command; exit status, stdout, stderr."""

    def run(*argv: str) -> tuple[int, str, str]:
        try:
            status = main([str(a) for a in argv])
        except SystemExit as end:
            status = end.code
        out, err = capsys.readouterr()
        return status, out, err

    return run


def one_json(text: str) -> dict:
    """The only thing in ``text``."""
    assert text.count("\n") == 1
    return json.loads(text)


def test_version_and_help(sluice):
    assert sluice("--version") == (0, f"sluice {__version__}\n", "")
    status, out, _ = sluice("--help")
    assert status == 0
    for command in ("sim", "matmul", "asm", "disasm", "run", "verilog", "lint", "config", "bench", "memory"):
        assert re.search(rf"^    {command} +\w", out, re.M), command
        assert "--debug" in sluice(command, "--help")[1]


def test_nothing_given(sluice):
    status, out, err = sluice()
    assert status == 2 and out == "" and "COMMAND" in err


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.s")), ids=lambda p: p.stem)
def test_asm_and_disasm_round_trip(sluice, tmp_path, path):
    program = assemble(path.read_text())
    words, config = program.words, ("--config", program.config_name)
    for suffix in ("bin", "hex"):
        binary, text = tmp_path / f"p.{suffix}", tmp_path / "p.s"
        assert sluice("asm", path, "-o", binary) == (0, "", "")
        assert sluice("disasm", binary, "-o", text, *config) == (0, "", "")
        assert assemble(text.read_text()).words == words
        assert sluice("disasm", binary, *config)[1] == text.read_text()
    listing = sluice("asm", path)[1]
    assert [int(line.split()[1], 16) for line in listing.splitlines()] == words
    (tmp_path / "listing.hex").write_text(listing)
    assert sluice("disasm", tmp_path / "listing.hex", *config)[1] == text.read_text()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["asm", "gone.s"], "sluice asm: gone.s: No such file or directory"),
        (["asm", "bad.s"], "sluice asm: bad.s:2:1: unknown op 'hlt'; known ops: "),
        (["asm", "good.s", "-o", "x.exe"], "sluice asm: --out must end in .bin or .hex, not 'x.exe'"),
        (["asm", "good.s", "--config", "small"], "sluice asm: good.s:1:9: the text is for config 'tiny', but 'small'"),
        (["asm", "latin.s"], "sluice asm: latin.s: not UTF-8 text"),
        (["disasm", "short.bin"], "sluice disasm: short.bin: program of 33 bytes is truncated"),
        (["disasm", "bad.hex"], "sluice disasm: bad.hex:2: a word is 64 hexadecimal digits, not 'xyz'"),
        (["disasm", "empty.hex"], "sluice disasm: empty.hex: holds no words"),
        (["run", "good.s", "--backend", "golden", "--mem", "gone.npz"],
         "sluice run: memory image gone.npz: No such file"),
        (["run", "good.s", "--backend", "golden", "--read", "out"], "sluice run: a result is NAME@SLICE:DTYPE"),
        (["run", "good.s", "--backend", "golden", "--param", "9=1"], "sluice run: --param must be I=VALUE, I 0 to 7"),
        (["run", "good.s", "--backend", "golden", "--timeout", "0"], "sluice run: --timeout must be at least 1"),
        (["run", "good.s", "--backend", "golden", "--waves"], "sluice run: --waves needs --backend rtl or cocotb"),
        (["run", "hangs.s", "--backend", "golden"],
         "sluice run: WATCHDOG at word 0 (line 2) by MXU, `sync unit=mxu wait=ld`: deadlock: "),
        (["matmul", "--m", "0", "--k", "1", "--n", "1"], "sluice matmul: m must be an integer from 1, not 0"),
        (["matmul", "--m", "1", "--k", "1", "--n", "1", "--config", "tinny"],
         "sluice matmul: unknown config 'tinny'; known configs: tiny, small"),
        (["sim", "--images", "361"], "sluice sim: --images must be 1 to 360, not 361"),
        (["config", "show"], "sluice config: config show needs a preset or a file"),
        (["config", "show", "x"], "sluice config: unknown config 'x'"),
        (["config", "list", "tiny"], "sluice config: config list takes no name"),
        (["memory", "--net", "mlp", "--batch", "0"], "sluice memory: --batch must be at least 1, not 0"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)  # fmt: skip
def test_mistakes_are_one_line(sluice, tmp_path, monkeypatch, argv, message):
    monkeypatch.chdir(tmp_path)
    Path("bad.s").write_text(".config tiny\nhlt\n")
    Path("good.s").write_text(".config tiny\nhalt\n")
    Path("hangs.s").write_text(".config tiny\nsync unit=mxu wait=ld\nhalt\n")
    Path("latin.s").write_bytes(b"# caf\xe9\n")
    Path("short.bin").write_bytes(bytes(33))
    Path("bad.hex").write_text("0" * 63 + "1\nxyz\n")
    Path("empty.hex").write_text("# nothing\n")
    status, out, err = sluice(*argv)
    assert status == 2 and out == ""
    lines = [line for line in err.splitlines() if not line.startswith("[")]
    assert len(lines) == 1 and lines[0].startswith(message), err
    assert "Traceback" not in err


def test_debug_shows_the_traceback(sluice):
    status, _, err = sluice("asm", "gone.s", "--debug")
    assert status == 2 and "Traceback" in err and "gone.s: No such file" in err


def test_run_a_program_on_an_image(sluice, tmp_path):
    rng = np.random.default_rng(6)
    a, w = (rng.integers(-128, 128, s).astype(np.int8) for s in ((16, 8), (8, 8)))
    params = np.concatenate([np.zeros(8, "<i4").view(np.uint8), np.full(8, 1 << 30, "<i4").view(np.uint8),
                             np.full(8, 38, np.uint8)])  # fmt: skip
    want = np.clip(((a.astype(np.int64) @ w + 128) >> 8) + 3, -128, 127).astype(np.int8)
    image, out = tmp_path / "image.npz", tmp_path / "out.npz"
    arrays = {"a@0": a, "w@1": w, "p@2": params}
    np.savez(image, **arrays, **{"expect:out@3": want})
    program = EXAMPLES / "matmul_tile.s"
    status, text, _ = sluice("run", program, "--mem", image, "--backend", "golden", "--out", out)
    assert status == 0 and "out int8[16, 8], 0 of 128 values differ" in text and "macs 1024" in text
    assert np.array_equal(np.load(out)["out"], want)
    status, text, _ = sluice("run", program, "--mem", image, "--backend", "golden", "--json")
    report = one_json(text)
    assert status == 0 and report["results"]["out"] == want.tolist() and report["mismatches"] == {"out": 0}
    wrong = want.copy()
    wrong[3, 4] ^= 1
    np.savez(image, **arrays, **{"expect:out@3": wrong})
    status, text, _ = sluice("run", program, "--mem", image, "--backend", "golden")
    assert status == 1 and "1 of 128 values differ" in text
    np.savez(image, **arrays)
    argv = ["run", program, "--mem", image, "--backend", "golden", "--json"]
    status, text, _ = sluice(*argv, "--read", "r@3:int8[16,8]")
    assert status == 0 and one_json(text)["results"]["r"] == want.tolist()


def test_run_with_parameters_and_words_that_are_refused(sluice, tmp_path):
    source = tmp_path / "p.s"
    source.write_text(".config tiny\nloop count=p2 {\n addr r1 base=3\n}\nhalt code=5\n")
    status, text, _ = sluice("run", source, "--backend", "golden", "--param", "p2=0x10", "--json")
    assert status == 0 and one_json(text)["halt_code"] == 5
    binary = tmp_path / "p.bin"
    binary.write_bytes((63).to_bytes(32, "little"))
    status, _, err = sluice("run", binary, "--backend", "golden")
    assert status == 2 and "word 0: opcode 63 is not implemented" in err
    status, _, err = sluice("run", binary, "--backend", "golden", "--no-check")
    assert status == 2 and "ILLEGAL_OPCODE at word 0 by sequencer" in err
    assert "--debug shows the state" in err and "  status     error" not in err
    status, _, err = sluice("run", binary, "--backend", "golden", "--no-check", "--debug")
    assert status == 2 and "Traceback" in err and "  status     error" in err


@pytest.mark.parametrize("options", [[], ["--out", "int32"], ["--relu"], ["--out", "int32", "--relu"]])
def test_matmul(sluice, options):
    argv = ["matmul", "--m", "9", "--k", "17", "--n", "10", "--seed", "3", "--backend", "golden", *options]
    status, text, err = sluice(*argv, "--json")
    report = one_json(text)
    assert status == 0 and report["mismatches"] == 0 and report["values"] == 90 and report["macs"] == 9 * 17 * 10
    assert {"cycles", "mxu_utilisation", "mxu_starvation", "hbm_utilisation", "stalls"} <= set(report)
    assert "compiling 9 x 17 x 10" in err
    status, text, _ = sluice(*argv)
    assert status == 0 and "0 of 90 values differ from golden" in text


def test_a_mismatch_is_a_failure(sluice, monkeypatch):
    real = CompiledModel._run

    def spoilt(self, packed, timeout):
        outputs, report = real(self, packed, timeout)
        outputs["c"] = outputs["c"] ^ (np.arange(outputs["c"].size).reshape(outputs["c"].shape) == 7)
        return outputs, report

    monkeypatch.setattr(CompiledModel, "_run", spoilt)
    argv = ["matmul", "--m", "3", "--k", "3", "--n", "3", "--backend", "golden"]
    status, text, _ = sluice(*argv)
    assert status == 1 and "1 of 9 values differ from golden" in text and "first: c[2, 1] is " in text
    status, text, _ = sluice(*argv, "--json")
    assert status == 1 and one_json(text)["mismatches"] == 1


def test_config(sluice):
    status, text, _ = sluice("config", "list")
    assert status == 0 and [line.split()[0] for line in text.splitlines()[1:]] == list(PRESETS)
    listed = one_json(sluice("config", "list", "--json")[1])
    assert listed["v1"]["rows"] == 256
    assert "TPU v1 with its own memory" in text
    assert "feed_ports           4" in sluice("config", "show", "tiny")[1]
    shown = sluice("config", "show", "v1-ddr3")[1]
    assert "hbm_beat_bytes       64" in shown and "91.75 TOPS, HBM 33.6 GB/s" in shown and "Jouppi" in shown
    assert one_json(sluice("config", "show", "small", "--json")[1])["cols"] == 16


def test_memory(sluice):
    status, text, _ = sluice("memory", "--config", "v1")
    assert status == 0 and "VMEM          24 MiB: 8 regions of 3 MiB" in text
    assert "256 bytes a cycle\n" in text
    assert "48 bytes a cycle in beats of 64\n" in sluice("memory", "--config", "v1-ddr3")[1]


def test_it_is_a_command():
    """As its own process: nothing is imported that only tests have, and a broken pipe is no error."""
    command = [sys.executable, "-m", "sluice.cli"]
    env_path = {"PYTHONPATH": f"{ROOT / 'hw'}:{ROOT / 'sw'}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([*command, "config", "list"], capture_output=True, text=True, env=env_path, cwd="/",
                          check=False)  # fmt: skip
    assert done.returncode == 0 and "tiny" in done.stdout and done.stderr == ""


def test_every_command_has_a_call():
    commands = next(a for a in parser()._actions if a.dest == "command").choices
    assert all(c.get_default("call") for c in commands.values())
