"""Amaranth's conversion of large designs in a third of the time, with the same hardware and the same verdicts.

Most of that time goes to single bits: every list of bits is checked for its type, and the search for combinational
loops walks from every bit over every bit (a sum of n bits is n x n steps). Here lists of bits are taken as they are,
and loops are sought among whole cells first, among bits only inside groups of cells that depend on each other in a
circle. A loop is left to Amaranth to report. Elements of long arrays get no wires with names of their own, which would
be most of all wires.

This replaces functions inside Amaranth, whose version the project fixes; ``verif/unit/emit/test_generation.py``
compares both ways.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from amaranth.hdl import _nir

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
        (_nir.Netlist, "check_comb_cycles"): _check_by_cells,
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
