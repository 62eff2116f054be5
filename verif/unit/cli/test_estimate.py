"""``sluice estimate``: what it takes, prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluice.asm import assemble
from sluice.cli import main
from sluice.compiler import compile as compile_graph
from sluice.compiler import matmul_graph
from sluice.estimate import estimate
from sluice_hw.config import preset

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "asm"


@pytest.fixture
def sluice(capsys):
    """Run a command; exit status, stdout, stderr."""

    def run(*argv: str) -> tuple[int, str, str]:
        status = main(["estimate", *argv])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_matmul(sluice) -> None:
    config = preset("small")
    want = estimate(compile_graph(matmul_graph(40, 30, 20, out="int32", relu=True), config).program, config)
    shape = ("--m", "40", "--k", "30", "--n", "20", "--out", "int32", "--relu", "--config", "small")
    status, out, err = sluice(*shape)
    assert (status, out, err) == (0, f"[40, 30] x [30, 20] -> int32, ReLU\n{want}\n", "")
    status, out, _ = sluice(*shape, "--json")
    assert status == 0 and json.loads(out) == {"name": "[40, 30] x [30, 20] -> int32, ReLU", **want.to_json()}


def test_network(sluice) -> None:
    status, out, _ = sluice("--net", "mlp", "--images", "3", "--config", "v1")
    assert status == 0 and out.startswith("mlp, 3 images\nv1 chip (256x256 array), estimated\n")


@pytest.mark.parametrize("suffix", [".s", ".bin"])
def test_file(sluice, tmp_path: Path, suffix: str) -> None:
    source = EXAMPLES / "matmul_loop.s"
    program = assemble(source.read_text(), file=source.name)
    path = source if suffix == ".s" else tmp_path / "program.bin"
    if suffix == ".bin":
        path.write_bytes(program.to_bytes())
    status, out, _ = sluice(str(path), "--json")
    assert status == 0 and json.loads(out)["cycles"] == estimate(program, preset("tiny")).cycles


def test_parameters(sluice, tmp_path: Path) -> None:
    path = tmp_path / "loop.s"
    path.write_text(".config tiny\nloop 0 count=p1 {\naddr r0 base=1\n}\nhalt\n")
    few, many = (json.loads(sluice(str(path), "--json", "--param", f"1={n}")[1])["cycles"] for n in (2, 50))
    assert many > few
    status, _, err = sluice(str(path), "--param", "9=1")
    assert status == 2 and "--param must be I=VALUE" in err


@pytest.mark.parametrize(("args", "message"), [
    ((), "give one of: a program's file; --m, --k and --n; --net"),
    (("x.s", "--net", "mlp"), "give one of"),
    (("--m", "8", "--n", "8"), "a matrix product needs --m, --k and --n; given: --m, --n"),
    (("--m", "0", "--k", "8", "--n", "8"), "m must be an integer from 1, not 0"),
    (("--net", "cnn", "--images", "0"), "--images must be at least 1, not 0"),
    (("--net", "cnn", "--config", "nosuch"), "nosuch"),
    (("nosuch.s",), "nosuch.s: No such file"),
])  # fmt: skip
def test_refusals(sluice, args: tuple[str, ...], message: str) -> None:
    status, out, err = sluice(*args)
    assert status == 2 and out == "" and message in err and err.count("\n") == 1


def test_hanging_program(sluice, tmp_path: Path) -> None:
    path = tmp_path / "hangs.s"
    path.write_text(".config tiny\nsync unit=vpu wait=ld\nhalt\n")
    status, _, err = sluice(str(path))
    assert status == 2 and "the program does not end: VPU waits at word 0, SYNC, for a token from LD" in err
