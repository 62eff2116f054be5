"""A simulated row of lanes in loop form, driven from C++: vectors in, results out."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from sluice_hw.emit.grid import Grid
from sluice_hw.emit.verilog import to_verilog
from verif.models.driven import build_driven
from verif.models.part import defines, member_of

__all__ = ["LaneRow"]


class LaneRow:
    """``cols`` lanes of one kind.

    Parameters
    ----------
    cell
        A grid cell with inputs ``col`` of 32 bits or less, broadcast inputs ``all`` with ``valid`` among them, outputs
        ``down`` of 32 bits or less, and a constant ``LATENCY``.
    mutate
        Function from Verilog text to Verilog text, to plant a fault.
    """

    def __init__(self, cell: wiring.Component, *, name: str, cols: int = 8, emission: str = "loop", opt: str = "-O1",
                 mutate=None) -> None:  # fmt: skip
        self.cols, self.latency = cols, cell.LATENCY
        sides: dict[str, list[str]] = {"all": [], "col": [], "down": []}
        for path, member, _ in cell.signature.flatten(cell):
            assert (path[0] != "down") == (member.flow is In)
            sides[path[0]].append("__".join(map(str, path)))
        self.operands, self.results = sides["col"], sides["down"]
        self.controls = [port for port in sides["all"] if port != "all__valid"]
        grid = Grid(cell=cell, name=name, rows=1, cols=cols, emission=emission)
        text = to_verilog(grid, name="lanes")
        if mutate is not None:
            changed = mutate(text)
            assert changed != text, "the fault changes nothing"
            text = changed

        loads = [
            f"if (k == {k}) std::memcpy(&top.{member_of(port)}, from, 4 * COLS);"
            for k, port in enumerate(self.operands)
        ]
        sets = [f"if (which == {k}) lanes.top.{member_of(port)} = value;" for k, port in enumerate(self.controls)]
        stores = [
            f"std::memcpy(to + {k} * COLS, &top.{member_of(port)}, 4 * COLS);" for k, port in enumerate(self.results)
        ]
        macros = {
            "COLS": cols, "LATENCY": self.latency, "OPERANDS": len(self.operands), "FIELDS": len(self.results),
            "VALID": member_of("all__valid"), "LOAD(k, from)": " ".join(loads), "CONTROL(which, value)": " ".join(sets),
            "STORE(to)": " ".join(stores),
        }  # fmt: skip
        driver = defines(macros) + Path(__file__).with_name("lanes_driver.cpp").read_text()
        self.library = build_driven(
            f"{name}-{emission}", text, "lanes", driver, counted=mutate is None, opt=opt,
            verilator_args=["--x-assign", "fast", "--x-initial", "fast", "-Wno-WIDTHEXPAND", "-Wno-WIDTHTRUNC"],
        )  # fmt: skip
        self._lib = lib = ctypes.CDLL(str(self.library))
        lib.lanes_new.restype = ctypes.c_void_p
        lib.lanes_cycles.restype = ctypes.c_uint64
        lib.lanes_cycles.argtypes = lib.lanes_delete.argtypes = [ctypes.c_void_p]
        lib.lanes_control.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
        lib.lanes_run.argtypes = [
            ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_int
        ]  # fmt: skip
        self._handle = lib.lanes_new()

    def __enter__(self) -> LaneRow:
        return self

    def __exit__(self, *exc: object) -> None:
        self._lib.lanes_delete(self._handle)

    @property
    def cycles(self) -> int:
        """Clock cycles so far."""
        return self._lib.lanes_cycles(self._handle)

    def run(self, operands: Mapping[str, np.ndarray], controls: Mapping[str, int], *, bubbles: bool = False
            ) -> dict[str, np.ndarray]:  # fmt: skip
        """Results by port for vectors of operands by port, without ``col__`` and the like; uint32 bit patterns."""
        for k, port in enumerate(self.controls):
            self._lib.lanes_control(self._handle, k, int(controls[port.removeprefix("all__")]))
        count = len(next(iter(operands.values())))
        rows = -(-count // self.cols)
        full = [np.resize(np.asarray(operands[port.removeprefix("col__")]), rows * self.cols).astype(np.uint32)
                for port in self.operands]  # fmt: skip
        pointers = (ctypes.c_void_p * len(full))(*(array.ctypes.data for array in full))
        out = np.zeros((rows, len(self.results), self.cols), np.uint32)
        self._lib.lanes_run(self._handle, rows, pointers, out.ctypes.data, bubbles)
        return {port.removeprefix("down__"): out[:, k].reshape(-1)[:count] for k, port in enumerate(self.results)}
