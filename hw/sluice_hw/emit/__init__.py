"""Turning Components into Verilog."""
