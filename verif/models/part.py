"""A component as a compiled part of a larger simulation, whose C++ makes, wires and clocks instances of it.

Each module is compiled once, however many instances a simulation has. Wiring is copying values between clock edges;
that is exact if what is copied is settled: outputs that depend on registers alone are so behind each edge.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from amaranth.lib import wiring

from sluice_hw.emit.verilog import to_verilog
from verif.models.driven import build_driven

__all__ = ["PART_HEADER", "Part", "build_part", "defines", "member_of", "pins_of", "wrapper"]

#: C++ for those who use parts. A pin is the address of Verilator's variable of a port.
PART_HEADER = """\
#include <cstdint>
#include <cstring>
struct PartType {
    void* (*make)(uint64_t seed, void** pins);
    void (*settle)(void*);  // after inputs have changed
    void (*cycle)(void*, int reset);
    void (*end)(void*);
};
inline int pin_bytes(int bits) {
    return bits <= 8 ? 1 : bits <= 16 ? 2 : bits <= 32 ? 4 : bits <= 64 ? 8 : (bits + 31) / 32 * 4;
}
inline uint64_t pin_get(const void* pin, int bits) { uint64_t v = 0; std::memcpy(&v, pin, pin_bytes(bits)); return v; }
inline void pin_set(void* pin, int bits, uint64_t v) { std::memcpy(pin, &v, pin_bytes(bits)); }
inline void pin_copy(void* to, const void* from, int bits) { std::memcpy(to, from, pin_bytes(bits)); }
"""

_WRAPPER = """
#include <memory>
#include "Vtop.h"
#include "verilated.h"
namespace {
struct PartInstance { std::unique_ptr<VerilatedContext> context{new VerilatedContext}; std::unique_ptr<Vtop> top; };
}
extern "C" {
void* part_make(uint64_t seed, void** pins) {
    auto* part = new PartInstance;
    part->context->randReset(2);
    part->context->randSeed(int(seed & 0x7fffffff) | 1);
    part->top.reset(new Vtop{part->context.get(), "part"});
    Vtop& top = *part->top;
    %s
    return part;
}
void part_settle(void* handle) { static_cast<PartInstance*>(handle)->top->eval(); }
void part_cycle(void* handle, int reset) {
    Vtop& top = *static_cast<PartInstance*>(handle)->top;
    top.rst = reset;
    top.clk = 1;
    top.eval();
    top.clk = 0;
    top.eval();
}
void part_end(void* handle) {
    static_cast<PartInstance*>(handle)->top->final();
    delete static_cast<PartInstance*>(handle);
}
}
"""


class _PartType(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("make", "settle", "cycle", "end")]


@dataclass(frozen=True)
class Part:
    """A compiled component: its library and the order of its pins."""

    library: Path
    pins: tuple[str, ...]

    def pin_names(self, prefix: str) -> str:
        """C++ that names the pins ``<prefix>_<port>``, the ports as in Verilog, and ``<prefix>_PINS``, their number."""
        return f"enum {{ {', '.join(f'{prefix}_{pin}' for pin in self.pins)}, {prefix}_PINS }};\n"

    def load(self) -> _PartType:
        """The functions that C++ takes as a ``PartType``."""
        lib = ctypes.CDLL(str(self.library))
        names = [name for name, _ in _PartType._fields_]
        table = _PartType(*(ctypes.cast(getattr(lib, f"part_{name}"), ctypes.c_void_p) for name in names))
        table.library = lib  # stays loaded
        return table


def defines(values: Mapping[str, object]) -> str:
    """C++ text that defines macros."""
    return "".join(f"#define {name} {value}\n" for name, value in values.items())


def member_of(pin: str) -> str:
    """A port as Verilator names it in C++, where no name has double underscores."""
    return pin.replace("__", "___05F")


def pins_of(component: wiring.Component) -> tuple[str, ...]:
    """Names of a component's ports in Verilog, without clock and reset."""
    return tuple("__".join(str(word) for word in path) for path, _, _ in component.signature.flatten(component))


def wrapper(component: wiring.Component) -> str:
    """C++ text that makes a library of a component, whatever else it does, a part."""
    lines = [f"pins[{k}] = &top.{member_of(pin)};" for k, pin in enumerate(pins_of(component))]
    return _WRAPPER % "\n    ".join(lines)


def build_part(component: wiring.Component, *, name: str, opt: str = "-O1") -> Part:
    """Compile a component of one clock domain, or take it from the cache."""
    library = build_driven(
        name, to_verilog(component, name=name), name, "#include <cstdint>" + wrapper(component), opt=opt,
        verilator_args=["-Wno-WIDTHEXPAND", "-Wno-WIDTHTRUNC", "--output-split", "40000"],
    )  # fmt: skip
    return Part(library, pins_of(component))
