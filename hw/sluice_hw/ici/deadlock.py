"""The channel-dependency graph of a torus, from the very functions that its routers are built from.

Nodes of the graph are what a packet can hold while it waits: a virtual channel of a link, the queue of a lane into the
network, the queue of a lane out of it. An edge means that a packet in the one can wait for the other. Messages add the
edges from a request that leaves the network to the response that enters it there; responses always sink. So do error
answers (:mod:`.returns`): a request that its router cannot pass on leaves by the lane out of wherever it stands, also
where it was just sent, and the answer enters there as a response. A routing is free of deadlocks if the graph has no
cycle (Dally and Seitz).

The graph holds every header that could be, in all directions and with all late bits, not only the shortest ways: so it
covers every :class:`~.routing.RoutePlan`, whatever links are dead, and any mixture of plans in time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .config import TorusConfig
from .flit import Message, vc_fields, vc_number
from .interface import Port
from .routing import neighbour, next_late, turn

__all__ = ["DeadlockError", "check_deadlock_free", "dependency_graph", "find_cycle"]

#: A resource: ``("link", node, Port, vc)``, ``("inject", node, message)`` or ``("eject", node, message)``.
Resource = tuple[Any, ...]
#: What a packet that holds a resource can wait for (``networkx.DiGraph`` takes it as it is).
Graph = dict[Resource, set[Resource]]


class DeadlockError(ValueError):
    """A routing whose dependency graph has a cycle; ``cycle`` holds it."""

    def __init__(self, config: TorusConfig, cycle: list[Resource]) -> None:
        self.cycle = cycle
        text = "\n  ".join(_text(config, resource) for resource in [*cycle, cycle[0]])
        super().__init__(
            f"the routing of the {config.rows} x {config.cols} torus can deadlock; packets could wait in a circle:\n"
            f"  {text}"
        )


def _text(config: TorusConfig, resource: Resource) -> str:
    kind, node = resource[:2]
    place = f"({node % config.cols}, {node // config.cols})"
    if kind == "link":
        message, order, late = vc_fields(config, resource[3])
        return (f"link {resource[2].name} of {place}, channel {resource[3]} "
                f"({message.name.lower()}, {order.name}, {'late' if late else 'early'})")  # fmt: skip
    return f"{'lane into' if kind == 'inject' else 'lane out of'} the network at {place}, {resource[2].name.lower()}"


def _edges(config: TorusConfig, order: int, late_rule: Callable[..., Any]) -> set[tuple[int, int]]:
    """Pairs of consecutive (node, port, late) of all packets of one order, coded as ``(node * 4 + port) * 2 + late``.

    Sources enter the pairs as ``-1 - node``, destinations as ``-1 - node`` behind their last hop.
    """
    cols, rows = config.cols, config.rows
    # Every source, destination and choice at once.
    axes = np.meshgrid(*(np.arange(n, dtype=np.int16) for n in (cols, rows, cols, rows, 2, 2, 2, 2)), indexing="ij")
    x, y, dst_x, dst_y, x_down, y_down, x_late, y_late = (axis.ravel() for axis in axes)
    came = -1 - (y.astype(np.int32) * cols + x)
    late, in_x, moved = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    resources = config.nodes * 8
    span = resources + config.nodes
    seen = np.zeros(span * span, bool)
    while True:
        bit = [np.asarray(v, np.int16) for v in turn(order, (x != dst_x) * 1, (y != dst_y) * 1)]
        go_x, go = bit[0], bit[0] | bit[1]
        here, there = np.where(go_x, x, y), np.where(go_x, dst_x, dst_y)
        size, down = np.where(go_x, cols, rows), np.where(go_x, x_down, y_down)
        first, last = (here == 0) * 1, (here == size - 1) * 1
        late = late_rule(
            same=moved & (1 ^ in_x ^ go_x), crossed=np.where(down, last, first), wrap=np.where(down, first, last),
            ahead=np.where(down, there > here, there < here) * 1, late=late, start=np.where(go_x, x_late, y_late),
        )  # fmt: skip
        node = y.astype(np.int32) * cols + x
        port = np.where(go_x, 0, 2) + down
        following = np.where(go, (node * 4 + port) * 2 + late, -1 - node)
        seen[(came + config.nodes) * span + following + config.nodes] = True
        keep = go.astype(bool)
        if not keep.any():
            break
        x = np.where(go_x, (x + 1 - 2 * down) % cols, x)[keep]
        y = np.where(go_x, y, (y + 1 - 2 * down) % rows)[keep]
        came, in_x, late = following[keep], go_x[keep], late[keep].astype(np.int16)
        moved = np.ones_like(x)
        dst_x, dst_y, x_down, y_down, x_late, y_late = (
            array[keep] for array in (dst_x, dst_y, x_down, y_down, x_late, y_late)
        )
    codes = np.flatnonzero(seen).tolist()
    return {(code // span - config.nodes, code % span - config.nodes) for code in codes}


def dependency_graph(
    config: TorusConfig, *, late_rule: Callable[..., Any] = next_late, shared_messages: bool = False,
    answer_responses: bool = False,
) -> Graph:
    """The graph of a torus: for each resource, what a packet that holds it can wait for.

    Parameters
    ----------
    config
        The torus.
    late_rule
        In place of :func:`.routing.next_late`, to see that a broken one is found.
    shared_messages
        As if responses used the channels and lanes of requests, for the same reason.
    answer_responses
        As if a response that strands were answered, too, for the same reason.
    """
    graph: Graph = {}

    def add(before: Resource, after: Resource) -> None:
        graph.setdefault(before, set()).add(after)
        graph.setdefault(after, set())

    for order in range(config.orders):
        edges = sorted(_edges(config, order, late_rule))
        for message in Message:
            lane = Message.REQUEST if shared_messages else message

            def resource(code: int, kind: str, *, order: int = order, lane: Message = lane) -> Resource:
                if code < 0:
                    return kind, -1 - code, lane
                vc = vc_number(config, message=lane, order=order, late=code & 1)
                return "link", code // 8, Port(code // 2 % 4), vc

            for before, after in edges:
                add(resource(before, "inject"), resource(after, "eject"))
                # A packet whose link is dead leaves the network where it stands, with an error.
                if before >= 0:
                    port, node = Port(before // 2 % 4), before // 8
                    add(resource(before, ""), ("eject", neighbour(config, node, port), lane))
    for node in range(config.nodes):
        response = Message.REQUEST if shared_messages else Message.RESPONSE
        add(("eject", node, Message.REQUEST), ("inject", node, response))
        if answer_responses:
            add(("eject", node, response), ("inject", node, response))
    return graph


def find_cycle(graph: Graph) -> list[Resource] | None:
    """A cycle, resource by resource, or None. Depth first; what a search has left without a cycle is never in one."""
    done: set[Resource] = set()
    for start in graph:
        if start in done:
            continue
        path, places = [start], {start: 0}
        ways = [iter(graph[start])]
        while path:
            after = next(ways[-1], None)
            if after is None:
                ways.pop()
                done.add(path[-1])
                del places[path.pop()]
            elif after in places:
                return path[places[after] :]
            elif after not in done:
                places[after] = len(path)
                path.append(after)
                ways.append(iter(graph[after]))
    return None


def check_deadlock_free(config: TorusConfig, **rules: Any) -> None:
    """Build the graph and refuse a cycle.

    Raises
    ------
    DeadlockError
        With the cycle, resource by resource.
    """
    cycle = find_cycle(dependency_graph(config, **rules))
    if cycle is not None:
        raise DeadlockError(config, cycle)
