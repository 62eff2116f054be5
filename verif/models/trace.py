"""A simulated component whose ports are driven from arrays, cycle by cycle, and recorded: the loop is in C++."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np
from amaranth.hdl import Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from sluice_hw.emit.verilog import to_verilog
from verif.models.driven import build_driven
from verif.models.part import defines, member_of, pins_of

__all__ = ["Traced"]

_DRIVER = """
#include <cstdint>
#include <cstring>
#include "Vtop.h"
double sc_time_stamp() { return 0; }
extern "C" {
void* trace_new() {
    Vtop* top = new Vtop;
    top->rst = 1, top->clk = 0, top->eval(), top->clk = 1, top->eval(), top->rst = 0;
    return top;
}
void trace_delete(void* top) { delete static_cast<Vtop*>(top); }
void trace_run(void* handle, uint64_t cycles, const uint8_t* in, uint8_t* out) {
    Vtop& top = *static_cast<Vtop*>(handle);
    for (; cycles; --cycles, in += INPUT_BYTES, out += OUTPUT_BYTES) {
        LOAD
        top.clk = 0, top.eval();
        STORE
        top.clk = 1, top.eval();
    }
}
}
"""


def _storage(bits: int) -> int:
    """Bytes that Verilator takes for a port."""
    return next((size for size in (1, 2, 4, 8) if bits <= 8 * size), -(-bits // 32) * 4)


class Traced:
    """A component that runs on given inputs.

    Parameters
    ----------
    component
        With scalar or plain-bits ports.
    name
        Of the build; the Verilog module is ``top``.
    """

    def __init__(self, component: wiring.Component, *, name: str, opt: str = "-O1") -> None:
        text = to_verilog(component, name="top")
        self.bits: dict[str, int] = {}
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        members = [member for _, member, _ in component.signature.flatten(component)]
        for port, member in zip(pins_of(component), members, strict=True):
            self.bits[port] = Shape.cast(member.shape).width
            (self.inputs if member.flow is In else self.outputs).append(port)

        def copies(ports: list[str], form: str) -> tuple[str, int]:
            at, lines = 0, []
            for port in ports:
                size = _storage(self.bits[port])
                lines.append(form.format(port=member_of(port), at=at, size=size))
                at += size
            return " ".join(lines), at

        load, input_bytes = copies(self.inputs, "std::memcpy(&top.{port}, in + {at}, {size});")
        store, output_bytes = copies(self.outputs, "std::memcpy(out + {at}, &top.{port}, {size});")
        macros = {"LOAD": load, "STORE": store, "INPUT_BYTES": input_bytes, "OUTPUT_BYTES": output_bytes}
        driver = defines(macros) + _DRIVER
        self.library = build_driven(
            name, text, "top", driver, opt=opt,
            verilator_args=["--x-assign", "fast", "--x-initial", "fast", "-Wno-WIDTHEXPAND", "-Wno-WIDTHTRUNC"],
        )  # fmt: skip
        self._lib = lib = ctypes.CDLL(str(self.library))
        lib.trace_new.restype = ctypes.c_void_p
        lib.trace_delete.argtypes = [ctypes.c_void_p]
        lib.trace_run.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
        self._output_bytes = output_bytes
        self._handle = lib.trace_new()

    def __enter__(self) -> Traced:
        return self

    def __exit__(self, *exc: object) -> None:
        self._lib.trace_delete(self._handle)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run as many cycles as the inputs are long.

        Parameters
        ----------
        inputs
            By port: integers (cycles,) for ports of up to 64 bits, or bytes (cycles, n) for wide ones.

        Returns
        -------
        dict
            By port, what it showed in each cycle before the clock edge; uint64, or bytes for wide ports.
        """
        cycles = len(next(iter(inputs.values())))
        packed = [self._bytes(port, np.asarray(inputs[port]), cycles) for port in self.inputs]
        data = np.ascontiguousarray(np.concatenate(packed, axis=1))
        out = np.zeros((cycles, self._output_bytes), np.uint8)
        self._lib.trace_run(self._handle, cycles, data.ctypes.data, out.ctypes.data)
        results, at = {}, 0
        for port in self.outputs:
            size = _storage(self.bits[port])
            piece = out[:, at : at + size]
            at += size
            if size <= 8:
                wide = np.zeros((cycles, 8), np.uint8)
                wide[:, :size] = piece
                results[port] = wide.view("<u8")[:, 0]
            else:
                results[port] = piece[:, : -(-self.bits[port] // 8)]
        return results

    def _bytes(self, port: str, values: np.ndarray, cycles: int) -> np.ndarray:
        size = _storage(self.bits[port])
        if values.ndim == 1:
            values = values.astype("<u8")[:, None].view(np.uint8)
        out = np.zeros((cycles, size), np.uint8)
        width = min(size, values.shape[1])
        out[:, :width] = values[:, :width]
        return out
