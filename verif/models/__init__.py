"""Models that the benches compare the hardware with, and drivers."""
