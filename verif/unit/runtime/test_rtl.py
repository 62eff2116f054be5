"""The driver on the chip inside this process: the same scenarios as on golden and behind cocotb."""

from __future__ import annotations

import pytest

from sluice.runtime import Device
from sluice.runtime.chip_model import build_library
from verif.unit.runtime.scenarios import SCENARIOS, TINY


@pytest.fixture(scope="module")
def library():
    return build_library(TINY)


@pytest.fixture(scope="module", params=["view", "axi"])
def device(request, library):
    with Device(TINY, "rtl", library=library, host_path=request.param) as device:
        yield device


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_scenario(device, scenario):
    scenario(device)
