"""Performance counters: where every cycle of a program went, unit by unit, and how much work was done.

Each unit is in exactly one :class:`isa.Cause` a cycle, so that its counters sum to CYCLES. The array's starvation
window reaches from its first to its last row: cycles inside without a row are counted by the state of the MXU; cycles
after a row count only once another row follows.
"""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from . import csr, isa

__all__ = ["COUNTER_BITS", "Counters", "work_layout"]

#: Bits of a counter (it reads as 64): 4.6 days at 700 MHz.
COUNTER_BITS = 48


def work_layout() -> data.StructLayout:
    """Work of one cycle, in the order of :data:`csr.WORK_COUNTERS`: what to add to each counter."""
    widths = {"ld_slices": 16, "st_slices": 16, "macs": 21, "array_rows": 1, "weight_tiles": 2, "vector_rows": 16,
              "tokens": 5, "ops": 3}
    return data.StructLayout({name: unsigned(widths[name]) for name in csr.WORK_COUNTERS})


class Counters(wiring.Component):
    """All counters of :func:`csr.counters`.

    Members
    -------
    clear : In(1)
        All become 0 (a program starts).
    running : In(1)
        Count in this cycle.
    seq, ld, st, mxu, vpu, hbm : In(isa.Cause)
        States of the units. A cause that a unit has no counter for counts as IDLE.
    work : In(work_layout())
        ``array_rows`` also moves the starvation window.
    select, value : In, Out(64)
        Counter by its place in :func:`csr.counters`; ``value`` follows one cycle later.
    cycles : Out(32)
        Low half of CYCLES.
    """

    def __init__(self) -> None:
        super().__init__({
            "clear": In(1),
            "running": In(1),
            **{unit: In(isa.Cause) for unit in isa.UNIT_CAUSES},
            "work": In(work_layout()),
            "select": In(range(len(csr.counters()))),
            "value": Out(64),
            "cycles": Out(32),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        values = {name: Signal(COUNTER_BITS, name=name) for name in csr.counters()}

        def add(name: str, amount) -> None:
            m.d.sync += values[name].eq(values[name] + amount)

        row = self.work.array_rows
        begun = Signal()  # the first row has entered the array
        # The window up to now; the counters that are read take it over with each row.
        cycles = Signal(COUNTER_BITS)
        starved = {cause: Signal(COUNTER_BITS, name=f"open_{cause.name.lower()}") for cause in isa.UNIT_CAUSES["mxu"]}

        with m.If(self.running):
            add("cycles", 1)
            for unit, causes in isa.UNIT_CAUSES.items():
                state = getattr(self, unit)
                with m.Switch(state):
                    for cause in causes:
                        if cause is not isa.Cause.IDLE:
                            with m.Case(cause):
                                add(f"{unit}_{cause.name.lower()}", 1)
                    with m.Default():
                        add(f"{unit}_idle", 1)
            with m.If(row | begun):
                m.d.sync += cycles.eq(cycles + 1)
            with m.If(row):
                m.d.sync += [begun.eq(1), values["window"].eq(cycles + 1)]
                m.d.sync += [values[f"starved_{cause.name.lower()}"].eq(count) for cause, count in starved.items()]
            with m.Elif(begun), m.Switch(self.mxu):
                for cause, count in starved.items():
                    if cause is not isa.Cause.IDLE:
                        with m.Case(cause):
                            m.d.sync += count.eq(count + 1)
                with m.Default():
                    m.d.sync += starved[isa.Cause.IDLE].eq(starved[isa.Cause.IDLE] + 1)
            for name in csr.WORK_COUNTERS:
                add(name, self.work[name])
        with m.If(self.clear):
            m.d.sync += [s.eq(0) for s in (*values.values(), *starved.values(), cycles, begun)]

        m.d.comb += self.cycles.eq(values["cycles"])
        m.d.sync += self.value.eq(Mux(self.select < len(values), Array(values.values())[self.select], 0))
        return m
