"""The fast conversion beside Amaranth's own."""

import gc
import re

import pytest
from amaranth import Cat, Module, Mux, Signal
from amaranth.back import rtlil
from amaranth.hdl import _nir
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from sluice_hw.config import preset
from sluice_hw.dma import DmaLoad
from sluice_hw.emit import generation
from sluice_hw.emit import verilog as emit_verilog
from sluice_hw.emit.generation import fast_generation
from sluice_hw.vmem import Vmem


class Statements(wiring.Component):
    """A box whose statements are given as a function of the module, the input and the output."""

    def __init__(self, statements, width=8):
        self._statements = statements
        super().__init__({"x": In(width), "y": Out(width)})

    def elaborate(self, platform):
        m = Module()
        self._statements(m, self.x, self.y)
        return m


def _by_wires(m, x, y):
    a, b = Signal(8), Signal(8)
    m.d.comb += [a.eq(b), b.eq(a), y.eq(a)]


def _by_sum(m, x, y):
    m.d.comb += y.eq(y + x)


def _by_mux(m, x, y):
    a = Signal(8)
    m.d.comb += [a.eq(Mux(y[3], x, 0)), y[3].eq(a[2]), y[0].eq(y[3])]


def _by_select(m, x, y):
    m.d.comb += y.eq(Cat(x, y).bit_select(x[:3], 8))


def _by_condition(m, x, y):
    with m.If(y[0]):
        m.d.comb += y[1].eq(1)
    with m.Switch(y[1]), m.Case(1):
        m.d.comb += y[0].eq(1)


def _by_compare(m, x, y):
    a = Signal()
    m.d.comb += [a.eq(y > 3), y[7].eq(a & x[0])]


def _bits_in_turn(m, x, y):
    m.d.comb += y[0].eq(x[0])
    for i in range(7):
        m.d.comb += y[i + 1].eq(Mux(x[i], y[i], ~y[i]) ^ x[7])


def _bits_under_conditions(m, x, y):
    m.d.comb += y[0].eq(x[0])
    for i in range(7):
        with m.If(y[i] & x[i]):
            m.d.comb += y[i + 1].eq(1)


def _through_a_register(m, x, y):
    held = Signal(8)
    m.d.sync += held.eq(y)
    m.d.comb += y.eq(held + x)


@pytest.mark.parametrize("statements", [_by_wires, _by_sum, _by_mux, _by_select, _by_condition, _by_compare])
def test_loops_are_refused_alike(statements):
    with pytest.raises(_nir.CombinationalCycle) as slow:
        rtlil.convert(Statements(statements), name="top")
    with fast_generation(), pytest.raises(_nir.CombinationalCycle) as fast:
        rtlil.convert(Statements(statements), name="top")
    assert str(fast.value) == str(slow.value)


@pytest.mark.parametrize("statements", [_bits_in_turn, _bits_under_conditions, _through_a_register])
def test_circles_of_cells_alone_are_no_loops(statements):
    text = rtlil.convert(Statements(statements), name="top", emit_src=False)
    with fast_generation():
        assert rtlil.convert(Statements(statements), name="top", emit_src=False) == text


@pytest.mark.parametrize("make", [lambda: DmaLoad(preset("tiny")), lambda: Vmem(preset("tiny"))], ids=["dma", "vmem"])
def test_same_text(make):
    text = rtlil.convert(make(), name="top", emit_src=False)
    with fast_generation():
        assert rtlil.convert(make(), name="top", emit_src=False) == text


def test_names_in_long_arrays_are_left_out():
    layout = data.StructLayout({"short": data.ArrayLayout(4, 3), "head": 5})
    long = data.StructLayout({"items": data.ArrayLayout(4, generation._MOST_NAMES), "head": 5})

    def statements(m, x, y):
        a, b = Signal(layout, name="a"), Signal(long, name="b")
        m.d.sync += [a.as_value().eq(x), b.as_value().eq(x)]
        m.d.comb += y.eq(a.as_value() ^ b.as_value())

    with fast_generation():
        text = rtlil.convert(Statements(statements), name="top")
    assert "\\a.short[1]" in text and "\\a.head" in text and "\\b.head" in text and "\\b.items[1]" not in text


def test_amaranth_is_as_before_behind_it():
    before = (_nir.Value.__new__, _nir.Netlist.resolve_value, _nir.Netlist.check_comb_cycles)
    with fast_generation():
        assert not gc.isenabled() and _nir.Netlist.check_comb_cycles is not before[2]
        with pytest.raises(ZeroDivisionError), fast_generation():
            raise ZeroDivisionError
        assert not gc.isenabled() and _nir.Netlist.check_comb_cycles is not before[2]
    assert gc.isenabled()
    assert (_nir.Value.__new__, _nir.Netlist.resolve_value, _nir.Netlist.check_comb_cycles) == before


def test_halves_are_the_whole(monkeypatch):
    """Two processes write what one does."""
    def modules(text):
        # Yosys numbers a register for initial values in the order of modules.
        return sorted(re.sub(r"dump_module\$\d+", "", part).strip() for part in text.split("endmodule\n"))

    def make():
        return DmaLoad(preset("tiny"))

    assert len(emit_verilog._halves(rtlil.convert(make(), name="top", emit_src=False))) == 1
    whole = emit_verilog.to_verilog(make(), name="top")
    monkeypatch.setattr(emit_verilog, "_LARGE", 10_000)
    assert len(emit_verilog._halves(rtlil.convert(make(), name="top", emit_src=False))) == 2
    assert modules(emit_verilog.to_verilog(make(), name="top")) == modules(whole)
