"""Settings of all tests: the seed in the header, and generated files kept in ``sim_build``."""

import os

import hypothesis
import pytest

from sluice.build import sim_build_dir
from sluice.build.model import pick_seed

# Numerics tests take long on a loaded machine without being wrong, so hypothesis sets no deadline. Examples are drawn
# from the run's seed (see ``--hypothesis-seed``) and failures print what reproduces them.
hypothesis.settings.register_profile("sluice", deadline=None, print_blob=True)
hypothesis.settings.load_profile("sluice")
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(sim_build_dir() / "hypothesis"))


def pytest_configure(config: pytest.Config) -> None:
    # One seed for the whole session, also under pytest-xdist, whose workers inherit the environment.
    os.environ["SLUICE_SEED"] = str(pick_seed())
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = int(os.environ["SLUICE_SEED"])


def pytest_report_header() -> list[str]:
    return [f"seed: SLUICE_SEED={os.environ['SLUICE_SEED']}", f"generated files: {sim_build_dir()}"]


@pytest.fixture
def seed() -> int:
    """The session's seed."""
    return int(os.environ["SLUICE_SEED"])
