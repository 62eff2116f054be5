"""The floating-point vector unit by itself, simulated, with memories around it that refuse at random."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.emit.verilog import to_verilog
from sluice_hw.interfaces import op_layout
from sluice_hw.isa import Cause, Error, Op
from sluice_hw.vpu.float_unit import FloatUnit
from verif.models.driven import build_driven
from verif.models.part import defines, member_of

__all__ = ["PORTS", "Outcome", "VectorUnit"]

#: What can be refused, in the driver's order.
PORTS = ("source", "residual", "params", "result", "acc", "acc_write", "tokens")


class Outcome(ctypes.Structure):
    """What a run did: cycles, blocks, ops, faults (the first one's code, pc and info in ``fault``)."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("cycles", "rows", "started", "finished", "given", "faults", "word")),
        ("state", ctypes.c_uint64 * 16),
        *((name, ctypes.c_uint64) for name in ("first_start", "last_finish", "touched_beyond")),
    ]  # fmt: skip

    @property
    def fault(self) -> tuple[Error, int, int] | None:
        return (Error(self.word & 0xF), self.word >> 4 & 0xFFFF, self.word >> 20) if self.faults else None

    @property
    def busy(self) -> int:
        """Cycles from the first start to the last end."""
        return self.last_finish - self.first_start

    def spent(self, cause: Cause) -> int:
        return self.state[cause]


class VectorUnit:
    """A unit that runs lists of ops on given memories.

    Parameters
    ----------
    config : ChipConfig
    emission : 'structural' or 'loop'
    """

    def __init__(self, config: ChipConfig, *, emission: str = "loop", opt: str = "-O0") -> None:
        self.config = config
        width = config.word_bytes
        macros = {
            "COLS": config.cols, "WORD_BYTES": width, "VMEM_BYTES": config.vmem_bytes, "ACC_ROWS": config.acc_rows,
            "OP_BYTES": self._op_bytes, "WRITE_BYTES": 4 + width + -(-width // 8),
        }  # fmt: skip
        # Ports are all that the driver calls by names with double underscores.
        driver = member_of(Path(__file__).with_name("unit_driver.cpp").read_text())
        text = to_verilog(FloatUnit(config, emission=emission), name="top")
        library = build_driven(
            f"unit-{config.rows}x{config.cols}-{emission}", text, "top",
            defines(macros) + driver, opt=opt,
            verilator_args=["--x-assign", "fast", "--x-initial", "fast", "-Wno-WIDTHEXPAND", "-Wno-WIDTHTRUNC"],
        )  # fmt: skip
        self._lib = ctypes.CDLL(str(library))
        self._lib.unit_run.argtypes = [
            ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64,
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
        ]  # fmt: skip

    @property
    def _op_bytes(self) -> int:
        return -(-op_layout().size // 8)

    def op(
        self, op: Op, fields: Mapping[str, int], *, a: int = 0, b: int = 0, signal: int = 0, pc: int = 0
    ) -> int:
        """A micro-op as the sequencer makes it."""
        return op_layout().const({
            "word": isa.encode(op, self.config, fields), "a": a & 0xFFFFFFFF, "b": b & 0xFFFFFFFF, "c": 0,
            "wait": 0, "signal": signal, "accumulate": 0, "swap": 0, "pc": pc,
        }).as_value().value  # fmt: skip

    def run(self, ops: Sequence[int], vmem: np.ndarray, acc: np.ndarray, *, refuse: float | Sequence[float] = 0.0,
            seed: int = 1, limit: int = 100_000, missing: int = 1 << isa.Unit.MXU) -> Outcome:  # fmt: skip
        """Runs the ops; ``vmem`` (uint8) and ``acc`` (uint32 of rows and columns) become what they leave.

        Parameters
        ----------
        refuse
            How often each of :data:`PORTS` refuses, or one number for all.
        missing
            Units whose tokens lack while tokens are refused: a bit each.
        """
        assert vmem.dtype == np.uint8 and vmem.shape == (self.config.vmem_bytes,) and vmem.flags.c_contiguous
        assert acc.dtype == np.uint32 and acc.shape == (self.config.acc_rows, self.config.cols)
        packed = b"".join(op.to_bytes(self._op_bytes, "little") for op in ops)
        shares = [refuse] * len(PORTS) if isinstance(refuse, float) else refuse
        refused = (ctypes.c_uint32 * len(PORTS))(*(int(256 * share) for share in shares))
        outcome = Outcome()
        self._lib.unit_run(packed, len(ops), limit, refused, missing, seed, vmem.ctypes.data, acc.ctypes.data,
                           ctypes.byref(outcome))  # fmt: skip
        return outcome
