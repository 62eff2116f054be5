"""State of a chip as text: what each unit stands at and waits for, tokens, loops, the last events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice_hw import csr, isa

from .fault import cause_text, op_text, unit_name

if TYPE_CHECKING:
    from .device import Device

__all__ = ["Event", "dump_text", "hung_text", "state_text", "waiting_text"]

_KINDS = ("start", "finish", "error")


@dataclass(frozen=True)
class Event:
    """An entry of the event ring: cycle, what happened (0 start, 1 finish, 2 error), unit, and the op's address."""

    time: int
    kind: int
    unit: int
    pc: int
    op: str = ""

    def __str__(self) -> str:
        kind = _KINDS[self.kind] if self.kind < len(_KINDS) else f"kind {self.kind}"
        return f"{self.time:>8}  {unit_name(self.unit):<9} {kind:<6} word {self.pc}  {self.op}".rstrip()


def _missing(state: dict[str, int]) -> str:
    names = [u.name for u in isa.Unit if state["missing"] >> u & 1]
    return f"waits for a token from {' and '.join(names)}" if names else cause_text(state["cause"])


def waiting_text(device: Device) -> list[str]:
    """A line for each unit that holds an op and does not work, and for the sequencer."""
    out = []
    for u in isa.Unit:
        state, pc = device.read_fields(f"{u.name}_STATE"), device.read_csr(f"{u.name}_PC")
        working = state["cause"] in (isa.Cause.BUSY, isa.Cause.IDLE) and not state["missing"]
        if state["head"] and not working:
            out.append(f"{u.name} {_missing(state)} at word {pc} `{op_text(device.program, pc, device.config)}`")
    if device.status["running"]:
        pc, cause = device.read_csr("PC"), device.read_fields("SEQ_STATE")["cause"]
        what = cause_text(cause) if cause == isa.Cause.QUEUE else "stands"
        out.append(f"sequencer {what} at word {pc} `{op_text(device.program, pc, device.config)}`")
    return out


def hung_text(device: Device, info: int) -> list[str]:
    """Who waited for what when the watchdog bit, from ERROR_INFO: the units themselves have stopped since."""
    layout = csr.watchdog_info_layout()
    states = {name: info >> field.offset & 15 for name, field in layout}
    out = []
    for u in isa.Unit:
        cause = states[u.name.lower()]
        if cause not in (isa.Cause.BUSY, isa.Cause.IDLE):
            pc = device.read_csr(f"{u.name}_PC")
            out.append(f"{u.name} {cause_text(cause)} at word {pc} `{op_text(device.program, pc, device.config)}`")
    for name in ("hbm", "seq"):
        if states[name] not in (isa.Cause.BUSY, isa.Cause.IDLE):
            out.append(f"{'sequencer' if name == 'seq' else 'HBM'} {cause_text(states[name])}")
    return out or ["nothing moves, and no unit waits"]


def _unit_lines(device: Device) -> list[str]:
    """What each unit does or waits for, and at which op."""
    lines = []
    for u in isa.Unit:
        state, pc = device.read_fields(f"{u.name}_STATE"), device.read_csr(f"{u.name}_PC")
        what = _missing(state) if state["head"] else cause_text(state["cause"])
        op = op_text(device.program, pc, device.config) if state["opcode"] else ""
        at = f" at word {pc} `{op}`" if op and (state["head"] or not state["idle"]) else ""
        lines.append(f"{u.name:<10} {what}{at}, {state['level']} ops in its queue")
    return lines


def state_text(device: Device) -> str:
    """Where a program stands: cycles, program counter, units."""
    low = device.read_csr("CYCLES_LO")
    cycles = device.read_csr("CYCLES_HI") << 32 | low
    flags = [name for name, bit in device.status.items() if bit] or ["idle"]
    pc, cause = device.read_csr("PC"), device.read_fields("SEQ_STATE")["cause"]
    op = op_text(device.program, pc, device.config)
    lines = [
        f"status     {', '.join(flags)}, {cycles} cycles since the start of the program",
        f"sequencer  {cause_text(cause)}, at word {pc}" + (f" `{op}`" if op else ""),
    ]
    return "\n".join(lines + _unit_lines(device))


def dump_text(device: Device, events: int = 16) -> str:
    """The state of the chip, and the last ``events`` events."""
    status = device.status
    flags = [name for name, bit in status.items() if bit] or ["idle"]
    lines = [f"status     {', '.join(flags)}"]
    fault = device.last_error
    if fault is not None:
        lines.append(f"error      {fault}")
        if fault.code is isa.Error.WATCHDOG:
            lines += [f"hung       {text}" for text in hung_text(device, fault.info)]
    pc, seq = device.read_csr("PC"), device.read_fields("SEQ_STATE")
    op = op_text(device.program, pc, device.config)
    lines.append(f"sequencer  {cause_text(seq['cause'])}, at word {pc}" + (f" `{op}`" if op else ""))
    for level in range(isa.LOOP_LEVELS):
        if seq["open"] >> level & 1:
            where = [n for n in ("first", "last") if seq[n] >> level & 1]
            done = device.read_csr(f"LOOP{level}")
            at = f", in its {' and '.join(where)}" if where else ""
            lines.append(f"  loop {level}: {done} iterations done{at}")
    lines += _unit_lines(device)
    tokens = []
    for u in isa.Unit:
        for name, n in device.read_fields(f"TOKENS_{u.name}").items():
            if n:
                tokens.append(f"{u.name}->{name[3:].upper()} {n}")
    lines.append(f"tokens     {', '.join(tokens) or 'none'}")
    registers = {i: device.read_csr(f"ADDR{i}") for i in range(isa.ADDRESS_REGISTERS)}
    lines.append("addresses  " + (", ".join(f"r{i}={v:#x}" for i, v in registers.items() if v) or "all 0"))
    ring = device.events()
    if ring:
        dropped = device.read_csr("EVENT_DROPPED")
        lines.append(f"last events (cycle, unit, what){f', {dropped} dropped' if dropped else ''}:")
        lines += [f"  {event}" for event in ring[-events:]]
    return "\n".join(lines)


