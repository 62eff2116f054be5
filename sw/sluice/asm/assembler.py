"""Text to program.

The text form is described in ``docs/isa.md``: one op a line, ``field=value``, sugar for tokens, predicates, loops and
fp32 scales. Every mistake is an :class:`AsmError` with its line and column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sluice_hw import isa
from sluice_hw.config import ChipConfig, preset
from sluice_hw.isa import Op

from . import fields as text_fields
from .check import check as check_program
from .errors import AsmError, ProgramError
from .program import Program
from .words import WordError, check_word

__all__ = ["assemble", "op_by_name"]

_MNEMONICS = {op.name.lower(): op for op in Op}
_LABEL = re.compile(r"([A-Za-z_][A-Za-z0-9_]*):\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PARAM = re.compile(r"p[0-9]+")
#: fp32 spellings of 32-bit fields.
_FLOAT_SUGAR = {"scale": (Op.VECTOR_MODE, "multiplier"), "ratio1": (Op.VECTOR_RESIDUAL, "m1"),
                "ratio2": (Op.VECTOR_RESIDUAL, "m2")}
#: The field that a value without a name gives.
_POSITIONAL = {Op.ADDR: "reg", Op.LOOP: "level", Op.END: "level", Op.HALT: "code"}


def op_by_name(name: str) -> Op:
    """Op of a mnemonic; raises ``ValueError`` that lists the known ones."""
    try:
        return _MNEMONICS[name]
    except KeyError:
        raise ValueError(f"unknown op {name!r}; known ops: {', '.join(_MNEMONICS)}") from None


@dataclass
class _Statement:
    """One op as read: its word waits for labels."""

    op: Op
    fields: dict[str, int]
    places: dict[str, int]
    line: int
    column: int
    label_ends: str | None = None


@dataclass
class _Open:
    """A ``loop .. {`` that waits for its ``}``."""

    statement: _Statement
    level: int


@dataclass
class _State:
    file: str
    config: ChipConfig | None
    items: list[_Statement | int] = field(default_factory=list)
    lines: dict[int, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    open_loops: list[_Open] = field(default_factory=list)


def assemble(text: str, config: ChipConfig | None = None, *, file: str = "<text>", check: bool = True) -> Program:
    """Assemble a program.

    Parameters
    ----------
    config
        Configuration that gives the legal ranges. None: the text names it with ``.config``. When both are given they
        must agree in name.
    file
        Name that errors start with.
    check
        Also check the program as a whole (:func:`sluice.asm.check`) and refuse ``.word`` lines that are not legal.

    Raises
    ------
    AsmError
        At the first mistake, with file, line and column.
    """
    state = _State(file, config)
    for number, raw in enumerate(text.splitlines(), 1):
        _line(state, number, raw, check)
    if state.config is None:
        raise AsmError(file, 1, 1, "no configuration: give one, or write `.config NAME`")
    if state.open_loops:
        where = state.open_loops[-1].statement
        raise AsmError(file, where.line, where.column, "loop without its closing }")
    words = []
    for item in state.items:
        words.append(item if isinstance(item, int) else _word(state, item))
    program = Program(words, state.config.name, lines=state.lines)
    if check:
        try:
            check_program(program, state.config)
        except ProgramError as error:
            pc, reason = error.problems[0]
            raise AsmError(file, state.lines.get(pc, 1), 1, reason) from None
    return program


def _line(state: _State, number: int, raw: str, check: bool) -> None:
    code = raw.split("#", 1)[0]
    tokens = [(m.group(), m.start() + 1) for m in re.finditer(r"\S+", code)]
    while tokens and (match := _LABEL.match(tokens[0][0])):
        name = match[1]
        if name in state.labels:
            raise AsmError(state.file, number, tokens[0][1], f"label {name!r} is defined twice")
        state.labels[name] = len(state.items)
        tokens = tokens[1:]
    if not tokens:
        return
    head, column = tokens[0]
    if head.startswith("."):
        _directive(state, number, tokens, check)
    elif head == "}":
        if len(tokens) > 1:
            raise AsmError(state.file, number, tokens[1][1], f"nothing may follow }}, not {tokens[1][0]!r}")
        if not state.open_loops:
            raise AsmError(state.file, number, column, "} without an open loop")
        loop = state.open_loops.pop()
        loop.statement.fields["end"] = len(state.items)
        _append(state, _Statement(Op.END, {"level": loop.level}, {}, number, column))
    else:
        _op(state, number, tokens)


def _append(state: _State, item: _Statement | int, line: int | None = None) -> None:
    state.lines[len(state.items)] = item.line if isinstance(item, _Statement) else int(line or 0)
    state.items.append(item)


def _directive(state: _State, number: int, tokens: list[tuple[str, int]], check: bool) -> None:
    head, column = tokens[0]
    known = {".config": "a configuration name", ".word": "a 256-bit number"}
    if head not in known:
        raise AsmError(state.file, number, column, f"unknown directive {head!r}; known: {', '.join(known)}")
    if len(tokens) != 2:
        raise AsmError(state.file, number, column, f"{head} takes {known[head]}, not {len(tokens) - 1} values")
    value, at = tokens[1]
    if head == ".config":
        if state.items:
            raise AsmError(state.file, number, column, ".config must stand before the first op")
        if state.config is None:
            try:
                state.config = preset(value)
            except ValueError as error:
                raise AsmError(state.file, number, at, str(error)) from None
        elif state.config.name != value:
            reason = f"the text is for config {value!r}, but {state.config.name!r} was asked for"
            raise AsmError(state.file, number, at, reason)
        return
    try:
        word = text_fields.parse_int(value)
    except ValueError as error:
        raise AsmError(state.file, number, at, f".word takes a number: {error}") from None
    if not 0 <= word < 1 << isa.WORD_BITS:
        raise AsmError(state.file, number, at, f".word must be 0 to 2**{isa.WORD_BITS} - 1, not {value}")
    if check:
        if state.config is None:
            raise AsmError(state.file, number, column, "no configuration: give one, or write `.config NAME`")
        try:
            check_word(word, state.config)
        except WordError as error:
            raise AsmError(state.file, number, at, str(error)) from None
    _append(state, word, number)


def _op(state: _State, number: int, tokens: list[tuple[str, int]]) -> None:
    head, column = tokens[0]
    try:
        op = op_by_name(head)
    except ValueError as error:
        raise AsmError(state.file, number, column, str(error)) from None
    opens = op is Op.LOOP and tokens[-1][0] == "{"
    statement = _Statement(op, {}, {}, number, column)
    for index, (token, at) in enumerate(tokens[1 : len(tokens) - opens]):
        name, equals, value = token.partition("=")
        value_at = at + len(name) + 1
        if not equals:
            name, value, value_at = _bare(state, op, token, index, number, at)
        if not _NAME.match(name) or not value:
            raise AsmError(state.file, number, at, f"expected field=value, not {token!r}")
        try:
            got = _field(op, name, value)
        except ValueError as error:
            raise AsmError(state.file, number, value_at, f"{op.name} {name} {error}") from None
        except KeyError:
            allowed = ", ".join(f.name for f in isa.OPS[op].fields) or "none"
            reason = f"{op.name} has no field {name!r}; its fields: {allowed}"
            raise AsmError(state.file, number, at, reason) from None
        if isinstance(got, str):
            statement.label_ends = got
            got = {"end": 0}
        for key, number_value in got.items():
            if key in statement.fields:
                raise AsmError(state.file, number, at, f"{op.name} {key} is given twice")
            statement.fields[key] = number_value
            statement.places[key] = value_at
    if opens:
        _open_loop(state, statement)
    _append(state, statement)


def _bare(state: _State, op: Op, token: str, index: int, number: int, at: int) -> tuple[str, str, int]:
    """Name and value of a token without ``=``: a flag, or the op's positional field."""
    flag = token.split("@", 1)[0]
    for f in isa.OPS[op].fields:
        if f.name == flag and f.width == 1:
            return flag, token[len(flag) :] or "1", at
    if index == 0 and op in _POSITIONAL:
        return _POSITIONAL[op], token, at
    raise AsmError(state.file, number, at, f"expected field=value, not {token!r}")


def _field(op: Op, name: str, value: str) -> dict[str, int] | str:
    """Fields that ``name=value`` sets; a string is a label for LOOP's ``end``."""
    spec = {f.name: f for f in isa.OPS[op].fields}
    if name in ("wait", "signal") and f"{name}_ld" in spec:
        return text_fields.parse_tokens(name, value)
    if name in _FLOAT_SUGAR and op is _FLOAT_SUGAR[name][0]:
        return {_FLOAT_SUGAR[name][1]: text_fields.parse_float(value)}
    if name not in spec:
        raise KeyError(name)
    if op is Op.PULSE_ARRAY and name == "swap" and value.startswith("@"):
        return {"swap": 1, "swap_first": _when("first", value[1:])}
    if name == "acc_mode" and value.startswith("first("):
        return {"acc_mode": int(isa.AccMode.FIRST), "acc_first": _when("first", value)}
    if op is Op.LOOP and name == "count" and _PARAM.fullmatch(value):
        return {"from_param": 1, "param": text_fields.parse_value("param", value)}
    if op is Op.ADDR and name == "base" and (match := re.match(rf"({_PARAM.pattern})(?:\+(.+))?\Z", value)):
        base = text_fields.parse_int(match[2]) if match[2] else 0
        return {"base": base, "add_param": 1, "param": text_fields.parse_value("param", match[1])}
    if op is Op.LOOP and name == "end" and _NAME.match(value):
        return value
    return {name: text_fields.parse_value(name, value)}


def _when(word: str, text: str) -> int:
    match = re.fullmatch(rf"{word}\(([^()]*)\)", text)
    if match is None:
        raise ValueError(f"must be {word}(levels), not {text!r}")
    return text_fields.parse_levels(match[1])


def _open_loop(state: _State, statement: _Statement) -> None:
    if "end" in statement.fields:
        reason = "LOOP end is given by } here"
        raise AsmError(state.file, statement.line, statement.places["end"], reason)
    outer = state.open_loops[-1].level if state.open_loops else -1
    level = statement.fields.setdefault("level", outer + 1)
    if level <= outer:
        reason = f"LOOP level must be above {outer}, the level of the loop around it, not {level}"
        raise AsmError(state.file, statement.line, statement.places.get("level", statement.column), reason)
    state.open_loops.append(_Open(statement, level))


def _word(state: _State, statement: _Statement) -> int:
    if statement.label_ends is not None:
        if statement.label_ends not in state.labels:
            known = ", ".join(state.labels) or "none"
            reason = f"LOOP end names the label {statement.label_ends!r}, which is not defined; labels: {known}"
            raise AsmError(state.file, statement.line, statement.places["end"], reason)
        statement.fields["end"] = state.labels[statement.label_ends]
    assert state.config is not None
    try:
        word = isa.encode(statement.op, state.config, statement.fields)
        check_word(word, state.config)  # what lies between fields: encode looks at one at a time
        return word
    except ValueError as error:
        column = statement.column
        for name, place in statement.places.items():
            if str(error).startswith(f"{statement.op.name} {name} "):
                column = place
        raise AsmError(state.file, statement.line, column, str(error)) from None
