"""Sluice: an open TPU and the software that drives it."""

__version__ = "0.1.0"
