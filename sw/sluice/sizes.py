"""Sizes in messages."""

from __future__ import annotations

__all__ = ["size_text"]


def size_text(count: int) -> str:
    """Bytes as text: ``8 MiB``, ``12.3 MiB``, ``1.5 KiB``, ``100 bytes``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count // unit} {name}" if count % unit == 0 else f"{count / unit:.1f} {name}"
    return f"{count} bytes"
