"""Checks and generators of the project's own files."""
