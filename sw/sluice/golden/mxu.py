"""MXU: the weight loader, the feeder, the array and its accumulators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sluice_hw.isa import Op

from .faults import UndefinedError
from .feed import feed_rows
from .numerics_bf16 import column_sum, fp32_add
from .units import Active, MicroOp, UnitModel

__all__ = ["MatrixUnit", "WeightTile"]


@dataclass(frozen=True)
class WeightTile:
    """Weights in the array: ``k`` rows of ``n`` columns.

    int8 as float32, because BLAS multiplies that fast. It is exact here: at most 1024 products of magnitude 2^14 sum to
    2^24, and float32 holds every integer to there. bf16 as bit patterns of all of the array, zeros included.
    """

    values: np.ndarray
    k: int
    n: int
    int8: bool


class MatrixUnit(UnitModel):
    """LOAD_WEIGHTS and PULSE_ARRAY."""

    STAGES = {Op.LOAD_WEIGHTS: ("loaded",), Op.PULSE_ARRAY: ("fed", "drained")}

    shape: Mapping[str, int] | None = None
    segments: Mapping[int, Mapping[str, int]] = {}
    active_tile: WeightTile | None = None
    #: Fed completely, not yet swapped in.
    next_tile: WeightTile | None = None

    def setup(self, uop: MicroOp) -> None:
        if uop.op is Op.FEED_SHAPE:
            self.shape = uop.fields
        else:
            self.segments = {**self.segments, uop.fields["index"]: uop.fields}

    def blocked(self, uop: MicroOp) -> str | None:
        if uop.op is Op.LOAD_WEIGHTS:
            if self.next_tile is not None:
                return "the previous weight tile to be swapped in by a PULSE_ARRAY"
            if any(a.uop.op is Op.LOAD_WEIGHTS for a in self.flight):
                return "the loader"
        if uop.op is Op.PULSE_ARRAY:
            if any(a.uop.op is Op.PULSE_ARRAY and a.stage == 0 for a in self.flight):
                return "the previous PULSE_ARRAY to be fed"
            if uop.swap and self.next_tile is None:
                return "a weight tile from a LOAD_WEIGHTS"
        return None

    def begin(self, active: Active) -> None:
        if active.uop.op is Op.LOAD_WEIGHTS:
            if active.early[0]:
                self._read_weights(active)
            return
        if active.uop.swap:
            self.active_tile, self.next_tile = self.next_tile, None
        if self.active_tile is None:
            raise UndefinedError("needs weights: no tile has been swapped in since the program started")
        if self.shape is None:
            raise UndefinedError("needs FEED_SHAPE before it")
        active.data.update(tile=self.active_tile, shape=self.shape, segments=self.segments)
        self._check_accumulators(active)
        if active.early[0]:
            self._multiply(active)

    # -- LOAD_WEIGHTS --------------------------------------------------------------------------------------------
    def loaded(self, active: Active) -> None:
        if "tile" not in active.data:
            self._read_weights(active)
        self.next_tile = active.data["tile"]
        self.machine.counters.weight_tiles += 1

    def _read_weights(self, active: Active) -> None:
        f, config = active.uop.fields, self.machine.config
        int8 = self._int8(active)
        if f["transpose"]:
            if int8:
                raise UndefinedError("transpose must be 0 with int8")
            active.data["tile"] = self._read_transposed(active)
            return
        if int8 and f["n"] > config.cols:
            raise UndefinedError(f"n must be at most {config.cols} with int8, not {f['n']}")
        rows = self.machine.vmem.read(active.uop.address["vmem"], (f["k"],), (f["pitch"],), f["n"])
        if int8:
            active.data["tile"] = WeightTile(rows.view(np.int8).astype(np.float32), f["k"], f["n"], True)
            return
        whole = np.zeros((config.rows, config.col_bytes), np.uint8)
        whole[: f["k"], : f["n"]] = rows
        active.data["tile"] = WeightTile(whole.view("<u2").astype(np.uint16), f["k"], f["n"] // 2, False)

    def _read_transposed(self, active: Active) -> WeightTile:
        """A tile whose columns are rows in VMEM."""
        f, config = active.uop.fields, self.machine.config
        if f["n"] % 2:
            raise UndefinedError(f"n must be even with transpose, not {f['n']}")
        columns = f["n"] // 2
        rows = self.machine.vmem.read(active.uop.address["vmem"], (columns,), (f["pitch"],), 2 * f["k"])
        whole = np.zeros((config.rows, config.cols), np.uint16)
        whole[: f["k"], :columns] = np.ascontiguousarray(rows).view("<u2").T
        return WeightTile(whole, f["k"], columns, False)

    def _int8(self, active: Active) -> bool:
        """Whether the op is about int8."""
        return not self.machine.config.is_float or bool(active.uop.fields["int8"])

    # -- PULSE_ARRAY ---------------------------------------------------------------------------------------------
    def fed(self, active: Active) -> None:
        if "sums" not in active.data:
            self._multiply(active)
        rows, tile = len(active.data["sums"]), active.data["tile"]
        self.machine.counters.array_rows += rows
        self.machine.counters.macs += rows * tile.k * tile.n
        older = [a for a in self.flight if a is not active and a.uop.op is Op.PULSE_ARRAY]
        if active.early[1] and all("drained" in a.data for a in older):
            self._accumulate(active)

    def drained(self, active: Active) -> None:
        if "drained" not in active.data:
            self._accumulate(active)

    def _check_accumulators(self, active: Active) -> None:
        shape, acc = active.data["shape"], self.machine.acc
        first, rows = active.uop.address["acc"], shape["n0"] * shape["n1"] * shape["n2"]
        if first + rows > len(acc):
            raise acc.fail(max(first, len(acc)))

    def _multiply(self, active: Active) -> None:
        tile, config = active.data["tile"], self.machine.config
        shape, segments = active.data["shape"], active.data["segments"]
        int8 = self._int8(active)
        if tile.int8 != int8:
            raise UndefinedError(f"is of {'int8' if int8 else 'bf16'}, and the weight tile is not")
        size = config.rows if int8 else config.row_bytes
        for index in range(shape["segments"]):
            if index in segments and segments[index]["hi"] > size:
                raise UndefinedError(f"segment {index} must end at array row {size}, not {segments[index]['hi']}")
        rows = feed_rows(self.machine.vmem, active.uop.address["vmem"], shape, segments, size)
        if not int8:
            activations = rows.view("<u2").astype(np.uint16)
            active.data["sums"] = column_sum(activations, tile.values, rows=config.rows).view(np.int32)
            return
        sums = np.zeros((len(rows), config.cols), dtype=np.int32)
        sums[:, : tile.n] = (rows[:, : tile.k].astype(np.float32) @ tile.values).astype(np.int32)
        active.data["sums"] = sums

    def _accumulate(self, active: Active) -> None:
        sums = active.data["sums"][:, None, :]
        walk = (active.uop.address["acc"], (len(sums),), (1,))
        if active.uop.accumulate:
            row = self.machine.acc.read(*walk)
            if not self._int8(active):  # the memory holds bit patterns
                row[...] = fp32_add(row.view(np.uint32), sums.view(np.uint32)).view(np.int32)
            else:
                row += sums  # int32, wraps
        else:
            self.machine.acc.write(*walk, sums)
        active.data["drained"] = True
