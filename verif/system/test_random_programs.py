"""Random programs, legal and broken, on chips in this process; `python -m verif.random_programs` replays one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from verif.harness import report_dir
from verif.random_programs.chips import open_bench
from verif.random_programs.compare import Bench
from verif.random_programs.crosses import Crosses
from verif.random_programs.replay import from_text, run_seeds
from verif.random_programs.sweep import sweep_programs, sweep_resets, sweep_words
from verif.system.configs import FLOAT_CONFIGS, RANDOM_CONFIGS

#: Programs of each chip in `make test`, 50 together.
SHORT = {"tiny": 20, "wide": 15, "odd": 15}
#: Programs of `make soak`, all chips together.
LONG = int(os.environ.get("SLUICE_PROGRAMS", "2100"))
#: Programs that failed once, made small; each says in its first line what was wrong. They run with the short tests.
REGRESSIONS = sorted((Path(__file__).parents[1] / "random_programs" / "regressions").glob("*.s"))


@pytest.fixture(scope="module", params=RANDOM_CONFIGS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A chip for the tests of this file."""
    out = open_bench(RANDOM_CONFIGS[request.param])
    with out.device:
        yield out


@pytest.fixture(scope="module", params=FLOAT_CONFIGS)
def float_bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A chip of bf16."""
    out = open_bench(FLOAT_CONFIGS[request.param])
    with out.device:
        yield out


def check(bench: Bench, first: int, number: int) -> None:
    crosses, folder = Crosses(), report_dir("random_programs")
    failed = run_seeds(bench, range(first, first + number), folder, each=crosses.add)
    crosses.write(folder / "functional.json")
    assert not failed, "\n\n".join(failed)


def test_random_programs(bench: Bench, seed: int) -> None:
    for path in REGRESSIONS:
        if f".config {bench.config.name}\n" in path.read_text():
            bench.run(from_text(path.read_text(), bench.config))
    check(bench, seed * 1000, SHORT[bench.config.name])


@pytest.mark.soak
def test_many_random_programs(bench: Bench, seed: int) -> None:
    check(bench, 1_000_000 + seed * 10_000, -(-LONG // len(RANDOM_CONFIGS)))


def test_illegal_words(bench: Bench, seed: int) -> None:
    sweep_words(bench, 0.3, seed)


def test_broken_programs(bench: Bench, seed: int) -> None:
    sweep_programs(bench, 15, seed * 1000)


def test_resets(bench: Bench, seed: int) -> None:
    sweep_resets(bench, 4, seed * 1000 + 500)


@pytest.mark.soak
def test_many_resets(bench: Bench, seed: int) -> None:
    sweep_resets(bench, LONG // 20, 3_000_000 + seed * 10_000)


@pytest.mark.soak
def test_all_illegal_words(bench: Bench, seed: int) -> None:
    sweep_words(bench, 1.0, seed)


@pytest.mark.soak
def test_many_broken_programs(bench: Bench, seed: int) -> None:
    sweep_programs(bench, LONG // 6, 2_000_000 + seed * 10_000)


@pytest.mark.parametrize("float_bench", ["tiny-bf16"], indirect=True)
def test_some_programs_of_bf16(float_bench: Bench, seed: int) -> None:
    first = seed * 1000 + 500
    failed = run_seeds(float_bench, range(first, first + 15), report_dir("random_programs"))
    assert not failed, "\n\n".join(failed)
    sweep_words(float_bench, 0.1, seed)
    sweep_programs(float_bench, 15, first)


@pytest.mark.soak
def test_programs_of_bf16(float_bench: Bench, seed: int) -> None:
    """Passes, transposes and all the rest; illegal words and broken programs as for int8."""
    for path in REGRESSIONS:
        if f".config {float_bench.config.name}\n" in path.read_text():
            float_bench.run(from_text(path.read_text(), float_bench.config))
    failed = run_seeds(float_bench, range(seed * 1000, seed * 1000 + LONG // 10), report_dir("random_programs"))
    assert not failed, "\n\n".join(failed)
    sweep_words(float_bench, 1.0, seed)
    sweep_programs(float_bench, LONG // 20, seed * 1000)
    sweep_resets(float_bench, LONG // 20, seed * 1000)
