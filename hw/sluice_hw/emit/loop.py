"""The loop form of a grid: the cell's netlist as the body of loops over register arrays.

One clocked block steps all cells. It walks against the flow (last row first, where things flow down), so that a
neighbour's register still holds the old value when it is read, and one copy of each register is enough; registers that
flow against the walk, in cells with flows both ways, are copied first. The arrays have a halo that takes the inputs at
the edges, so that no cell is special. The arrays are seen by this block alone; what leaves the module is registered by
nonblocking assignments, so that no other block can race with it.

The cells of a row are computed without branches, into arrays of one row's new values that are stored behind it: a C++
compiler makes vector instructions of such loops. Cells with many registers, most of them idle at a time, step in place
instead, under a branch for each enable, the last column first where things flow right. Where nothing flows up or down,
rows and columns are exchanged, so that the long inner loop runs over cells that do not depend on each other.

The netlist's cells are written out with one variable per result, whose width is the result's: Verilog's rules for
widths and signs are then those of the cells.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from amaranth.utils import ceil_log2

from .netlist import Bit, Netlist, Node, Register
from .plan import OPPOSITE, GridPlan, Port

__all__ = ["emit_loop", "loop_places"]

_UNARY = {"$pos": "", "$not": "~", "$neg": "-", "$reduce_and": "&", "$reduce_or": "|", "$reduce_xor": "^",
          "$reduce_xnor": "~^", "$reduce_bool": "|", "$logic_not": "!"}
_BINARY = {"$and": "&", "$or": "|", "$xor": "^", "$xnor": "~^", "$logic_and": "&&", "$logic_or": "||", "$add": "+",
           "$sub": "-", "$mul": "*", "$shl": "<<", "$sshl": "<<", "$shr": ">>", "$sshr": ">>>",
           "$shift": ">>", "$shiftx": ">>", "$lt": "<", "$le": "<=", "$eq": "==", "$ne": "!=", "$ge": ">=", "$gt": ">"}
_SHIFTS = {"$shl", "$sshl", "$shr", "$sshr", "$shift", "$shiftx"}

# Cells with more registers than this keep branches.
_MANY = 72
# In cells with more operators than this, choices are made by masks: of several choices with one condition, the C++
# compiler would make a branch around them all. Their shared words have 16 bits at least, since vector instructions do
# not shift bytes.
_LARGE = 32
# Sides with rows and columns exchanged.
_EXCHANGED = {"left": "up", "right": "down", "row": "col", "all": "all"}

_LINT = """\
  // Blocking assignments are the point here (see the generator's notes), and a result's width is that of its variable.
  /* verilator lint_off BLKSEQ */
  /* verilator lint_off WIDTHEXPAND */
  /* verilator lint_off WIDTHTRUNC */
"""


# Verilator keeps a static variable of a block in memory, an automatic one in a register.
_LOCAL = """\
`ifdef VERILATOR
`define SLUICE_LOCAL automatic
`else
`define SLUICE_LOCAL
`endif
"""


class _Text:
    """Verilog for lists of bits, given the name of the variable that holds each source."""

    def __init__(self) -> None:
        self.place: dict[Bit, tuple[str, int]] = {}
        self.width: dict[str, int] = {}

    def define(self, name: str, bits: list[Bit], low: int = 0, width: int | None = None) -> None:
        self.width[name] = len(bits) if width is None else width
        for offset, bit in enumerate(bits, low):
            if isinstance(bit, int):
                self.place.setdefault(bit, (name, offset))

    def sources(self, bits: list[Bit]) -> set[str]:
        return {self.place[bit][0] for bit in bits if bit in self.place}

    def __call__(self, bits: list[Bit]) -> str:
        parts: list[str] = []
        start = 0
        while start < len(bits):
            end = start + 1
            if isinstance(bits[start], str):
                while end < len(bits) and isinstance(bits[end], str):
                    end += 1
                # Two-state: an undefined bit is 0.
                value = int("".join("1" if bit == "1" else "0" for bit in reversed(bits[start:end])), 2)
                parts.append(f"{end - start}'h{value:x}")
            else:
                name, low = self.place[bits[start]]
                while end < len(bits) and self.place.get(bits[end]) == (name, low + end - start):
                    end += 1
                if end - start == self.width[name]:
                    parts.append(name)
                elif end - start == 1:
                    parts.append(f"{name}[{low}]")
                else:
                    parts.append(f"{name}[{low + end - start - 1}:{low}]")
            start = end
        return parts[0] if len(parts) == 1 else "{" + ", ".join(reversed(parts)) + "}"

    def expression(self, node: Node) -> str:
        operands = {name: self(bits) for name, bits in node.inputs.items()}
        if node.type == "$rom":
            return f"rom_{node.params['rom']}[{operands['A']}]"
        signed = node.params.get("A_SIGNED", 0)
        if "B" in node.inputs and node.type not in _SHIFTS:
            signed = signed and node.params.get("B_SIGNED", 0)
        if signed:
            operands["A"] = f"$signed({operands['A']})"
            if node.type not in _SHIFTS:
                operands["B"] = f"$signed({operands.get('B', '')})"
        if node.type in _UNARY:
            return f"{_UNARY[node.type]}{operands['A']}"
        if node.type in _BINARY:
            return f"{operands['A']} {_BINARY[node.type]} {operands['B']}"
        if node.type == "$mux":
            return f"{operands['S']} ? {operands['B']} : {operands['A']}"
        assert node.type == "$pmux"
        width, text = len(node.y), operands["A"]
        for case, bit in reversed(list(enumerate(node.inputs["S"]))):
            text = f"{self([bit])} ? {self(node.inputs['B'][case * width:(case + 1) * width])} : {text}"
        return text


@dataclass(frozen=True)
class _Place:
    """Where a value is kept for all cells: `width` bits from `low` in the words of an array."""

    array: str
    low: int
    width: int
    word: int

    def at(self, index: str) -> str:
        """The value at `index`."""
        word = f"{self.array}[{index}]"
        if self.width == self.word:
            return word
        return f"{word}[{self.low}]" if self.width == 1 else f"{word}[{self.low + self.width - 1}:{self.low}]"


@dataclass
class _State:
    """A register of the cell and its place; a second place for the same register has no ``q``."""

    register: Register
    place: _Place
    q: list[Bit]
    branches: bool = True
    masks: bool = False

    @property
    def width(self) -> int:
        return len(self.register.d)

    @property
    def group(self) -> tuple[Bit, int] | None:
        """The enable under which alone this register changes; None without branches."""
        always = not self.branches or (self.register.reset is not None and not self.register.enable_first)
        return None if always else self.register.enable

    def value(self, text: _Text, *, reset: bool = True) -> str:
        """The register's new value; for one with a group, where the enable holds; without its reset if so wished."""
        register = self.register
        value = text(register.d)
        if register.enable and self.group is None:
            old = text(self.q) if self.q else self.place.at("i")
            bit, level = register.enable
            new, old = (value, old) if level else (old, value)
            value = _choice(text([bit]), new, old, self.width if self.masks else 0)
        if register.reset and reset:
            value = _reset(text, register.reset, f"{self.width}'h{register.reset_value:x}", value)
        return value


def _reset(text: _Text, condition: tuple[Bit, int], reset: str, value: str) -> str:
    bit, level = condition
    return f"({text([bit])} ? {reset} : {value})" if level else f"({text([bit])} ? {value} : {reset})"


def _choice(condition: str, yes: str, no: str, width: int) -> str:
    """`yes` where the condition holds, else `no`; with their width, by a mask."""
    if not width:
        return f"({condition} ? {yes} : {no})"
    return f"({no} ^ (({no} ^ {yes}) & {{{width}{{{condition}}}}}))"


@dataclass
class _Output:
    """The place of an output, and the bits it is computed from (None where it is a register's place)."""

    place: _Place
    bits: list[Bit] | None


class _Loop:
    """One module under construction."""

    def __init__(self, plan: GridPlan, netlist: Netlist) -> None:
        self.plan, self.netlist = plan, netlist
        self.branches = len(netlist.registers) > _MANY
        self.masks = not self.branches and len(netlist.nodes) > _LARGE
        self.exchanged = not {port.side for port in plan.ports} & {"up", "down", "col"}
        self.outer, self.inner = (plan.cols, plan.rows) if self.exchanged else (plan.rows, plan.cols)
        flows = {self.side(port) for port in plan.ports if port.is_input}
        # Halo, by the side from which something flows in.
        self.halo = {side: int(side in flows) for side in OPPOSITE}
        self.stride = self.inner + self.halo["left"] + self.halo["right"]
        self.size = (self.outer + self.halo["up"] + self.halo["down"]) * self.stride
        # Against the flow; where things flow both ways, against the flow to the right and down.
        self.cols_down = bool(self.halo["left"]) or not self.halo["right"]
        self.rows_down = bool(self.halo["up"]) or not self.halo["down"]
        # An array of 2**index_bits is indexed without a check of bounds.
        self.index_bits = max(1, ceil_log2(self.size))
        self.arrays: dict[str, int] = {}
        self.snapshots: list[tuple[_Place, _Place]] = []
        self.edges: list[str] = []
        # Arrays that have a row of new values, in a cell without branches.
        self.rows: list[str] = []
        # Cells from one end to the other, where rows may be of different lengths.
        self.length = plan.length_expression("c") if self.exchanged else str(plan.rows)

    def side(self, port: Port) -> str:
        """The side of a port, as the loops see it."""
        return _EXCHANGED[port.side] if self.exchanged else port.side

    def emit(self) -> str:
        plan = self.plan
        states = self._states()
        outputs = self._outputs(states)
        sources = self._inputs(outputs)
        body, variables = self._cell(states, sources)
        moore_body, moore_variables = self._moore(states, outputs)
        place = f"i = {self.index('r', 'c')};"
        lines = ["initial begin : start", "  reg [31:0] r, c, i;"]
        lines += [f"  reg [{width - 1}:0] {name};" for name, width in moore_variables.items()]
        lines += [f"  for (i = 0; i < {self.size}; i = i + 1) begin"]
        lines += [f"    {state.place.at('i')} = {state.width}'h{state.register.init:x};" for state in states]
        lines += [f"    {line}" for line in moore_body]
        lines += ["  end", *self._leave(outputs, "="), "end", ""]

        shared = [port for port in sources if self.side(port) in ("row", "all")]
        lines += ["always @(posedge clk) begin : step", "  `SLUICE_LOCAL reg [31:0] k, r, j, c, i;"]
        lines += [f"  `SLUICE_LOCAL reg [{width - 1}:0] {name};"
                  for name, width in {**variables, **moore_variables}.items()]
        lines += [f"  `SLUICE_LOCAL reg [{self.arrays[name] - 1}:0] n_{name} [0:{2 ** ceil_log2(self.inner) - 1}];"
                  for name in self.rows]
        lines += [f"  `SLUICE_LOCAL reg [{port.width - 1}:0] x_{port.name};" for port in shared]
        lines += ["  `SLUICE_LOCAL reg x_rst;", "  x_rst = rst;"]
        lines += [f"  x_{port.name} = {port.name};" for port in shared if port.side == "all"]
        lines += self._enter(sources)
        lines += self._walk("r", self.outer, down=self.rows_down)
        lines += [f"    x_{port.name} = {plan.element(port, 'r')};" for port in shared if self.side(port) == "row"]
        if self.branches:
            lines += [f"  {line}" for line in self._walk("c", self.inner, down=self.cols_down)]
            lines += [f"      {line}" for line in [place, *body, *moore_body]] + ["    end"]
        else:
            each = f"    for (c = 0; c < {self.inner}; c = c + 1)"
            lines += [f"{each} begin", *(f"      {line}" for line in [place, *body]), "    end"]
            # One loop for each array: two in one loop could touch each other, as far as the compiler knows.
            for name in self.rows:
                lines += [each, f"      {name}[{self.index('r', 'c')}] = n_{name}[c];"]
            if moore_body:
                lines += [f"{each} begin", *(f"      {line}" for line in [place, *moore_body]), "    end"]
        lines += ["  end", *self._leave(outputs, "<="), "end"]

        roms = self._roms()
        depth = 2 ** self.index_bits
        declarations = [f"reg [{width - 1}:0] {name} [0:{depth - 1}];" for name, width in self.arrays.items()]
        # Verilator would unroll the loops of a small grid into one huge function: slow to build and slow to run.
        lines = [re.sub(r"^( *)for ", r"\1/* verilator unroll_disable */ for ", line) for line in lines]
        text = "".join(f"  {line}".rstrip() + "\n" for line in [*declarations, *roms, *self.edges, *lines])
        return (f"// {plan.rows} x {plan.cols} cells {plan.cell}, loop form.\n"
                f"{_LOCAL}{plan.header()}{plan.length_table()}{_LINT}{text}endmodule\n`undef SLUICE_LOCAL\n")

    def _roms(self) -> list[str]:
        """The cell's ROMs, one of each for all cells, as long as their addresses reach."""
        lines = []
        for number, rom in enumerate(self.netlist.roms):
            name, depth = f"rom_{number}", 2 ** ceil_log2(len(rom.words))
            lines += [f"reg [{rom.width - 1}:0] {name} [0:{depth - 1}];", f"initial begin : fill_{name}"]
            lines += [f"  {name}[{k}] = {rom.width}'h{word:x};" for k, word in enumerate(rom.words)]
            lines += [f"  {name}[{k}] = {rom.width}'h0;" for k in range(len(rom.words), depth)]
            lines.append("end")
        return lines

    def _walk(self, variable: str, count: int, *, down: bool) -> list[str]:
        """The head of a loop over all rows or columns."""
        if not down:
            return [f"  for ({variable} = 0; {variable} < {count}; {variable} = {variable} + 1) begin"]
        counter = "k" if variable == "r" else "j"
        return [f"  for ({counter} = 0; {counter} < {count}; {counter} = {counter} + 1) begin",
                f"    {variable} = {count - 1} - {counter};"]

    def index(self, row: str, col: str) -> str:
        """Place of a cell in the arrays."""
        row = f"({row} + {self.halo['up']})" if self.halo["up"] else f"({row})"
        return f"{row} * {self.stride} + {col}" + (f" + {self.halo['left']}" if self.halo["left"] else "")

    def _place(self, name: str, width: int) -> _Place:
        """A new array for one value."""
        taken = {array.lower() for array in self.arrays}
        unique, number = name, 1
        while unique.lower() in taken:
            unique, number = f"{name}_{number}", number + 1
        self.arrays[unique] = width
        return _Place(unique, 0, width, width)

    def _states(self) -> list[_State]:
        """The registers and their places. Narrow ones under no common enable share the words of an array."""
        states = [_State(register, _Place("", 0, len(register.d), 0), register.q, self.branches, self.masks)
                  for register in self.netlist.registers]
        shared, low = [], 0
        for state in states:
            if state.group is None and low + state.width <= 32 and state.width <= 4:
                shared.append((state, low))
                low += state.width
        if len(shared) > 1:
            word = max(low, 16) if self.masks else low
            self.arrays["s_control"] = word
            for state, offset in shared:
                state.place = _Place("s_control", offset, state.width, word)
        for state in states:
            if not state.place.array:
                state.place = self._place(f"s_{state.register.name}", state.width)
        return states

    def _outputs(self, states: list[_State]) -> dict[Port, _Output]:
        """The place of every output of the cell: a register's own, or one for a value computed behind all registers."""
        outputs: dict[Port, _Output] = {}
        taken: set[tuple[_Place, str]] = set()
        for port in self.plan.ports:
            if port.is_input:
                continue
            bits = self.netlist.outputs[port.name]
            state = next((state for state in states if state.q == bits), None)
            if state is None:
                outputs[port] = _Output(self._place(f"o_{port.name}", port.width), bits)
                continue
            if (state.place, port.side) in taken and self.plan.sink(port):
                # Its halo on this side takes another input already: a second place for this flow.
                state = _State(state.register, self._place(f"s_{port.name}", port.width), [], self.branches,
                               self.masks)
                states.append(state)
            taken.add((state.place, port.side))
            outputs[port] = _Output(state.place, None)
        return outputs

    def _inputs(self, outputs: dict[Port, _Output]) -> dict[Port, _Place | None]:
        """The place that each input of the cell is read from; None for an input per row or for all."""
        sources: dict[Port, _Place | None] = {}
        for port in self.plan.ports:
            if not port.is_input:
                continue
            output = self.plan.source(port)
            sources[port] = None
            if output is not None:
                sources[port] = outputs[output].place
                side = self.side(port)
                if (side == "right" and self.halo["left"] and self.branches) or (side == "down" and self.halo["up"]):
                    sources[port] = self._place(f"old_{port.name}", port.width)
                    self.snapshots.append((sources[port], outputs[output].place))
            elif self.side(port) == "col":
                sources[port] = self._place(f"u_{port.name}", port.width)
        return sources

    def _enter(self, sources: dict[Port, _Place | None]) -> list[str]:
        """Copies of what flows against the walk, then the inputs into the halo."""
        lines = []
        for copy, place in self.snapshots:
            lines += [f"  for (c = 0; c < {self.size}; c = c + 1)", f"    {copy.at('c')} = {place.at('c')};"]
        plan = self.plan
        halo = {"left": ("r", self.index("r", "-1")), "right": ("r", self.index("r", str(self.inner))),
                "up": ("c", self.index("-1", "c")), "down": ("c", self.index(self.length, "c")), "col": ("c", "c")}
        for port, place in sources.items():
            if place is not None:
                variable, index = halo[self.side(port)]
                lines += [f"  for ({variable} = 0; {variable} < {plan.count(port.side)}; {variable} = {variable} + 1)",
                          f"    {place.at(index)} = {plan.element(port, variable)};"]
        return lines

    def _leave(self, outputs: dict[Port, _Output], assign: str) -> list[str]:
        """The last cells' outputs, packed and out of the module."""
        plan, lines = self.plan, []
        place = {"right": ("r", self.index("r", str(self.inner - 1))), "left": ("r", self.index("r", "0")),
                 "down": ("c", self.index(f"{self.length} - 1", "c")), "up": ("c", self.index("0", "c"))}
        for port, output in outputs.items():
            variable, index = place[self.side(port)]
            bits = port.width * plan.count(port.side)
            if assign == "=":
                self.edges += [f"reg [{bits - 1}:0] next_{port.name};", f"reg [{bits - 1}:0] edge_{port.name};",
                               f"assign {port.name} = {self._bypass(port)};"]
            lines += [f"  for ({variable} = 0; {variable} < {plan.count(port.side)}; {variable} = {variable} + 1)",
                      f"    next_{port.name}[{variable}*{port.width} +: {port.width}] = {output.place.at(index)};",
                      f"  edge_{port.name} {assign} next_{port.name};"]
        return lines

    def _bypass(self, port: Port) -> str:
        """An output of the module: its register, except for rows without a cell, which connect through."""
        plan, runs = self.plan, []
        if port.side in ("up", "down") or 0 not in plan.lengths:
            return f"edge_{port.name}"
        through = plan.sink(port).name
        for row, length in enumerate(plan.lengths):
            name = f"edge_{port.name}" if length else through
            if runs and runs[-1][0] == name:
                runs[-1][2] = row
            else:
                runs.append([name, row, row])
        parts = [f"{name}[{(last + 1) * port.width - 1}:{first * port.width}]" for name, first, last in reversed(runs)]
        return "{" + ", ".join(parts) + "}"

    def _cell(self, states: list[_State], sources: dict[Port, _Place | None]) -> tuple[list[str], dict[str, int]]:
        """The step of one cell: old values into variables, results, then the registers' new values.

        What only registers under one enable need is computed under that enable.
        """
        text = _Text()
        reads: dict[str, str] = {}

        def read(place: _Place, prefix: str, index: str, name: str, bits: list[Bit]) -> str:
            """`bits` are found at `place`: a variable for the word, shared by all values in it."""
            variable = f"{prefix}_{name if place.width == place.word else place.array}"
            reads[variable] = f"{place.array}[{index}]"
            text.define(variable, bits, place.low, place.word)
            return variable

        neighbour = {"left": "i - 1", "right": "i + 1", "up": f"i - {self.stride}", "down": f"i + {self.stride}",
                     "col": "c"}
        for port, place in sources.items():
            bits = self.netlist.inputs[port.name]
            if place is None:
                text.define(f"x_{port.name}", bits)
            else:
                read(place, port.side, neighbour[self.side(port)], port.field, bits)
        text.define("x_rst", self.netlist.inputs.get("rst", []))
        owners: dict[str, set] = {}
        for state in states:
            if state.q:
                owners.setdefault(read(state.place, "own", "i", state.register.name, state.q), set()).add(state.group)
        results = {f"t{number}": node for number, node in enumerate(self.netlist.nodes)}
        for name, node in results.items():
            text.define(name, node.y)

        need: dict[str, set] = {}

        def require(bits: list[Bit], group) -> None:
            for source in text.sources(bits):
                need.setdefault(source, set()).add(group)

        for state in states:
            require(state.register.d, state.group)
            if state.register.reset:
                require([state.register.reset[0]], state.group)
            if state.register.enable:
                require([state.register.enable[0]], None)
                if state.group is None:
                    require(state.q, None)
        for name, node in reversed(results.items()):
            for group in need.get(name, ()):
                for bits in node.inputs.values():
                    require(bits, group)

        # A register that one enable writes and only another reads is read under the latter, if that can come first.
        before: dict = {state.group: set() for state in states if state.group is not None}
        late = set()
        for name, writers in owners.items():
            if len(need.get(name, ())) != 1 or len(writers) != 1 or None in writers | need[name]:
                continue
            (reader,), (writer,) = need[name], writers
            wanted = {group: others | ({reader} - {writer} if group == writer else set())
                      for group, others in before.items()}
            with suppress(CycleError):
                TopologicalSorter(wanted).prepare()
                before = wanted
                late.add(name)
        order = list(TopologicalSorter(before).static_order())

        def home(name: str):
            """The one enable under which `name` may be computed, None for always."""
            (group, *others) = need[name]
            return None if others or (name not in late and owners.get(name, {group}) != {group}) else group

        groups: dict = {None: []}
        for name, value in [*reads.items(), *((name, text.expression(node)) for name, node in results.items())]:
            if name in need:
                groups.setdefault(home(name), []).append(f"{name} = {value};")
        lines = groups.pop(None)
        commits: dict = {}
        words: dict[str, list[_State]] = {}
        for state in states:
            if state.place.width == state.place.word:
                commits.setdefault(state.group, []).append((state.place.array, state.value(text)))
            else:
                words.setdefault(state.place.array, []).append(state)
        for bit, level in order:
            group = (bit, level)
            stores = [f"{array}[i] = {value};" for array, value in commits[group]]
            lines += [f"if ({'' if level else '!'}{text([bit])}) begin",
                      *(f"  {line}" for line in [*groups.get(group, []), *stores]), "end"]
        stores = commits.get(None, [])
        for array, members in words.items():
            # In the order of their places; a reset that all have is written once.
            once = len({state.register.reset for state in members}) == 1 and members[0].register.reset
            value = "{" + ", ".join(state.value(text, reset=not once) for state in reversed(members)) + "}"
            if once:
                reset = sum(state.register.reset_value << state.place.low for state in members)
                value = _reset(text, once, f"{members[0].place.word}'h{reset:x}", value)
            stores.append((array, value))
        variables = {name: text.width[name] for name in need if not name.startswith("x_")}
        if self.branches:
            lines += [f"{array}[i] = {value};" for array, value in stores]
        else:
            # A choice goes to a variable first: with an array in both of its ways, it would become a branch.
            self.rows = [array for array, _ in stores]
            variables |= {f"v_{array}": self.arrays[array] for array in self.rows}
            lines += [f"v_{array} = {value};" for array, value in stores]
            lines += [f"n_{array}[c] = v_{array};" for array in self.rows]
        return lines, dict(sorted(variables.items()))

    def _moore(self, states: list[_State], outputs: dict[Port, _Output]) -> tuple[list[str], dict[str, int]]:
        """The outputs that are no plain register, from the registers' new values."""
        text = _Text()
        reads = {}
        for state in states:
            if state.q:
                text.define(f"n_{state.register.name}", state.q)
                reads[f"n_{state.register.name}"] = state.place.at("i")
        results = {f"m{number}": node for number, node in enumerate(self.netlist.nodes)}
        for name, node in results.items():
            text.define(name, node.y)
        for name, bits in self.netlist.inputs.items():
            text.define(name, bits)

        need: set[str] = set()
        computed = {port: output for port, output in outputs.items() if output.bits is not None}
        for port, output in computed.items():
            cone = text.sources(output.bits)
            for name, node in reversed(results.items()):
                if name in cone:
                    cone = cone.union(*(text.sources(bits) for bits in node.inputs.values()))
            for name in sorted(cone & set(self.netlist.inputs)):
                raise ValueError(f"Output {port.name!r} of cell {self.plan.cell} depends on its input {name!r} within "
                                 f"the cycle; in loop form an output must come from registers alone")
            need |= cone
        lines = [f"{name} = {read};" for name, read in reads.items() if name in need]
        lines += [f"{name} = {text.expression(node)};" for name, node in results.items() if name in need]
        lines += [f"{output.place.at('i')} = {text(output.bits)};" for output in computed.values()]
        return lines, {name: text.width[name] for name in sorted(need)}


def emit_loop(plan: GridPlan, netlist: Netlist) -> str:
    """Verilog of the grid's module.

    Parameters
    ----------
    plan : GridPlan
        The grid.
    netlist : Netlist
        Its cell.

    Raises
    ------
    ValueError
        If an output to a neighbour depends on an input within the cycle; the message names the cell and both.
    """
    return _Loop(plan, netlist).emit()


def loop_places(plan: GridPlan, netlist: Netlist) -> dict[str, Callable[[int, int], str]]:
    """Where registers and outputs of the cells are in the grid's module: by name, Verilog for a row and column."""
    loop = _Loop(plan, netlist)
    states = loop._states()
    places = {state.register.name: state.place for state in states}
    places |= {port.name: output.place for port, output in loop._outputs(states).items()}

    def index(row: int, col: int) -> str:
        row, col = (col, row) if loop.exchanged else (row, col)
        return str((row + loop.halo["up"]) * loop.stride + col + loop.halo["left"])

    return {name: lambda row, col, place=place: place.at(index(row, col)) for name, place in places.items()}
