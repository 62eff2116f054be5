"""Coverage: bins, Verilator's points merged by module, waivers, the report."""

import ctypes
import json
import os
import shutil
from pathlib import Path

import pytest

from sluice.build.cache import atomic_write, sim_build_dir
from verif import cover
from verif.coverage import __main__ as report
from verif.coverage import points, waivers
from verif.models.driven import build_driven
from verif.tools.summary import Summary


@pytest.fixture(autouse=True)
def own_groups(monkeypatch):
    monkeypatch.setattr(cover, "_groups", {})
    monkeypatch.delenv("SLUICE_COVERAGE", raising=False)


def test_bins_count():
    group = cover.Cover("g", ["a", "b"])
    again = cover.Cover("g", ["a", "b"])
    group.hit("a")
    again.hit("a")
    assert group.counts == again.counts == {"a": 2, "b": 0}


def test_wrong_bins_are_refused():
    group = cover.Cover("g", ["a"])
    with pytest.raises(KeyError, match="'g' has no bin 'c', only"):
        group.hit("c")
    with pytest.raises(ValueError, match="'g' has the bins .'a'., not .'b'."):
        cover.Cover("g", ["b"])
    with pytest.raises(ValueError, match="'h' has no bins"):
        cover.Cover("h", [])


def _point(page: str, line: int, comment: str, count: int, lines: str = "") -> str:
    fields = {"f": "src/x.v", "l": line, "n": 3, "t": page, "page": page, "o": comment, "S": lines, "h": "x"}
    return "C '" + "".join(f"\x01{key}\x02{value}" for key, value in fields.items()) + f"' {count}\n"


VERILOG = """module \\%s.x (clk);
  \\%s.x.sub  sub (clk);
  the line;
  if (\\$auto$verilog_backend.cc:2355:dump_module$3 ) begin end
endmodule
"""


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of two models that hold the same module, and of one that holds a variant."""
    monkeypatch.setenv("SLUICE_BUILD", str(tmp_path))
    for model, text in (
        ("a-1", VERILOG % ("top", "top")), ("b-2", "module y;\nendmodule\n" + VERILOG % ("chip.u", "chip.u")),
        ("c-3", VERILOG.replace("the line", "a line") % ("top", "top")),
    ):  # fmt: skip
        atomic_write(tmp_path / "models" / model / "src" / "x.v", text)
    runs = [
        ("a", "a-1", [("v_line/x", 3, "block", 0, "3-8,10"), ("v_toggle/x", 1, "q:0->1", 5)], {"g": {"a": 1, "b": 0}}),
        ("b", "b-2", [("v_line/x", 5, "block", 3, "5-10,12"), ("v_toggle/x", 3, "q:0->1", 0)],
         {"g": {"a": 1, "b": 0}}),
        ("c", "c-3", [("v_line/x", 3, "block", 0), ("v_branch/x", 3, "if", 1, "4-5"), ("v_branch/x", 3, "else", 1),
                      ("v_branch/x", 4, "if", 0)], {"h": {"c": 4}}),
        ("again", "c-3", [("v_line/x", 3, "block", 0), ("v_branch/x", 3, "if", 1, "4-5")], {}),
    ]
    for name, model, counted, bins in runs:
        folder = tmp_path / "report" / name
        atomic_write(folder / "coverage.dat", "# SystemC::Coverage-3\n" + "".join(_point(*p) for p in counted))
        atomic_write(folder / "model", f"{tmp_path / 'models' / model}\n")
        atomic_write(folder / "functional.json", json.dumps(bins))
    return tmp_path


def test_points_are_merged_where_the_module_is_the_same(build: Path) -> None:
    one, two = points.structural(build / "report")
    assert (one.title, two.title) == ("x.1", "x.2")
    assert sorted((p.kind, p.line, p.size, count) for p, count in one.counts.items()) == [
        ("line", 3, 7, 3), ("toggle", 1, 1, 5)]  # fmt: skip
    # The body of an if is lines, and the condition that can never be true is none.
    assert sorted((p.kind, p.line, p.size, count) for p, count in two.counts.items()) == [
        ("branch", 3, 1, 1), ("line", 3, 1, 0), ("line", 3, 2, 2)]  # fmt: skip


def test_bins_are_summed_by_group(build: Path) -> None:
    assert points.functional(build / "report") == {"g": {"a": 2, "b": 0}, "h": {"c": 4}}


def test_report(build: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "FILE", build / "waivers.txt")
    monkeypatch.setattr(report, "LINE_TARGET", 0.9)
    (build / "waivers.txt").write_text("# none\n")
    assert report.main() == 1  # enough is reached, but a line is not explained
    out, err = capsys.readouterr()
    assert "reached: 90.0 % of 10 lines, 0 explained, 1 neither" in out
    assert "functional:  66.7 % of 3 bins in 2 groups" in out
    assert "neither reached nor explained: x.2 line 3 block  a line;" in err and "less than" not in err
    assert (build / "coverage" / "functional.txt").read_text() == "g b\n"
    assert (build / "coverage" / "uncovered.txt").read_text() == "x.2 line 3 block  a line;\n"
    assert 'class="no"' in (build / "coverage" / "x.2.html").read_text()
    assert 'href="x.1.html"' in (build / "coverage" / "index.html").read_text()

    (build / "waivers.txt").write_text("x* | line | a li.e | it is not there\n")
    Summary(seed=3, seconds=1, counts={"passed": 1}).write(build / "report")
    assert report.main() == 0
    assert "- coverage: 90.0 % of 10 lines, 1 explained\n" in (build / "report" / "summary.md").read_text()
    assert "explained: 1 line" in capsys.readouterr().out
    assert "it is not there" in (build / "coverage" / "x.2.html").read_text()
    assert json.loads((build / "coverage" / "summary.json").read_text())["line"] == 0.9

    (build / "waivers.txt").write_text("x* | line | a li.e | it is not there\nz | line | q | stale\n")
    assert report.main() == 1
    assert "explains nothing: z | line | q" in capsys.readouterr().err


def test_too_few_lines_fail_though_they_are_explained(
    build: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "FILE", build / "waivers.txt")
    (build / "waivers.txt").write_text("x* | line | a li.e | it is not there\n")
    assert report.main() == 1
    assert "reached: 90.0 % of the lines, less than 95 %" in capsys.readouterr().err


def test_a_module_is_explained_by_another_that_is_reached() -> None:
    part = points.Module({"x"}, ["", "a"], {points.Place("line", 2, 1, "block"): 0})
    whole = points.Module({"own_8", "y"}, ["", "b"], {points.Place("line", 2, 1, "block"): 4})
    (waiver,) = waivers.read_waivers("x own_* | line | * | its own bench reaches all\n")
    assert waiver.covers(part, points.Place("line", 2, 1, "block"))
    assert waiver.holds([part, whole]) and not waiver.holds([part])
    assert not waiver.holds([part, points.Module({"own_1"}, [""])])


@pytest.mark.parametrize(("line", "message"), [
    ("x | line | a", "line 1: must be 'module | kind | pattern | reason'"),
    ("x | word | a | b", "kind must be one of line, branch, toggle, not 'word'"),
    ("x | line | ( | b", "is no regular expression"),
])  # fmt: skip
def test_waivers_are_checked(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("|", "[|]")):
        waivers.read_waivers(line)


def test_waivers_of_the_project_are_well_formed() -> None:
    waivers.read_waivers(waivers.FILE.read_text())


def test_no_runs_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLUICE_BUILD", str(tmp_path))
    assert report.main() == 1
    assert "run the tests with SLUICE_COVERAGE=1" in capsys.readouterr().err


DRIVER = """
#include "Vtop.h"
double sc_time_stamp() { return 0; }
extern "C" void run(int up) {
    VerilatedContext context;
    Vtop one{&context, "one"}, two{&context, "two"};
    one.up = up, two.up = 0;
    for (Vtop* top : {&one, &two})
        for (int i = 0; i < 4; i++) top->clk = i & 1, top->eval();
}
"""
COUNTER = """module counter(input clk, input up, output reg [3:0] q);
  initial q = 0;
  always @(posedge clk)
    if (up) begin
      q <= q + 1;
    end else begin
      q <= q - 1;
    end
endmodule
"""


@pytest.mark.soak
def test_models_that_cpp_drives_leave_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All instances of a context in one file, and all runs of a process."""
    monkeypatch.setenv("SLUICE_COVERAGE", "1")
    library = build_driven("counted", COUNTER, "counter", DRIVER, opt="-O0")
    folder = sim_build_dir() / "report" / "driven" / library.parent.name
    shutil.rmtree(folder, ignore_errors=True)
    try:
        for up in (0, 1):  # only the second run counts up
            ctypes.CDLL(str(library)).run(up)
            assert [path.name for path in folder.iterdir()] == [str(os.getpid())]
            (module,) = points.structural(folder)
            assert module.name == "counter" and {p.kind for p in module.counts} >= {"line", "toggle"}
            assert [p.comment for p, n in module.of("line").items() if not n] == ([] if up else ["if"])
    finally:
        shutil.rmtree(folder)  # is no hardware of the project
    assert build_driven("counted", COUNTER, "counter", DRIVER, counted=False, opt="-O0") != library
