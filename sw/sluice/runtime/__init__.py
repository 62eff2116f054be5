"""Driving a chip from Python: device, buffers, programs, reports.

The way to the chip is a :class:`Transport`: ``golden`` (the interpreter of microcode) or ``cocotb`` (the Verilated
chip behind AXI masters). Everything above it is the same for both.
"""

from .banks import BANKS, BankMap
from .buffer import Buffer
from .config_file import load_config
from .device import Device
from .ecc import EccStatus
from .executor import CompiledModel, RunOutcome, Verification
from .fault import Fault
from .image import Image, load_image
from .memory import SliceAllocator
from .memory_info import MemoryInfo, compiled_memory
from .report import RunReport
from .state import Event
from .transport import BACKENDS, SimTime, Transport, open_transport

__all__ = [
    "BACKENDS",
    "BANKS",
    "BankMap",
    "Buffer",
    "CompiledModel",
    "Device",
    "EccStatus",
    "Event",
    "Fault",
    "Image",
    "MemoryInfo",
    "RunOutcome",
    "RunReport",
    "SimTime",
    "SliceAllocator",
    "Transport",
    "Verification",
    "compiled_memory",
    "load_config",
    "load_image",
    "open_transport",
]
