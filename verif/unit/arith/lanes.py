"""Runs arithmetic lanes in bulk: many lanes share wide ports, so that one write from Python feeds all of them.

:class:`Lanes` is the design under test; :func:`check` is its driver, monitor and checker in a bench.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from amaranth.hdl import Cat, Module, Shape, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from sluice_hw.arith import Lane
from verif.transactors import parameter

LANES = 8


def slot_bits(width: int) -> int:
    """Bits a value takes on a wide port: those of the NumPy integer that holds it."""
    return next(bits for bits in (8, 16, 32, 64) if bits >= width)


class Lanes(wiring.Component):
    """``LANES`` equal lanes with the ports of one, each port wide enough for all."""

    def __init__(self, make: Callable[[], Lane]) -> None:
        self.lanes = [make() for _ in range(LANES)]
        self.widths = {
            name: Shape.cast(member.shape).width
            for name, member in self.lanes[0].signature.members.items()
            if name not in ("in_valid", "out_valid")
        }
        ports = {
            name: (Out if name == "result" else In)(slot_bits(width) * LANES) for name, width in self.widths.items()
        }
        super().__init__({"in_valid": In(1), "out_valid": Out(1), **ports})

    def elaborate(self, platform) -> Module:
        m = Module()
        for i, lane in enumerate(self.lanes):
            m.submodules[f"lane_{i}"] = lane
            m.d.comb += lane.in_valid.eq(self.in_valid)
            for name, width in self.widths.items():
                slot = getattr(self, name).word_select(i, slot_bits(width))
                value = Value.cast(getattr(lane, name))
                m.d.comb += slot.eq(value) if name == "result" else value.eq(slot)
        # All lanes must agree; one that does not turns the output round, which the bench notices.
        first = self.lanes[0].out_valid
        others = Cat(lane.out_valid for lane in self.lanes[1:])
        m.d.comb += self.out_valid.eq(first ^ (others != first.replicate(len(others))))
        return m


async def check(dut, rng: np.random.Generator, inputs: dict[str, np.ndarray], expected: np.ndarray) -> None:
    """Send vectors with random bubbles and compare every result, its cycle, and that it holds in between.

    Parameters
    ----------
    dut
        A :class:`Lanes`, out of reset and idle.
    inputs
        Equally long integer vectors, by port.
    expected
        As long; its signedness says how to read the result.
    """
    latency = int(parameter("LATENCY"))
    count = len(expected)
    order = np.resize(rng.permutation(count), -(-count // LANES) * LANES)  # ragged end: repeat from the start
    rows = {name: _rows(getattr(dut, name), np.asarray(values)[order]) for name, values in inputs.items()}
    result_type = np.dtype(f"<{expected.dtype.kind}{len(dut.result) // LANES // 8}")
    blocks = order.reshape(-1, LANES)

    pipeline: list[int | None] = [None] * latency  # block in each stage, None for a bubble
    held: int | None = None
    sent = 0
    while sent < len(blocks) or any(stage is not None for stage in pipeline):
        bubble = sent == len(blocks) or rng.random() < 0.2
        dut.in_valid.value = int(not bubble)
        for name, values in rows.items():
            # Under a bubble the inputs keep changing, which must not be seen.
            handle = getattr(dut, name)
            handle.value = int.from_bytes(rng.bytes(len(handle) // 8), "little") if bubble else values[sent]
        pipeline.append(None if bubble else sent)
        sent += not bubble
        await RisingEdge(dut.clk)

        block = pipeline.pop(0) if len(pipeline) > latency else None
        assert int(dut.out_valid.value) == (block is not None), f"out_valid is wrong for block {block}"
        raw = int(dut.result.value) if block is not None or held is not None else None
        if block is None:
            assert raw == held, "result changed without a valid input"
            continue
        held = raw
        got = np.frombuffer(raw.to_bytes(len(dut.result) // 8, "little"), dtype=result_type)
        wanted = expected[blocks[block]]
        for lane in np.flatnonzero(got != wanted):
            operands = {name: int(values[blocks[block][lane]]) for name, values in inputs.items()}
            raise AssertionError(f"lane {lane}: {operands} gave {got[lane]:#x}, not {int(wanted[lane]):#x}")
    dut._log.info("%d vectors in %d blocks agree", count, len(blocks))


def _rows(handle, values: np.ndarray) -> list[int]:
    """Pack vectors, LANES at a time, into the integers that a wide port takes."""
    size = len(handle) // LANES // 8
    packed = values.astype(np.int64).astype(f"<i{size}").tobytes()
    step = size * LANES
    return [int.from_bytes(packed[i : i + step], "little") for i in range(0, len(packed), step)]
