"""The reference pages are what the tables say now."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice import docs_gen
from sluice.asm import assemble
from sluice_hw import isa
from sluice_hw.config import preset

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", docs_gen.PAGES)
def test_pages_are_not_stale(name):
    page = (DOCS / name).read_text()
    assert docs_gen.render(page, name) == page, "run: python -m sluice.docs_gen"


def test_check_finds_a_stale_page(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(docs_gen, "PAGES", {"isa.md": docs_gen.PAGES["isa.md"]})  # some take seconds to make
    for name in docs_gen.PAGES:
        (tmp_path / name).write_text((DOCS / name).read_text())
    assert docs_gen.main(["--check", "--docs", str(tmp_path)]) == 0
    page = (tmp_path / "isa.md").read_text()
    (tmp_path / "isa.md").write_text(page.replace("| 1 | [HALT]", "| 2 | [HALT]"))
    assert docs_gen.main(["--check", "--docs", str(tmp_path)]) == 1
    assert "out of date: isa.md" in capsys.readouterr().err
    assert docs_gen.main(["--docs", str(tmp_path)]) == 0
    assert (tmp_path / "isa.md").read_text() == page


def test_page_without_markers():
    with pytest.raises(ValueError, match="docs/isa.md must hold the lines"):
        docs_gen.render("# Microcode\n", "isa.md")


def test_every_code_has_a_meaning():
    assert set(docs_gen.ERROR_MEANING) == set(isa.Error)
    assert set(docs_gen.CAUSE_MEANING) == set(isa.Cause)


def test_the_example_on_the_page_assembles():
    page = (DOCS / "isa.md").read_text()
    text = page.split("```")[1]
    program = assemble(text, preset("tiny"), check=False)
    assert [isa.decode(w)[0].name for w in program.words].count("LOOP") == 2
