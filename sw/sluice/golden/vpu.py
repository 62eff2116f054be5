"""VPU: rows from accumulators or VMEM, through the vector arithmetic, into VMEM."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sluice_hw.isa import Op, Reduce, Source

from . import numerics
from .faults import UndefinedError
from .units import Active, MicroOp, UnitModel
from .vector import Params, narrow, reduce_windows, widen

__all__ = ["VectorUnit"]


class VectorUnit(UnitModel):
    """LOAD_PARAMS and VECTOR."""

    STAGES = {Op.LOAD_PARAMS: ("loaded",), Op.VECTOR: ("finish",)}

    params: Params | None = None
    #: Loaded, not yet taken over by a VECTOR.
    next_params: Params | None = None

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._setup: dict[Op, Mapping[str, int]] = {}

    def setup(self, uop: MicroOp) -> None:
        self._setup[uop.op] = uop.fields

    def blocked(self, uop: MicroOp) -> str | None:
        loading = any(a.uop.op is Op.LOAD_PARAMS for a in self.flight)
        if uop.op is Op.LOAD_PARAMS and (loading or self.next_params is not None):
            return "the previous parameters to be taken over by a VECTOR"
        if uop.op is Op.VECTOR:
            if any(a.uop.op is Op.VECTOR for a in self.flight):
                return "the previous VECTOR"
            if loading:
                return "the parameters before it"
        return None

    def begin(self, active: Active) -> None:
        if active.uop.op is Op.LOAD_PARAMS:
            if active.early[0]:
                self._read_params(active)
            return
        for op in (Op.VECTOR_SHAPE, Op.VECTOR_MODE):
            if op not in self._setup:
                raise UndefinedError(f"needs {op.name} before it")
        if self.next_params is not None:
            self.params, self.next_params = self.next_params, None
        active.data.update(setup=dict(self._setup), params=self.params)
        if active.early[0]:
            self._compute(active)
            if active.early[1]:
                self._write(active)

    # -- LOAD_PARAMS ---------------------------------------------------------------------------------------------
    def loaded(self, active: Active) -> None:
        if "params" not in active.data:
            self._read_params(active)
        self.next_params = active.data["params"]

    def _read_params(self, active: Active) -> None:
        size = self.machine.config.param_bytes
        block = self.machine.vmem.read(active.uop.address["vmem"], (), (), size)
        active.data["params"] = Params.from_bytes(block)

    # -- VECTOR --------------------------------------------------------------------------------------------------
    def finish(self, active: Active) -> None:
        if "result" not in active.data:
            self._compute(active)
        if "written" not in active.data:
            self._write(active)
        shape = active.data["setup"][Op.VECTOR_SHAPE]
        self.machine.counters.vector_rows += shape["n2"] * shape["n3"]

    def _compute(self, active: Active) -> None:
        setup, params = active.data["setup"], active.data["params"]
        shape, mode = setup[Op.VECTOR_SHAPE], setup[Op.VECTOR_MODE]
        outputs = (shape["n3"], shape["n2"])
        self.machine.vmem.check(
            active.uop.address["dst"], outputs, (mode["d3"], shape["d2"]), mode["cols"] * (4 if mode["wide"] else 1)
        )
        x = widen(self._source(active, shape, mode), mode, params)
        if mode["wide"]:
            result = np.ascontiguousarray(x.astype("<i4")).view(np.uint8)
        else:
            residual = setup.get(Op.VECTOR_RESIDUAL)
            other = self._residual(active, outputs, mode, residual) if mode["residual"] else None
            result = narrow(x, mode, params, other, residual).view(np.uint8)
        active.data["result"] = result

    def _source(self, active: Active, shape: Mapping[str, int], mode: Mapping[str, int]) -> np.ndarray:
        """Reduced source rows, int32 ``(n3, n2, cols)``."""
        counts = (shape["n3"], shape["n2"], shape["n1"], shape["n0"])
        strides = (shape["s3"], shape["s2"], shape["s1"], shape["s0"])
        start, cols, how = active.uop.address["src"], mode["cols"], Reduce(mode["reduce"])
        if mode["source"] == Source.ACC:
            return reduce_windows(self.machine.acc.read(start, counts, strides)[..., 0, :cols], how)
        windows = self.machine.vmem.read(start, counts, strides, cols).view(np.int8)
        # Subtracting the zero point once per row or once per sum is the same number.
        times = shape["n0"] * shape["n1"] if how == Reduce.SUM else 1
        return numerics.wrap_int32(reduce_windows(windows, how).astype(np.int64) - times * mode["source_zero_point"])

    def _residual(
        self, active: Active, outputs: tuple[int, int], mode: Mapping[str, int], setup: Mapping[str, int] | None
    ) -> np.ndarray:
        if setup is None:
            raise UndefinedError("needs VECTOR_RESIDUAL before it")
        strides = (setup["r3"], setup["r2"])
        rows = self.machine.vmem.read(active.uop.address["res"], outputs, strides, mode["cols"])
        return rows.view(np.int8)

    def _write(self, active: Active) -> None:
        setup = active.data["setup"]
        shape, mode = setup[Op.VECTOR_SHAPE], setup[Op.VECTOR_MODE]
        outputs, strides = (shape["n3"], shape["n2"]), (mode["d3"], shape["d2"])
        self.machine.vmem.write(active.uop.address["dst"], outputs, strides, active.data["result"])
        active.data["written"] = True
