"""Chips of the system tests: the models that the driver runs on, so that ``make sim`` and the tests share a build."""

from collections.abc import Iterator

import pytest

from sluice.build import CocotbModel
from sluice.runtime import Device
from sluice.runtime.chip_model import build_chip
from verif.system.configs import CONFIGS


@pytest.fixture(scope="session")
def tiny_model() -> CocotbModel:
    return build_chip(CONFIGS["tiny"])


@pytest.fixture(scope="session")
def wide_model() -> CocotbModel:
    """Little is simulated on it, so that the C++ compiler's time counts more than the model's speed."""
    return build_chip(CONFIGS["wide"], opt="-O1")


@pytest.fixture(scope="module")
def tiny_chip(tiny_model: CocotbModel) -> Iterator[Device]:
    """One simulation for the tests of a file."""
    with Device(CONFIGS["tiny"], "cocotb", model=tiny_model) as device:
        yield device


@pytest.fixture(scope="module")
def wide_chip(wide_model: CocotbModel) -> Iterator[Device]:
    with Device(CONFIGS["wide"], "cocotb", model=wide_model) as device:
        yield device


@pytest.fixture
def tiny(tiny_chip: Device) -> Device:
    return _usable(tiny_chip)


@pytest.fixture
def wide(wide_chip: Device) -> Device:
    return _usable(wide_chip)


def _usable(device: Device) -> Device:
    """A test that failed in the middle must not fail the others; one that passed leaves a chip that needs no reset."""
    status = device.status
    if status["running"] or status["error"]:
        device.reset()
        device.breakpoint(None)
    return device
