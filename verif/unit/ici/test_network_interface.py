"""Between node and router: what is refused, Verilog without complaints. What it does is in ``test_network.py``."""

from __future__ import annotations

import pytest

from sluice.build import lint
from sluice_hw.emit import WAIVERS
from sluice_hw.emit.verilog import to_verilog
from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.network_interface import NetworkInterface
from sluice_hw.ici.returns import Returns
from sluice_hw.ici.route_table import entry_layout, route_entry
from sluice_hw.ici.routing import Choice


@pytest.mark.parametrize("orders", [1, 2])
def test_the_verilog_is_lint_free(orders):
    config = TorusConfig(rows=3, cols=5, data_bits=56, orders=orders)
    lint(to_verilog(NetworkInterface(config), name="network_interface"), "network_interface", WAIVERS)


def test_entries_say_what_a_plan_chose():
    assert route_entry(None) == 0
    for number in range(32):
        choice = Choice(*((number >> bit) & 1 for bit in range(5)))
        entry = entry_layout().from_bits(route_entry(choice.code()))
        assert entry.known and all(entry[name] == value for name, value in vars(choice).items())


@pytest.mark.parametrize("component", [NetworkInterface, Returns])
def test_refusals(component):
    with pytest.raises(TypeError, match="config must be a TorusConfig, not 8"):
        component(8)
