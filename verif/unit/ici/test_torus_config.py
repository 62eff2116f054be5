"""Parameters of a torus, and the layouts that follow from them."""

from __future__ import annotations

import pytest

from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.flit import flit_layout, header_layout, vc_fields, vc_number
from sluice_hw.ici.router import Router
from sluice_hw.ici.torus import torus_verilog


@pytest.mark.parametrize("orders", [1, 2])
def test_layouts_have_the_widths_that_the_config_says(orders):
    config = TorusConfig(rows=5, cols=16, data_bits=64, orders=orders)
    assert flit_layout(config).size == config.flit_bits
    assert header_layout(config).size == config.header_bits
    assert (config.x_bits, config.y_bits) == (4, 3)


@pytest.mark.parametrize("orders", [1, 2])
def test_channel_numbers(orders):
    config = TorusConfig(orders=orders)
    for vc in range(config.vcs):
        message, order, late = vc_fields(config, vc)
        assert vc_number(config, message=message, order=order, late=late) == vc
    assert config.vcs == 4 * orders


@pytest.mark.parametrize(
    ("field", "value", "error", "text"),
    [
        ("rows", 0, ValueError, "torus rows must be 1 to 16, not 0"),
        ("cols", 17, ValueError, "torus cols must be 1 to 16, not 17"),
        ("vc_depth", 3, ValueError, "torus vc_depth must be a power of two, not 3"),
        ("orders", "2", TypeError, "torus orders must be an integer, not '2'"),
        ("data_bits", 20, ValueError, "torus data_bits must hold the header, 28 bits, not 20"),
    ],
)
def test_bad_values_are_named(field, value, error, text):
    with pytest.raises(error, match=text):
        TorusConfig(**{field: value})


def test_bad_arguments():
    with pytest.raises(TypeError, match="config must be a TorusConfig, not 8"):
        Router(8)
    with pytest.raises(ValueError, match="latency of the torus's links must be 1 to 500 cycles, not 0"):
        torus_verilog(TorusConfig(), latency=0)
    with pytest.raises(ValueError, match="order must be below 1 in this torus, not 1"):
        vc_number(TorusConfig(orders=1), message=0, order=1, late=0)
