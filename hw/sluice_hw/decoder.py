"""Legality of microcode words, generated from the encoding tables.

Combinational. What depends on the state of a program (loop nesting) is the sequencer's business.
"""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from . import isa
from .config import ChipConfig

__all__ = ["Decoder", "verdict_layout"]


def verdict_layout() -> data.StructLayout:
    """Result of the check: ``code`` (:class:`isa.Error`, NONE for a legal word) and ``field``.

    ``field`` is 0 for the opcode, :func:`isa.field_index` for a field, one more than the last for the reserved bits.
    """
    return data.StructLayout({"code": isa.Error, "field": unsigned(8)})


class Decoder(wiring.Component):
    """Checks a word: opcode, every field in its table's order, reserved bits; the first that is bad is named.

    Beside :func:`isa.field_range`, a ring address register (ADDR with ring > 0) wants strides from 0 to ring.

    Parameters
    ----------
    config : ChipConfig

    Members
    -------
    word : In(256)
    verdict : Out(verdict_layout())
    """

    def __init__(self, *, config: ChipConfig) -> None:
        self._config = config
        super().__init__({"word": In(isa.WORD_BITS), "verdict": Out(verdict_layout())})

    @property
    def config(self) -> ChipConfig:
        return self._config

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += [self.verdict.code.eq(isa.Error.ILLEGAL_OPCODE), self.verdict.field.eq(0)]
        with m.Switch(self.word[:isa.OPCODE_BITS]):
            for op, spec in isa.ops_of(self.config).items():
                with m.Case(int(op)):
                    m.d.comb += self._check(m, op, spec)
        return m

    def _check(self, m: Module, op: isa.Op, spec: isa.OpSpec) -> list:
        view = data.View(isa.word_layout(op), self.word)
        code, index = isa.Error.NONE, 0
        checks = [(i + 1, isa.Error.ILLEGAL_FIELD, self._bad(op, f, view)) for i, f in enumerate(spec.fields)]
        if "reserved" in isa.word_layout(op).members:
            checks.append((len(spec.fields) + 1, isa.Error.RESERVED_BITS, view.reserved != 0))
        for number, error, bad in reversed(checks):
            if bad is not None:
                code, index = Mux(bad, error.value, code), Mux(bad, number, index)
        verdict = Signal(verdict_layout(), name=f"verdict_{op.name.lower()}")
        m.d.comb += [verdict.code.eq(code), verdict.field.eq(index)]
        return [self.verdict.eq(verdict)]

    def _bad(self, op: isa.Op, field: isa.Field, view: data.View):
        """Condition under which a field is out of range, or None where it cannot be."""
        lo, hi = isa.field_range(field, self.config)
        value = view[field.name]
        bad = None
        if lo > (-(1 << (field.width - 1)) if field.signed else 0):
            bad = value < lo
        if hi < (1 << (field.width - field.signed)) - 1:
            above = value > hi
            bad = above if bad is None else bad | above
        if op is isa.Op.ADDR and field.name.startswith("stride"):
            outside = (view.ring != 0) & ((value < 0) | (value > view.ring))
            bad = outside if bad is None else bad | outside
        return bad
