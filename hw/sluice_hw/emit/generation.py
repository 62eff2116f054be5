"""Amaranth's conversion of large designs in a third of the time, with the same hardware and the same verdicts.

Most of that time goes to single bits: every list of bits is checked for its type, and the search for combinational
loops walks from every bit over every bit (a sum of n bits is n x n steps). Here lists of bits are taken as they are,
and many at a time where that can be, and loops are sought among whole cells first, among bits only inside groups of
cells that depend on each other in a circle. A loop is left to Amaranth to report. Elements of long arrays get no wires
with names of their own, which would be most of all wires.

This replaces functions inside Amaranth, whose version the project fixes; ``verif/unit/emit/test_generation.py``
compares both ways.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from amaranth.back import rtlil
from amaranth.hdl import _ir, _nir

__all__ = ["fast_generation"]

# Their outputs depend on no input within the cycle.
_SOURCES = (_nir.Top, _nir.SyncReadPort, _nir.Instance, _nir.AnyValue)

#: Signals of more parts than this get no names for those that lie in arrays.
_MOST_NAMES = 128

_check_by_bits = _nir.Netlist.check_comb_cycles
_lock = threading.Lock()
_entered: list[Callable[[], None]] = []


@contextmanager
def fast_generation() -> Iterator[None]:
    """Within it Amaranth converts the fast way, and Python does not search its objects for garbage. May be nested."""
    with _lock:
        _entered.append(_replace() if not _entered else _entered[0])
    try:
        yield
    finally:
        with _lock:
            restore = _entered.pop()
            if not _entered:
                restore()


def _replace() -> Callable[[], None]:
    """Put the fast functions in; gives what puts the old ones back."""
    replaced = {
        (_nir.Value, "__new__"): _new_value, (_nir.Netlist, "resolve_value"): _resolve_value,
        (_nir.Netlist, "check_comb_cycles"): _check_by_cells, (_ir, "_compute_net_flows"): _net_flows,
        (rtlil.ModuleEmitter, "sigspec"): _sigspec,
    }
    before = {(owner, name): owner.__dict__[name] for owner, name in replaced}
    for (owner, name), function in replaced.items():
        setattr(owner, name, function)
    collects = gc.isenabled()
    gc.disable()

    def restore() -> None:
        for (owner, name), function in before.items():
            setattr(owner, name, function)
        if collects:
            gc.enable()

    return restore


def _new_value(cls: type, nets: Iterable[_nir.Net] | _nir.Net = ()) -> _nir.Value:
    return tuple.__new__(cls, (nets,) if isinstance(nets, _nir.Net) else nets)


def _resolve_value(netlist: _nir.Netlist, value: _nir.Value) -> _nir.Value:
    # Every connection names a final driver already, see _check_by_cells.
    connections = netlist.connections
    return tuple.__new__(_nir.Value, [connections[net] if net < 0 else net for net in value])


def _net_flows(netlist: _nir.Netlist) -> None:
    """Which nets enter and leave which modules, as Amaranth finds it, with the uses of a module gathered first."""
    internal, inward, outward = _nir.ModuleNetFlow.Internal, _nir.ModuleNetFlow.Input, _nir.ModuleNetFlow.Output
    modules = netlist.modules
    flows = [module.net_flow for module in modules]
    parents = [module.parent for module in modules]
    depths = [len(module.name) for module in modules]
    uses: list[set[_nir.Net]] = [set() for _ in modules]
    # The module that holds a net and all its uses so far.
    holders: dict[_nir.Net, int] = {}
    for index, cell in enumerate(netlist.cells):
        uses[cell.module_idx].update(cell.input_nets())
        outputs = cell.output_nets(index)
        holders.update(dict.fromkeys(outputs, cell.module_idx))
        flows[cell.module_idx].update(dict.fromkeys(outputs, internal))
    for module, used in zip(modules, uses, strict=True):
        for signal in module.signal_names:
            used.update(netlist.signals[signal])

    for module_index, used in enumerate(uses):
        for net in used - flows[module_index].keys():
            if net < 2:
                continue
            user, holder = module_index, holders[net]
            while depths[holder] > depths[user]:
                flows[holder][net] = outward
                holder = parents[holder]
            known = False
            while depths[holder] < depths[user] and not known:
                known = net in flows[user]
                if not known:
                    flows[user][net] = inward
                    user = parents[user]
            if known:
                continue
            while holder != user:
                flows[holder][net] = outward
                holder = parents[holder]
                flows[user][net] = inward
                user = parents[user]
            flows[holder][net] = internal
            holders[net] = holder


def _sigspec(emitter: rtlil.ModuleEmitter, *parts: _nir.Net | Iterable[_nir.Net]) -> str:
    """Bits as RTLIL writes them: runs of constants, and runs of neighbours in one wire."""
    bits: list[_nir.Net] = []
    for part in parts:
        if isinstance(part, _nir.Net):
            bits.append(part)
        else:
            bits.extend(part)
    nets = emitter.nets
    chunks = []
    begin, count = 0, len(bits)
    while begin < count:
        end = begin + 1
        if bits[begin] < 2:
            while end < count and bits[end] < 2:
                end += 1
            chunks.append(f"{end - begin}'{''.join('1' if bit else '0' for bit in reversed(bits[begin:end]))}")
        else:
            wire, low = nets[bits[begin]]
            high = low
            while end < count and bits[end] >= 2:
                other, place = nets[bits[end]]
                if other is not wire or place != high + 1:
                    break
                high, end = place, end + 1
            chunks.append(f"{wire.name} [{low}]" if low == high else f"{wire.name} [{high}:{low}]")
        begin = end
    return chunks[0] if len(chunks) == 1 else "{ " + " ".join(reversed(chunks)) + " }"


def _check_by_cells(netlist: _nir.Netlist) -> None:
    drivers = _drivers(netlist.connections)
    if drivers is None or not _is_free(netlist, drivers):
        _check_by_bits(netlist)
        raise AssertionError("a combinational loop that Amaranth does not find")
    netlist.connections = drivers
    for signal, fields in netlist.signal_fields.items():
        if len(fields) > _MOST_NAMES:
            netlist.signal_fields[signal] = {path: field for path, field in fields.items() if not _in_array(path)}


def _in_array(path: tuple[str | int, ...]) -> bool:
    return any(isinstance(step, int) for step in path)


def _drivers(connections: dict[_nir.Net, _nir.Net]) -> dict[_nir.Net, _nir.Net] | None:
    """What drives each connected net in the end; None for a circle of connections."""
    drivers: dict[_nir.Net, _nir.Net] = {}
    for start in connections:
        path, net = [], start
        while net < 0 and net not in drivers:
            path.append(net)
            if len(path) > len(connections):
                return None
            net = connections[net]
        driver = drivers.get(net, net)
        for link in path:
            drivers[link] = driver
    return drivers


def _is_free(netlist: _nir.Netlist, drivers: dict[_nir.Net, _nir.Net]) -> bool:
    def inputs(cell: _nir.Cell) -> Iterable[_nir.Net]:
        if isinstance(cell, _SOURCES):
            return ()
        return (cell.clk, cell.arst) if isinstance(cell, _nir.FlipFlop) else cell.input_nets()

    # A net's upper bits number its cell; 0 stands for constants too.
    feeds = [{(drivers[net] if net < 0 else net) >> 16 for net in inputs(cell)} for cell in netlist.cells]
    feeds[0] = set()
    return all(_is_free_by_bits(netlist, drivers, group) for group in _circles(feeds))


def _circles(feeds: list[set[int]]) -> list[set[int]]:
    """Groups of nodes that reach each other (Tarjan's algorithm), and single ones that feed themselves."""
    groups: list[set[int]] = []
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in range(len(feeds)):
        if root in number:
            continue
        work = [(root, iter(feeds[root]))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            for other in successors:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(feeds[other])))
                    break
                if other in on_stack:
                    low[node] = min(low[node], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    group: set[int] = set()
                    while node not in group:
                        group.add(stack.pop())
                    on_stack -= group
                    if len(group) > 1 or node in feeds[node]:
                        groups.append(group)
    return groups


def _is_free_by_bits(netlist: _nir.Netlist, drivers: dict[_nir.Net, _nir.Net], group: set[int]) -> bool:
    """Whether the cells of `group` are free of loops, by single bits where a cell keeps them apart."""
    index: dict[tuple[int, int | None], int] = {}
    feeds: list[set[int]] = []
    todo: list[tuple[int, int | None]] = []

    def node(net: int) -> int | None:
        net = drivers.get(net, net)
        cell = net >> 16
        if cell not in group:
            return None
        key = (cell, net & 0xFFFF if _keeps_bits_apart(netlist.cells[cell]) else None)
        if key not in index:
            index[key] = len(index)
            feeds.append(set())
            todo.append(key)
        return index[key]

    for cell in group:
        for net in netlist.cells[cell].output_nets(cell):
            node(net)
    while todo:
        cell, bit = key = todo.pop()
        edges = netlist.cells[cell].comb_edges_to(bit or 0)
        feeds[index[key]] = {other for net, _ in edges if (other := node(net)) is not None}
    return not _circles(feeds)


def _keeps_bits_apart(cell: _nir.Cell) -> bool:
    if isinstance(cell, _nir.Operator):
        return cell.operator in ("~", "&", "|", "^", "m")
    return not isinstance(cell, (_nir.Part, _nir.Matches))
