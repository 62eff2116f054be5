"""Coverage: bins, Verilator's points, and the report over runs."""

import json

import pytest

from sluice.build.cache import atomic_write
from verif import cover
from verif.tools import coverage


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


def _point(page: str, line: int, comment: str, count: int) -> str:
    fields = {"f": "src/x.v", "l": line, "n": 3, "t": page, "page": page, "o": comment, "h": "x"}
    return "C '" + "".join(f"\x01{key}\x02{value}" for key, value in fields.items()) + f"' {count}\n"


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Two runs of one model and one of a variant, as simulations leave them."""
    monkeypatch.setenv("SLUICE_BUILD", str(tmp_path))
    for model in ("x-1111", "x-2222"):
        atomic_write(tmp_path / "models" / model / "src" / "x.v", "module x;\n  the line;\nendmodule\n")
    runs = [
        ("a", "x-1111", [("v_line/x", 2, "block", 0), ("v_toggle/x", 1, "q:0->1", 5)], {"g": {"a": 1, "b": 0}}),
        ("b", "x-1111", [("v_line/x", 2, "block", 3), ("v_toggle/x", 1, "q:0->1", 0)], {"g": {"a": 1, "b": 0}}),
        ("c", "x-2222", [("v_line/x", 2, "block", 0), ("v_branch/x", 2, "if", 1)], {"h": {"c": 4}}),
    ]
    for name, model, points, bins in runs:
        folder = tmp_path / "report" / name
        atomic_write(folder / "coverage.dat", "# SystemC::Coverage-3\n" + "".join(_point(*p) for p in points))
        atomic_write(folder / "model", f"{tmp_path / 'models' / model}\n")
        atomic_write(folder / "functional.json", json.dumps(bins))
    return tmp_path


def test_points_are_summed_by_model_and_added_by_unit(build):
    table, uncovered = coverage.structural(build / "report")
    assert table == {"x": {"line": (1, 2), "branch": (1, 1), "toggle": (1, 1)}}
    assert uncovered == ["x-2222 line x:2 block  the line;"]


def test_bins_are_summed_by_group(build):
    assert coverage.functional(build / "report") == {"g": {"a": 2, "b": 0}, "h": {"c": 4}}


def test_report(build, capsys):
    assert coverage.main() == 0
    out = capsys.readouterr().out
    assert "50.0 % of 2" in out and "functional:  66.7 % of 3 bins in 2 groups" in out
    assert (build / "coverage" / "functional.txt").read_text() == "g b\n"


def test_no_runs_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SLUICE_BUILD", str(tmp_path))
    assert coverage.main() == 1
    assert "run the tests with SLUICE_COVERAGE=1" in capsys.readouterr().err
