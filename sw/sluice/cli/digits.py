"""The digits networks of ``examples/digits``: real images, two small networks, quantised."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from types import ModuleType

from sluice.compiler import Graph

from . import common

__all__ = ["networks", "quantised"]


@cache
def networks() -> ModuleType:
    """Module ``examples.digits.networks``."""
    root = str(common.project_root())
    if root not in sys.path:
        sys.path.insert(0, root)
    return importlib.import_module("examples.digits.networks")


def quantised(name: str, batch: int) -> Graph:
    """The network as int8, calibrated on the training images."""
    from sluice.compiler import quantise

    net = networks()
    train = net.preprocess(net.load_data().train_images)
    return quantise(net.NETWORKS[name](batch=batch), train, io="int8")
