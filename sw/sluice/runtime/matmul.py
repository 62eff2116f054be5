"""A matrix product of random int8 operands of any shape on a chip, checked: what ``sluice matmul`` runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sluice.compiler import compile as compile_graph
from sluice.compiler import matmul_graph
from sluice.errors import UsageError
from sluice_hw.config import ChipConfig

from .device import Device
from .executor import CompiledModel, Verification
from .report import RunReport

__all__ = ["MatmulResult", "check_operands", "check_shape", "run_matmul"]


@dataclass(frozen=True)
class MatmulResult:
    """Operands a[m, k] and w[k, n], the result as the chip gave it, and what it cost."""

    a: np.ndarray
    w: np.ndarray
    result: np.ndarray
    report: RunReport
    verification: Verification

    def to_json(self) -> dict[str, Any]:
        m, k = self.a.shape
        return {
            "m": m, "k": k, "n": self.w.shape[1], "out": self.result.dtype.name,
            "values": self.verification.values, "mismatches": self.verification.mismatches,
            **self.report.to_json(),
        }  # fmt: skip


def check_shape(m: int, k: int, n: int) -> None:
    """Raise :class:`UsageError` for a shape that cannot be."""
    for name, value in (("m", m), ("k", k), ("n", n)):
        if not isinstance(value, int) or value < 1:
            raise UsageError(f"{name} must be an integer from 1, not {value!r}")


def check_operands(config: ChipConfig, m: int, k: int, n: int, out: str) -> None:
    """Raise :class:`UsageError` for operands and result that HBM cannot hold, before anything is drawn."""
    need = m * k + k * n + m * n * (4 if out == "int32" else 1)
    if need > config.hbm_bytes:
        raise UsageError(
            f"{m} x {k} x {n} with {out} results needs {need} bytes of HBM at least; config {config.name!r} has "
            f"{config.hbm_bytes}"
        )


def run_matmul(
    config: ChipConfig,
    m: int,
    k: int,
    n: int,
    *,
    seed: int = 1,
    out: str = "int8",
    relu: bool = False,
    backend: str = "rtl",
    device: Device | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> MatmulResult:
    """Multiply random int8 operands on a chip and compare every value with golden.

    Parameters
    ----------
    m, k, n
        Shape, each from 1.
    out
        ``"int32"``: the accumulators; ``"int8"``: requantised so that the values fill the range.
    relu
        Negative results become 0.
    device
        Use this one; else one is opened on ``backend`` with ``options``.

    Raises
    ------
    UsageError
        For a shape or result type that cannot be.
    """
    check_shape(m, k, n)
    if out not in ("int8", "int32"):
        raise UsageError(f"out must be int8 or int32, not {out!r}")
    if seed < 0:
        raise UsageError(f"seed must be an integer from 0, not {seed}")
    check_operands(config, m, k, n, out)
    say = progress or (lambda line: None)
    rng = np.random.default_rng(seed)
    a = rng.integers(-128, 128, (m, k)).astype(np.int8)
    w = rng.integers(-128, 128, (k, n)).astype(np.int8)
    say(f"compiling {m} x {k} x {n} for {config.name}")
    graph = matmul_graph(m, k, n, out=out, relu=relu, weights=w)
    compiled = compile_graph(graph, config)
    own = device is None
    if device is None:
        if backend != "golden":
            options["progress"] = progress
        device = Device(config, backend, **options)
    try:
        with CompiledModel(compiled, device) as model:
            say("running")
            outcome = model.run(a, verify=True)
    finally:
        if own:
            device.close()
    assert outcome.verification is not None
    (result,) = outcome.outputs.values()
    report = outcome.report.with_estimate(compiled.program, compiled.params)
    return MatmulResult(a, w, result, report, outcome.verification)
