"""Tree to microcode: address registers, setup words where they change, loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sluice.asm import Program
from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Op

from .tree import Address, Block, Loop, Node, op_nodes, stream_key

__all__ = ["Lowered", "lower"]

_MASK = (1 << 32) - 1
#: Registers set before loops; those behind them are set just before the op.
_HOISTED = isa.ADDRESS_REGISTERS - 3


@dataclass
class Lowered:
    """Words, and which op of the tree each comes from (None: ADDR, loops, HALT)."""

    program: Program
    nodes: list[Node | None]


def lower(block: Block, config: ChipConfig, *, params: Sequence[int], entry: int = 0, code: int = 0) -> Lowered:
    """The program of a tree, from word ``entry`` on; the words before are illegal."""
    work = _Lowering(config, params, entry)
    work.block(block, 0)
    work.emit(Op.HALT, {"code": code})
    return Lowered(Program(work.words), work.nodes)


@dataclass
class _Lowering:
    config: ChipConfig
    params: Sequence[int]
    entry: int
    words: list[int] = field(default_factory=list)
    nodes: list[Node | None] = field(default_factory=list)
    registers: dict[Address, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=lambda: list(range(_HOISTED)))
    #: Setup words in force, by what they set.
    known: dict[tuple, dict[str, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.words = [0] * self.entry
        self.nodes = [None] * self.entry

    def emit(self, op: Op, fields: dict[str, int], node: Node | None = None) -> None:
        self.words.append(isa.encode(op, self.config, fields))
        self.nodes.append(node)

    def block(self, block: Block, depth: int) -> None:
        for item in block:
            if isinstance(item, Loop):
                self._loop(item, depth)
            else:
                self._op(item)

    def _loop(self, loop: Loop, depth: int) -> None:
        mine = []
        for node in op_nodes(loop.body):
            for address in node.addresses.values():
                if address.home <= depth and address not in self.registers and self.free:
                    self.registers[address] = self.free.pop(0)
                    mine.append(address)
                    self._address(address, self.registers[address])
        at = len(self.words)
        self.emit(Op.HALT, {})  # its place
        # What the body changes holds neither at the begin of a later iteration nor after a loop that may do nothing.
        changed: dict[tuple, list[dict[str, object]]] = {}
        for node in op_nodes(loop.body):
            for op, fields in node.setups:
                changed.setdefault(_key(op, fields), []).append(_value(node, op, fields))
        self.known = {k: v for k, v in self.known.items() if all(f == v for f in changed.get(k, ()))}
        outside = dict(self.known)
        self.block(loop.body, depth + 1)
        self.known = outside
        self.words[at] = isa.encode(Op.LOOP, self.config, {
            "level": loop.level, "end": len(self.words),
            **({"count": loop.count} if loop.param is None else {"from_param": 1, "param": loop.param}),
        })  # fmt: skip
        self.emit(Op.END, {"level": loop.level})
        for address in mine:
            self.free.append(self.registers.pop(address))

    def _op(self, node: Node) -> None:
        for op, fields in node.setups:
            key, value = _key(op, fields), _value(node, op, fields)
            if node.again or self.known.get(key) != value:
                if op is Op.PASS_STREAM:  # its address is resolved with it, so that the register may change behind it
                    fields = fields | {"addr": self._register(node.addresses[stream_key(fields)], fields["stream"] % 3)}
                self.emit(op, fields)
                self.known[key] = value
        fields = dict(node.fields)
        known = {f.name for f in isa.OPS[node.op].fields}
        for number, (name, address) in enumerate(node.addresses.items()):
            if name in known:
                fields[name] = self._register(address, number)
        for kind, condition, marks in (("wait", "first", node.tokens.waits), ("signal", "last", node.tokens.signals)):
            for unit, (link, mask) in marks.items():
                if not link.dropped:
                    name = f"{kind}_{unit.name.lower()}"
                    fields |= {name: 1, f"{name}_{condition}": mask}
        if node.op is Op.SYNC and not any(fields.get(f"{k}_{u.name.lower()}") for k in ("wait", "signal")
                                          for u in isa.Unit) and (node.tokens.waits or node.tokens.signals):
            return  # nothing left to do
        self.emit(node.op, fields, node)

    def _register(self, address: Address, number: int) -> int:
        """The register that holds an address: set before a loop, or now, the one of this number behind those."""
        register = self.registers.get(address)
        if register is None:
            register = _HOISTED + number
            self._address(address, register)
        return register

    def _address(self, address: Address, register: int) -> None:
        base, more = address.base, {}
        if address.param is not None:
            base -= self.params[address.param]
            more = {"add_param": 1, "param": address.param}
        strides = {f"stride{level}": stride for level, stride in address.strides.items()}
        self.emit(Op.ADDR, {"reg": register, "base": base & _MASK, "ring": address.ring, **more, **strides})


def _key(op: Op, fields: dict[str, int]) -> tuple:
    return op, fields.get("unit"), fields.get("index", fields.get("stream"))


def _value(node: Node, op: Op, fields: dict[str, int]) -> dict[str, object]:
    """What a setup word sets, so that equal values need no second word."""
    if op is not Op.PASS_STREAM:
        return fields
    address = node.addresses[stream_key(fields)]
    return {**fields, "addr": address.base if address.fixed else address}
