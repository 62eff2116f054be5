"""Address registers."""

from sluice_hw.addrgen import AddressRegisters
from verif.harness import run_bench


def test_addrgen():
    run_bench(AddressRegisters(), "verif.unit.bench_addrgen", name="addrgen")
