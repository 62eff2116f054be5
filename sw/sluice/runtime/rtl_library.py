"""The C interface of the simulated chip in this process (``rtl_host.cpp``), with its types for ``ctypes``."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path

__all__ = ["load_library"]

_FUNCTIONS = {
    "new": (c_void_p, [c_char_p, c_uint64, c_uint64]),
    "delete": (None, [c_void_p]),
    "csr_read": (c_int, [c_void_p, c_uint32, POINTER(c_uint32)]),
    "csr_write": (c_int, [c_void_p, c_uint32, c_uint32]),
    "mem_read": (c_int, [c_void_p, c_uint64, c_uint64, c_void_p]),
    "mem_write": (c_int, [c_void_p, c_uint64, c_uint64, c_void_p]),
    "run": (c_uint64, [c_void_p, c_uint64, c_int]),
    "interrupt": (c_int, [c_void_p]),
    "mark": (None, [c_void_p]),
    "memory": (POINTER(c_uint8), [c_void_p, POINTER(c_uint64)]),
    "shown": (c_uint64, [c_void_p]),
    "cycles": (c_uint64, [c_void_p]),
    "seconds": (c_double, [c_void_p]),
}


def load_library(path: Path) -> ctypes.CDLL:
    """Load the library. Calls into it leave Python's other threads running."""
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, f"sluice_{name}")
        function.restype, function.argtypes = result, arguments
    return library
