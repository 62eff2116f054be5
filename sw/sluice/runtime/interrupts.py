"""Ctrl-C between two exchanges with a simulator, never in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["interrupts_deferred"]


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """An interruption by the user acts at the end of the body. Threads other than the main one get none anyway."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    seen: list[tuple] = []
    before = signal.signal(signal.SIGINT, lambda *what: seen.append(what))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if seen and callable(before):
        before(*seen[0])
