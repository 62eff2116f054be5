"""Turning Components into Verilog."""

from pathlib import Path

__all__ = ["WAIVERS"]

WAIVERS = Path(__file__).with_name("waivers.vlt")
"""Verilator's waiver file for all Verilog that is generated here; each waiver gives its reason."""
