"""Routes: which way a packet goes, and in which virtual channel. The one home of both.

A packet's header says, from the source on, in which direction it goes in each dimension; its virtual channel says which
dimension comes first. :func:`turn` and :func:`next_late` are what a router does with that. They are written with
``&``, ``|`` and ``^`` of single bits only, so that the same functions build the router's logic from signals
(:mod:`.router`), step a packet in Python (:func:`step`) and step arrays of packets in the check for deadlocks
(:mod:`.deadlock`).

:class:`RoutePlan` chooses the header bits at the source: shortest ways, ties split evenly, around dead links and nodes.
As routers keep no tables, a new plan takes effect packet by packet, and since every header whatsoever is free of
deadlocks, old and new plans may be under way together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .config import TorusConfig
from .flit import Order
from .interface import Port

__all__ = ["Choice", "Hop", "RoutePlan", "neighbour", "next_late", "step", "turn"]


def turn(order: Any, x_off: Any, y_off: Any) -> tuple[Any, Any]:
    """Dimension that a packet leaves a router by: bits (x, y); neither where it has arrived.

    ``order`` is 0 for x first; ``x_off``/``y_off`` say that the coordinate still differs from the destination's.
    """
    return x_off & ((order ^ 1) | (y_off ^ 1)), y_off & (order | (x_off ^ 1))


def next_late(*, same: Any, crossed: Any, wrap: Any, ahead: Any, late: Any, start: Any) -> Any:
    """Late bit of the channel that a packet takes next.

    The dateline of a ring is its wrap-around link. A packet that will cross it starts early and is late behind it; on
    the wrap-around link itself, and for a packet that does not cross, either will do, and the header says which.

    Parameters
    ----------
    same
        The packet came by a link of the dimension that it leaves by.
    crossed
        It came over that ring's wrap-around link.
    wrap
        The link it leaves by is the wrap-around link.
    ahead
        The wrap-around link still lies on its way.
    late
        Late bit of the channel it stands in.
    start
        The header's choice for this dimension.
    """
    over = same & crossed
    free = (same & late) | ((same ^ 1) & start)
    return over | ((over ^ 1) & ((wrap & start) | ((wrap ^ 1) & (ahead ^ 1) & free)))


@dataclass(frozen=True)
class Choice:
    """What the source puts into a packet's header and, for ``order``, into its virtual channel."""

    order: int
    x_down: int
    y_down: int
    x_late: int = 0
    y_late: int = 0

    def code(self) -> int:
        """The choice as a number of 5 bits, ``order`` lowest."""
        return self.order | self.x_down << 1 | self.y_down << 2 | self.x_late << 3 | self.y_late << 4


@dataclass(frozen=True)
class Hop:
    """A link on a packet's way: the router it leaves, by which port, and the late bit there."""

    node: int
    port: Port
    late: int


def neighbour(config: TorusConfig, node: int, port: Port) -> int:
    """The node at the other end of a link; nodes count along x first."""
    x, y = node % config.cols, node // config.cols
    if port in (Port.XP, Port.XM):
        x = (x + (1 if port == Port.XP else -1)) % config.cols
    else:
        y = (y + (1 if port == Port.YP else -1)) % config.rows
    return y * config.cols + x


def step(config: TorusConfig, node: int, dst: int, choice: Choice, came: Hop | None) -> Hop | None:
    """The next hop of a packet at ``node``, or None where it has arrived; ``came`` is the hop that brought it."""
    x, y = node % config.cols, node // config.cols
    dst_x, dst_y = dst % config.cols, dst // config.cols
    go_x, go_y = turn(choice.order, int(x != dst_x), int(y != dst_y))
    if not go_x | go_y:
        return None
    here, there, size = (x, dst_x, config.cols) if go_x else (y, dst_y, config.rows)
    down, start = (choice.x_down, choice.x_late) if go_x else (choice.y_down, choice.y_late)
    first, last = int(here == 0), int(here == size - 1)
    same = int(came is not None and (came.port in (Port.XP, Port.XM)) == bool(go_x))
    late = next_late(
        same=same, crossed=last if down else first, wrap=first if down else last,
        ahead=int(there > here if down else there < here), late=came.late if came else 0, start=start,
    )  # fmt: skip
    return Hop(node, Port((0 if go_x else 2) + down), late)


@dataclass(frozen=True)
class RoutePlan:
    """Routes between all nodes of a torus with some links and nodes dead.

    A single dead link or node leaves every pair of the others a route; with more, a pair may become unreachable though
    a longer way exists (routes turn once at most).

    Parameters
    ----------
    config
        The torus.
    dead_links
        ``(node, port)`` of one end of each dead link; both directions count as dead.
    dead_nodes
        Nodes that neither send, receive nor pass anything on.

    Raises
    ------
    ValueError
        For a node or port that does not exist.
    """

    config: TorusConfig
    dead_links: frozenset[tuple[int, Port]] = frozenset()
    dead_nodes: frozenset[int] = frozenset()
    _dead: frozenset[tuple[int, Port]] = field(init=False, repr=False, default=frozenset())

    def __init__(
        self, config: TorusConfig, dead_links: Iterable[tuple[int, int]] = (), dead_nodes: Iterable[int] = ()
    ) -> None:
        links, nodes = frozenset((n, Port(p)) for n, p in dead_links), frozenset(dead_nodes)
        for node in {n for n, _ in links} | nodes:
            if not 0 <= node < config.nodes:
                raise ValueError(f"node must be 0 to {config.nodes - 1} in this torus, not {node}")
        dead = set(links) | {(node, port) for node in nodes for port in Port}
        dead |= {(neighbour(config, node, port), port.opposite) for node, port in dead}
        values = {"config": config, "dead_links": links, "dead_nodes": nodes, "_dead": frozenset(dead)}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def path(self, src: int, dst: int, choice: Choice) -> list[Hop]:
        """The hops of a packet with the given header bits."""
        hops: list[Hop] = []
        node = src
        while (hop := step(self.config, node, dst, choice, hops[-1] if hops else None)) is not None:
            hops.append(hop)
            node = neighbour(self.config, node, hop.port)
        return hops

    def choice(self, src: int, dst: int, order: int = Order.XY) -> Choice | None:
        """Header bits for a packet, or None where the plan has no route.

        The wanted order is kept where it can be; then the shortest way that is left.
        """
        config = self.config
        if src in self.dead_nodes or dst in self.dead_nodes:
            return None
        (sx, sy), (dx, dy) = ((n % config.cols, n // config.cols) for n in (src, dst))
        # Spreads packets over the two channels of a dimension. It must depend on the destination alone: flows that meet
        # share a link fairly only if they also share a channel.
        late = (dx + dy) & 1
        # Of the sources of a ring half take a tie either way, and so do the flows of each source.
        ways_x = _ways(sx, dx, config.cols, tie=sx + sy + dy)
        ways_y = _ways(sy, dy, config.rows, tie=sx + sy + dx)
        orders = [order, order ^ 1] if config.orders == 2 else [0]
        for turn_first in orders:
            for x_far, y_far in ((0, 0), (1, 0), (0, 1), (1, 1)):
                choice = Choice(turn_first, ways_x[x_far], ways_y[y_far], late, late)
                if not self._dead or not any((h.node, h.port) in self._dead for h in self.path(src, dst, choice)):
                    return choice
        return None

    def table(self, src: int, order: int = Order.XY) -> list[int | None]:
        """:meth:`Choice.code` for every destination, None for one that cannot be reached: a node's route table."""
        choices = (self.choice(src, dst, order) for dst in range(self.config.nodes))
        return [None if choice is None else choice.code() for choice in choices]


def _ways(src: int, dst: int, size: int, *, tie: int) -> tuple[int, int]:
    """Directions in a ring, the shorter first."""
    up = (dst - src) % size
    down = tie & 1 if 2 * up == size else int(2 * up > size)
    return down, down ^ 1
