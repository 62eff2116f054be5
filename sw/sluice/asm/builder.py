"""Programs from Python: what the compiler writes microcode with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from sluice_hw import isa
from sluice_hw.config import ChipConfig
from sluice_hw.isa import Op, Unit

from . import fields as text_fields
from .check import check as check_program
from .program import Program
from .words import check_word

__all__ = ["Builder", "TokenSpec"]

#: Tokens of an op: the text form (``"ld,vpu@first(2)"``), units, or a mapping unit -> levels of its predicate.
TokenSpec = str | Unit | Iterable[Unit | str] | Mapping[Unit | str, Iterable[int]]


def _unit(unit: Unit | str) -> Unit:
    if isinstance(unit, str):
        try:
            return Unit[unit.upper()]
        except KeyError:
            raise ValueError(f"unit must be {', '.join(u.name.lower() for u in Unit)}, not {unit!r}") from None
    return Unit(unit)


def _token_fields(kind: str, spec: TokenSpec) -> dict[str, int]:
    when = {"wait": "first", "signal": "last"}[kind]
    if isinstance(spec, str):
        return text_fields.parse_tokens(kind, spec) if spec else {}
    if isinstance(spec, Unit):
        spec = (spec,)
    pairs = spec.items() if isinstance(spec, Mapping) else ((unit, ()) for unit in spec)
    out = {}
    for unit, levels in pairs:
        name = f"{kind}_{_unit(unit).name.lower()}"
        out[name] = 1
        out[f"{name}_{when}"] = text_fields.levels_mask(levels)
    return out


class Builder:
    """Append ops, open loops, and take the program.

    Parameters
    ----------
    config
        Configuration whose ranges the fields must keep.

    Examples
    --------
    >>> b = Builder(preset("tiny"))
    >>> b.addr(0, base=64, strides={0: 256})
    >>> with b.loop(0, 5):
    ...     b.op(Op.LOAD_WEIGHTS, vmem=0, pitch=8, k=8, n=8, wait="ld@first(0)")
    >>> b.halt()
    >>> program = b.program()
    """

    def __init__(self, config: ChipConfig) -> None:
        self.config = config
        self._words: list[int] = []
        self._notes: dict[int, str] = {}
        self._open: list[int] = []

    def __len__(self) -> int:
        return len(self._words)

    @property
    def pc(self) -> int:
        """Address of the next word."""
        return len(self._words)

    def note(self, text: str) -> None:
        """Attach a comment to the next word; the disassembler prints it."""
        old = self._notes.get(self.pc)
        self._notes[self.pc] = f"{old}\n{text}" if old else text

    def op(self, op: Op, *, wait: TokenSpec = "", signal: TokenSpec = "", **fields: int) -> int:
        """Append an op and return its address.

        Parameters
        ----------
        wait, signal
            Tokens to take before it starts and to give when it has finished.
        fields
            Fields by name; the rest keep their defaults. Masks are plain numbers (:meth:`levels`).

        Raises
        ------
        ValueError
            For a field that does not exist or is out of range, or tokens on an op that carries none.
        """
        op = Op(op)
        fields |= self.wait(wait) | self.signal(signal)
        word = isa.encode(op, self.config, {k: int(v) for k, v in fields.items()})
        if op is Op.ADDR:
            check_word(word, self.config)  # strides of a ring: encode looks at one field at a time
        self._words.append(word)
        return len(self._words) - 1

    @staticmethod
    def wait(spec: TokenSpec) -> dict[str, int]:
        """Fields of the tokens to wait for, to pass on with ``**``."""
        return _token_fields("wait", spec)

    @staticmethod
    def signal(spec: TokenSpec) -> dict[str, int]:
        """Fields of the tokens to give, to pass on with ``**``."""
        return _token_fields("signal", spec)

    @staticmethod
    def levels(*levels: int) -> int:
        """Mask of loop levels for ``swap_first`` and ``acc_first``."""
        return text_fields.levels_mask(levels)

    @staticmethod
    def scale(value: float) -> int:
        """fp32 bit pattern of a scale, for ``multiplier``, ``m1`` and ``m2``."""
        return text_fields.float_bits(float(value))

    def addr(
        self,
        reg: int,
        base: int = 0,
        *,
        param: int | None = None,
        strides: Mapping[int, int] | None = None,
        ring: int = 0,
    ) -> int:
        """Set an address register.

        Parameters
        ----------
        param
            Parameter register that the chip adds to ``base``.
        strides
            Loop level -> step at that level's END.
        ring
            0: affine; else wrap at base + ring.
        """
        fields: dict[str, int] = {"reg": reg, "base": base, "ring": ring}
        if param is not None:
            fields |= {"add_param": 1, "param": param}
        for level, stride in (strides or {}).items():
            fields[f"stride{level}"] = stride
        return self.op(Op.ADDR, **fields)

    @contextmanager
    def loop(self, level: int, count: int = 0, *, param: int | None = None) -> Iterator[None]:
        """Open a hardware loop for the body of a ``with``.

        Parameters
        ----------
        count
            Iterations; 0 skips the body.
        param
            Parameter register that holds the count instead.
        """
        if self._open and level <= self._open[-1]:
            raise ValueError(f"LOOP level must be above {self._open[-1]}, the level of the loop around it, not {level}")
        fields: dict[str, int] = {"level": level, "count": count}
        if param is not None:
            fields |= {"from_param": 1, "param": param}
        at = self.op(Op.LOOP, **fields)
        self._open.append(level)
        try:
            yield
        finally:
            self._open.pop()
        end = self.op(Op.END, level=level)
        self._words[at] = isa.encode(Op.LOOP, self.config, fields | {"end": end})

    def sync(self, unit: Unit | str, *, wait: TokenSpec = "", signal: TokenSpec = "") -> int:
        """Wait for and give tokens in the queue of ``unit``."""
        return self.op(Op.SYNC, unit=_unit(unit), wait=wait, signal=signal)

    def halt(self, code: int = 0) -> int:
        """End the program."""
        return self.op(Op.HALT, code=code)

    def program(self, *, check: bool = True) -> Program:
        """The program so far, checked as a whole unless ``check`` is false.

        Raises
        ------
        ProgramError
            With every problem that the check found.
        ValueError
            Inside an open loop.
        """
        if self._open:
            raise ValueError(f"loop level {self._open[-1]} is still open")
        program = Program(list(self._words), self.config.name, notes=dict(self._notes))
        if check:
            check_program(program, self.config)
        return program
