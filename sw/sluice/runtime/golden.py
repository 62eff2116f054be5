"""Transport to the golden machine: the chip's registers and data port in front of an interpreter without time.

The driver sees the same registers as on the chip. What golden does not know reads as 0: cycle counters, the event ring.
"""

from __future__ import annotations

from collections.abc import Sequence

from sluice.errors import AccessError, UndefinedProgram
from sluice.golden import DeadlockError, Fault, GoldenMachine, MachineError
from sluice.golden.sequencer import Sequencer
from sluice.golden.units import UnitModel
from sluice_hw import csr, isa
from sluice_hw.config import ChipConfig
from sluice_hw.csr import Access, HostMap, Irq
from sluice_hw.isa import Cause, Error, Unit

from .transport import Transport, check_range

__all__ = ["GoldenTransport", "SteppedMachine"]

_UNIT_NUMBER = {**{u.name.lower(): int(u) for u in Unit}, "seq": csr.SEQUENCER}


class _Sequencer(Sequencer):
    """With its inside open to the registers."""

    @property
    def loops(self) -> list:
        return self._loops

    @property
    def addresses(self) -> list[int]:
        return self._registers.cur


class SteppedMachine(GoldenMachine):
    """The golden machine, moved on by rounds: in one, the sequencer and each unit do one thing if they can."""

    sequencer: _Sequencer | None = None

    def start(self, words: Sequence[int], params: Sequence[int], entry: int) -> None:
        """Clear what the start of a program clears, and stand before its first word."""
        self._reset()
        self.sequencer = self._sequencer = _Sequencer(self.config, words, params, self._units, entry)

    @property
    def units(self) -> dict[Unit, UnitModel]:
        return self._units

    @property
    def fault(self) -> Fault | None:
        return self._fault

    def forget(self) -> None:
        """A soft reset: memories stay."""
        self._reset()
        self.sequencer = None

    def round(self, *, word: bool) -> bool:
        """Whether anything moved; ``word``: the sequencer may execute one."""
        moved = False
        if word and self.sequencer is not None:
            moved = self._act(self.sequencer, None)
        for unit in self._units.values():
            moved |= self._act(unit, None)
        return moved

    def settle(self) -> None:
        """Let end what is under way."""
        while self.round(word=False):
            pass

    def deadlock(self) -> DeadlockError:
        """Who waits for what."""
        return self._deadlock()


class GoldenTransport(Transport):
    """Registers and data port in front of a golden machine.

    Time is counted in rounds (:class:`SteppedMachine`), of which a program needs at most as many as the chip needs
    cycles; timeouts are measured in them.
    """

    name = "golden"

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        self.machine = SteppedMachine(config)
        self._registers = {r.offset: r for r in csr.csr_table(config)}
        self._held = {r.name: r.reset for r in self._registers.values() if r.access in (Access.RW, Access.W1C)}
        self._store = bytearray(config.microcode_words * HostMap.WORD_BYTES)
        self._upper = 0
        self._clear()

    def _clear(self) -> None:
        self.machine.forget()
        self._running = self._done = self._halted = False
        self._want_halt = self._single = self._passed = False
        self._halt_code = 0
        self._why = ""

    # -- registers -----------------------------------------------------------------------------------------------
    def csr_read(self, offset: int) -> int:
        register = self._register(offset)
        if register.name.endswith("_LO") and register.name[:-3].lower() in csr.counters():
            value = getattr(self.machine.counters, register.name[:-3].lower(), 0)
            self._upper = value >> 32
            return value & 0xFFFFFFFF
        return self._value(register)

    def csr_write(self, offset: int, value: int) -> None:
        register = self._register(offset)
        value &= (1 << register.width) - 1
        if register.name == "CTRL":
            self._command(register, value)
        elif register.name == "ECC_CTRL":
            if register.unpack(value)["inject"]:
                raise _refused(offset, "golden memory has no wrong bits")
        elif register.access is Access.RW:
            self._held[register.name] = value
        elif register.access is Access.W1C:
            self._held[register.name] &= ~value
        else:
            raise _refused(offset, f"register {register.name} is read-only")

    def _register(self, offset: int) -> csr.Register:
        if offset not in self._registers:
            raise _refused(offset, "no register there")
        return self._registers[offset]

    def _command(self, register: csr.Register, value: int) -> None:
        if value & (value - 1):
            raise _refused(register.offset, f"CTRL takes one command at a time, not {value:#x}")
        match next((name for name, bit in register.unpack(value).items() if bit), None):
            case "start":
                if self._running or self.machine.stopped:
                    raise _refused(register.offset, "CTRL.start while a program runs or after an error")
                self._start()
            case "soft_reset":
                self._clear()
            case "halt":
                self._want_halt |= self._running and not self._halted
            case "step":
                self._single |= self._halted
            case "resume" if self._halted:
                self._halted = self._single = False
                self._passed = True

    def _start(self) -> None:
        size = HostMap.WORD_BYTES
        words = [int.from_bytes(self._store[i : i + size], "little") for i in range(0, len(self._store), size)]
        params = [self._held[f"PARAM{i}"] for i in range(isa.PARAM_REGISTERS)]
        self._clear()
        self.machine.hbm_lo, self.machine.hbm_hi = self._held["HBM_LO"], self._held["HBM_HI"]
        self.machine.start(words, params, self._held["ENTRY"])
        self._running = True

    def _value(self, register: csr.Register) -> int:
        name, machine = register.name, self.machine
        if name in self._held:
            return self._held[name]
        fault = machine.fault
        fields = {
            "running": self._running, "done": self._done, "halted": self._halted, "error": fault is not None,
            "watchdog": fault is not None and fault.code is Error.WATCHDOG,
        }
        match name:
            case "STATUS":
                return _pack(register, fields)
            case "HALT_CODE":
                return self._halt_code
            case "ERROR_CODE":
                return int(fault.code) if fault else 0
            case "ERROR_PC":
                return fault.pc if fault else 0
            case "ERROR_FIELD":
                return fault.field if fault else 0
            case "ERROR_INFO":
                return fault.info if fault else 0
            case "ERROR_UNIT":
                return _UNIT_NUMBER[fault.unit] if fault else 0
            case "PC":
                return machine.sequencer.pc if machine.sequencer else 0
            case "SEQ_STATE":
                return _pack(register, self._loops())
        if register.name.endswith("_HI"):
            return self._upper
        kind, _, rest = name.rpartition("_")
        if rest in ("STATE", "PC") and kind in Unit.__members__:
            state = self._unit(Unit[kind])
            return state.pop("pc") if rest == "PC" else _pack(register, state)
        if kind == "TOKENS":
            giver = Unit[rest]
            return _pack(register, {f"to_{u.name.lower()}": machine.tokens[giver, u] for u in Unit})
        sequencer = machine.sequencer
        if name.startswith("LOOP"):
            level = int(name[4:])
            return next((o.iteration for o in sequencer.loops if o.level == level), 0) if sequencer else 0
        if name.startswith("ADDR"):
            return sequencer.addresses[int(name[4:])] if sequencer else 0
        return register.reset  # identification and geometry; what golden does not know has reset value 0

    def _loops(self) -> dict[str, int]:
        sequencer = self.machine.sequencer
        loops = sequencer.loops if sequencer else []
        cause = Cause.IDLE
        if self._running and not self._halted:
            waits = sequencer.waiting() if sequencer else None
            cause = Cause.QUEUE if waits and waits[2].startswith("room") else Cause.BUSY
        return {
            "open": sum(1 << o.level for o in loops),
            "first": sum(1 << o.level for o in loops if o.iteration == 0),
            "last": sum(1 << o.level for o in loops if o.iteration + 1 == o.count),
            "cause": int(cause),
        }

    def _unit(self, unit: Unit) -> dict[str, int]:
        """Fields of ``<UNIT>_STATE``, and ``pc``."""
        model = self.machine.units[unit]
        head = model.queue[0] if model.queue else None
        shown = head or (model.flight[-1].uop if model.flight else None)
        waits = sum(1 << u for u in head.waits) if head else 0
        missing = sum(1 << u for u in head.waits if not self.machine.tokens[u, unit]) if head else 0
        return {
            "cause": int(self._cause(unit)), "idle": int(not model.flight), "head": int(head is not None),
            "opcode": int(shown.op) if shown else 0, "level": len(model.queue), "wait": waits, "missing": missing,
            "pc": shown.pc if shown else 0,
        }

    def _cause(self, unit: Unit) -> Cause:
        model = self.machine.units[unit]
        if model.queue:
            for u in model.queue[0].waits:
                if not self.machine.tokens[u, unit]:
                    return Cause[f"TOKEN_{u.name}"]
            if unit is Unit.MXU and not model.flight and model.blocked(model.queue[0]):
                return Cause.WEIGHTS
        return Cause.BUSY if model.queue or model.flight else Cause.IDLE

    # -- data port -----------------------------------------------------------------------------------------------
    def mem_read(self, address: int, size: int) -> bytes:
        store, at = self._window(address, size)
        if store is not None:
            return bytes(store[at : at + size])
        return self.machine.read_hbm(at, size, allow_unwritten=True).tobytes()

    def mem_write(self, address: int, data: bytes) -> None:
        store, at = self._window(address, len(data))
        if store is not None:
            store[at : at + len(data)] = data
        else:
            self.machine.write_hbm(at, bytes(data))

    def _window(self, address: int, size: int) -> tuple[bytearray | None, int]:
        check_range(address, size)
        if address + size <= self.config.hbm_bytes:
            return None, address
        at = address - HostMap.UCODE_BASE
        if 0 <= at and at + size <= len(self._store):
            return self._store, at
        raise AccessError(
            f"{size} bytes at {address:#x} lie neither in HBM ({self.config.hbm_bytes:#x} bytes from 0) nor in the "
            f"microcode store ({len(self._store):#x} bytes from {HostMap.UCODE_BASE:#x})",
            kind="memory", address=address,
        )

    # -- time ----------------------------------------------------------------------------------------------------
    def wait_interrupt(self, timeout_cycles: int) -> bool:
        return self._pass(timeout_cycles, until_interrupt=True)

    def advance(self, cycles: int) -> None:
        self._pass(cycles, until_interrupt=False)

    def _pass(self, rounds: int, *, until_interrupt: bool) -> bool:
        for _ in range(rounds):
            if until_interrupt and self._interrupt:
                return True
            if not self._round():
                break  # nothing will ever move again by itself
        return self._interrupt

    @property
    def _interrupt(self) -> bool:
        return bool(self._held["IRQ_STATUS"] & self._held["IRQ_ENABLE"])

    def _round(self) -> bool:
        if not self._running:
            return False
        machine = self.machine
        sequencer = machine.sequencer
        assert sequencer is not None
        point = self._held["BREAKPOINT"]
        at_break = point >> 16 & 1 and point & 0xFFFF == sequencer.pc and not self._passed
        if not self._halted and (self._want_halt or at_break):
            self._halted, self._want_halt = True, False
            self._raise(Irq.HALTED)
        steps = sequencer.steps
        try:
            moved = machine.round(word=not self._halted or self._single)
        except MachineError as error:
            self._running, self._why = False, str(error)
            raise UndefinedProgram(f"golden: {error}") from error
        if sequencer.steps != steps:
            self._single = self._passed = False
        if machine.stopped:
            machine.settle()
            self._end(Irq.ERROR)
        elif sequencer.halt_code is not None:
            self._halt_code, self._done = sequencer.halt_code, True
            self._end(Irq.DONE)
        elif not moved and not self._halted:
            if not self._held["WATCHDOG"]:
                return False
            self._watchdog()
            self._end(Irq.ERROR)
        return moved or not self._halted

    def _end(self, irq: Irq) -> None:
        self._running = self._halted = False
        self._raise(irq)

    def _raise(self, irq: Irq) -> None:
        self._held["IRQ_STATUS"] |= 1 << irq

    def _watchdog(self) -> None:
        """Stop as the chip's watchdog does: the first unit that waits, and the states of all."""
        error = self.machine.deadlock()
        self._why = str(error)
        unit = next((u for u in Unit if u.name.lower() in error.waiting), None)
        name = unit.name.lower() if unit is not None else "seq"
        parts = {u.name.lower(): int(self._cause(u)) for u in Unit} | {"hbm": int(Cause.IDLE)}
        parts["seq"] = self._loops()["cause"]
        parts |= {"unit": _UNIT_NUMBER[name], "cause": parts[name]}
        info = csr.watchdog_info_layout().const(parts).as_value().value
        pc = error.waiting[name][1] if name in error.waiting else 0
        self.machine.stop(Fault(Error.WATCHDOG, pc, 0, info, name, self._why))

    def explain(self) -> str:
        fault = self.machine.fault
        return self._why or (fault.reason if fault else "")

    def close(self) -> None:
        """Nothing to give back."""


def _refused(offset: int, why: str) -> AccessError:
    return AccessError(f"register access at {offset:#x} refused: {why}", kind="register", address=offset)


def _pack(register: csr.Register, values: dict[str, int]) -> int:
    return sum(int(values.get(f.name, 0)) << f.lsb & f.mask for f in register.fields)


