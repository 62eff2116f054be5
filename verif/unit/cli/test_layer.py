"""``sluice layer``: encoder layers on golden, and what cannot be."""

import json

import pytest

from sluice.cli import main

SMALL = ["layer", "--sequence", "5", "--hidden", "16", "--heads", "2", "--backend", "golden"]


@pytest.fixture
def chip(tmp_path):
    path = tmp_path / "chip.toml"
    path.write_text('name = "eight"\ndtype = "bf16"\npe_latency = 4\n')
    return ["--config", str(path)]


@pytest.mark.parametrize("causal", [[], ["--causal"]])
def test_layer(chip, capsys, causal):
    assert main([*SMALL, *chip, *causal, "--seed", "3"]) == 0
    text = f"encoder layer of 5x16, 2 heads{', causal' if causal else ''}, seed 3: 0 of 80 values differ from golden\n"
    assert capsys.readouterr().out.startswith(text)
    assert main([*SMALL, *chip, *causal, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["mismatches"], done["values"], done["hidden"], done["causal"]) == (0, 80, 16, bool(causal))
    assert done["work"]["macs"] > 5 * 16 * 16 * 12


def test_bad_input(chip, capsys):
    for argv, text in (
        ([*SMALL, *chip, "--heads", "3"], "heads must divide hidden: 3 does not divide 16"),
        ([*SMALL, *chip, "--sequence", "0"], "sequence must be at least 1, not 0"),
        ([*SMALL, "--config", "tiny"], "(dtype bf16, such as v2), and chip 'tiny' "
                                       "is of int8"),
        ([*SMALL, *chip, "--sequence", "4000"], "(bf16 4000 x 16) does not fit in VMEM"),
    ):  # fmt: skip
        assert main(argv) == 2
        assert text in capsys.readouterr().err
