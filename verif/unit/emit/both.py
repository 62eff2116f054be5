"""One top with the structural and the loop form of a component side by side, for benches that compare them."""

from collections.abc import Callable

from amaranth import Module, Value
from amaranth.hdl import Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from sluice_hw.emit.grid import EMISSIONS

__all__ = ["Both"]


class Both(wiring.Component):
    """Every form gets the same inputs, under their flattened names; output ``x`` is ``structural__x`` and ``loop__x``.

    Parameters
    ----------
    make
        From the name of an emission to the component in this form.
    """

    def __init__(self, make: Callable[[str], wiring.Component]) -> None:
        self.forms = {emission: make(emission) for emission in EMISSIONS}
        self.inputs: dict[str, int] = {}
        self.outputs: dict[str, int] = {}
        for path, member, _ in self.forms["loop"].signature.flatten(self.forms["loop"]):
            ports = self.inputs if member.flow is In else self.outputs
            ports["__".join(path)] = Shape.cast(member.shape).width
        super().__init__({
            **{name: In(width) for name, width in self.inputs.items()},
            **{f"{form}__{name}": Out(width) for name, width in self.outputs.items() for form in EMISSIONS}})

    def elaborate(self, platform) -> Module:
        m = Module()
        for form, component in self.forms.items():
            m.submodules[form] = component
            for path, member, value in component.signature.flatten(component):
                name = "__".join(path)
                if member.flow is In:
                    m.d.comb += Value.cast(value).eq(getattr(self, name))
                else:
                    m.d.comb += getattr(self, f"{form}__{name}").eq(Value.cast(value))
        return m
