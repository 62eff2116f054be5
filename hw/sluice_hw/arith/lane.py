"""What all arithmetic lanes share: the valid pipeline beside the data."""

from __future__ import annotations

from typing import ClassVar

from amaranth.hdl import Module, ShapeLike, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Lane"]


class Lane(wiring.Component):
    """A pipeline without stall: a result for every valid input, ``LATENCY`` cycles later, in order.

    Data registers load only behind a valid input: an idle lane toggles nothing, and ``result`` holds between results.

    Parameters
    ----------
    inputs
        Shape of each data input.
    result
        Shape of the result.

    Members
    -------
    in_valid : In(1)
        The data inputs count this cycle.
    out_valid : Out(1)
        ``result`` belongs to the inputs of ``LATENCY`` cycles ago, which were valid.
    result : Out(result)

    Attributes
    ----------
    LATENCY
        Cycles from inputs to result.
    """

    LATENCY: ClassVar[int]

    def __init__(self, *, inputs: dict[str, ShapeLike], result: ShapeLike) -> None:
        super().__init__(
            {
                "in_valid": In(1),
                **{name: In(shape) for name, shape in inputs.items()},
                "out_valid": Out(1),
                "result": Out(result),
            }
        )

    def valid_pipeline(self, m: Module) -> list[Value]:
        """Add the valid registers; element k says that the data entering stage k+1 is valid, k cycles after input."""
        stages: list[Value] = [self.in_valid]
        for k in range(1, self.LATENCY + 1):
            stage = Signal(name=f"valid_{k}")
            m.d.sync += stage.eq(stages[-1])
            stages.append(stage)
        m.d.comb += self.out_valid.eq(stages[-1])
        return stages
