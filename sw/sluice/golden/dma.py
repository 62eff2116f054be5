"""LD and ST: trains of whole slices between HBM and rows in VMEM."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sluice_hw import isa
from sluice_hw.isa import Error, Op

from .faults import UndefinedError, UnitFault
from .memory import Memory
from .units import Active, MicroOp, UnitModel

__all__ = ["LoadUnit", "StoreUnit"]


class _DmaUnit(UnitModel):
    shape: Mapping[str, int] | None = None

    def setup(self, uop: MicroOp) -> None:
        self.shape = uop.fields

    def begin(self, active: Active) -> None:
        if self.shape is None:
            raise UndefinedError(f"needs DMA_SHAPE unit={self.unit.name.lower()} before it")
        active.data["shape"] = self.shape
        self._check(active)

    def _check(self, active: Active) -> None:
        """Refuse the whole train before anything moves."""
        uop, shape, machine = active.uop, active.data["shape"], self.machine
        size, first, count = machine.config.slice_bytes, uop.address["hbm"], uop.fields["count"]
        used = shape["rows"] * shape["row_bytes"]
        if used > count * size:
            field = isa.field_index(uop.op, "count")
            reason = f"count must give at least {used} bytes for the rows, not {count} slices of {size}"
            raise UnitFault(Error.ILLEGAL_FIELD, field, reason, field=field)
        if not machine.hbm_lo <= first or first + count > machine.hbm_hi:
            bounds = f"[{machine.hbm_lo}, {machine.hbm_hi})"
            raise UnitFault(Error.HBM_RANGE, first, f"slices {first} to {first + count - 1} leave the bounds {bounds}")
        if first + count > machine.config.hbm_slices:
            raise UnitFault(Error.HBM_ERROR, first, f"HBM has {machine.config.hbm_slices} slices, not {first + count}")
        machine.vmem.check(uop.address["vmem"], (shape["rows"],), (shape["pitch"],), shape["row_bytes"])


class LoadUnit(_DmaUnit):
    """HBM_READ_SLICE: several trains may be outstanding; they move in order."""

    STAGES = {Op.HBM_READ_SLICE: ("finish",)}

    def begin(self, active: Active) -> None:
        super().begin(active)
        if active.early[0] and all("moved" in a.data for a in self.flight[:-1] if a.uop.op is active.uop.op):
            self._move(active)

    def finish(self, active: Active) -> None:
        if "moved" not in active.data:
            self._move(active)
        self.machine.counters.ld_slices += active.uop.fields["count"]

    def _move(self, active: Active) -> None:
        uop, shape, machine = active.uop, active.data["shape"], self.machine
        at, rows, row_bytes = uop.address["hbm"] * machine.config.slice_bytes, shape["rows"], shape["row_bytes"]
        values = machine.hbm.read(at, (rows,), (row_bytes,), row_bytes)
        machine.vmem.write(uop.address["vmem"], (rows,), (shape["pitch"],), values)
        active.data["moved"] = True


class StoreUnit(_DmaUnit):
    """HBM_WRITE_SLICE: a train starts when the one before has been read from VMEM."""

    STAGES = {Op.HBM_WRITE_SLICE: ("read", "finish")}

    def blocked(self, uop: MicroOp) -> str | None:
        if uop.op is Op.HBM_WRITE_SLICE and any(a.stage == 0 for a in self.flight if a.uop.op is uop.op):
            return "the previous train to be read from VMEM"
        return None

    def begin(self, active: Active) -> None:
        super().begin(active)
        if active.early[0]:
            self._read(active)

    def read(self, active: Active) -> None:
        if "stream" not in active.data:
            self._read(active)
        older = [a for a in self.flight if a is not active and a.uop.op is active.uop.op]
        if active.early[1] and all("written" in a.data for a in older):
            self._write(active)

    def finish(self, active: Active) -> None:
        if "written" not in active.data:
            self._write(active)
        self.machine.counters.st_slices += active.uop.fields["count"]

    def _read(self, active: Active) -> None:
        uop, shape, machine = active.uop, active.data["shape"], self.machine
        stream = np.full(uop.fields["count"] * machine.config.slice_bytes, shape["pad"], dtype=np.uint8)
        values = machine.vmem.read(uop.address["vmem"], (shape["rows"],), (shape["pitch"],), shape["row_bytes"])
        stream[: values.size] = values.reshape(-1)
        active.data["stream"] = stream

    def _write(self, active: Active) -> None:
        hbm: Memory = self.machine.hbm
        hbm.write(active.uop.address["hbm"] * self.machine.config.slice_bytes, (), (), active.data["stream"])
        active.data["written"] = True
