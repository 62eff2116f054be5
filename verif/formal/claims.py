"""Checks made of claims about a unit, copies of hardware with a name or a line changed, and sight of inner signals.

A proof is a :class:`Check`: an Elaboratable with free inputs, assumptions about them, claims, and the invariants that
carry the induction. The same check around a copy of the hardware with a bug planted (:func:`altered`) must break one of
its claims, which :func:`prove_bites` asks the solver for.
"""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from amaranth.hdl import Assert, Assume, ClockDomain, Elaboratable, Fragment, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from verif.formal.sby import ProofFailed, prove

__all__ = ["AnyQueue", "Check", "altered", "open_up", "planted", "prove_bites", "prove_checks"]


class AnyQueue(Elaboratable):
    """In place of a FIFO whose contents do not matter: whether there is an entry, what it is, and whether there is room
    is any, but holds until an entry is taken or put in.

    Whoever instances it finds it in ``made`` and must drive ``any_there``, ``any_data`` and ``any_room``.
    """

    made: ClassVar[list[AnyQueue]] = []

    def __init__(self, *, width: int, depth: int) -> None:
        self.w_data, self.w_rdy, self.w_en = Signal(width), Signal(), Signal()
        self.r_data, self.r_rdy, self.r_en = Signal(width), Signal(), Signal()
        self.level = Signal(range(depth + 1))
        self.any_there, self.any_data, self.any_room = Signal(), Signal(width), Signal()
        self.made.append(self)

    def elaborate(self, platform) -> Module:
        m = Module()
        holds, data, free = Signal(), Signal.like(self.r_data), Signal()
        m.d.comb += [
            self.r_rdy.eq(holds | self.any_there), self.r_data.eq(Mux(holds, data, self.any_data)),
            self.w_rdy.eq(free | self.any_room),
        ]
        m.d.sync += [holds.eq(self.r_rdy & ~self.r_en), data.eq(self.r_data), free.eq(self.w_rdy & ~self.w_en)]
        return m


def altered(cls: type, *changes: tuple[str, str], **names: object) -> type:
    """A copy of a class, from a copy of its module with pieces of text replaced and names bound to something else.

    Raises
    ------
    ValueError
        If a piece does not stand exactly once in the module, or a name does not exist there.
    """
    module = sys.modules[cls.__module__]
    text = inspect.getsource(module)
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} must stand once in {module.__name__}, not {text.count(old)} times")
        text = text.replace(old, new)
    copy = types.ModuleType(module.__name__)
    copy.__dict__.update(__package__=module.__package__, __file__=module.__file__)
    exec(compile(text, str(module.__file__), "exec"), copy.__dict__)  # noqa: S102
    for name, value in names.items():
        if name not in copy.__dict__:
            raise ValueError(f"{module.__name__} has no {name!r}")
        copy.__dict__[name] = value
    return copy.__dict__[cls.__name__]


def open_up(component: Elaboratable) -> tuple[Fragment, dict[str, Any]]:
    """A component as a fragment to be used in its place, and what is inside by name: driven signals and the local
    variables of its methods. ``"parts"`` has the same of the components in it, in the order of their elaboration."""
    local: dict[int, dict[str, Any]] = {}
    kept = []  # ids stay unique

    def watch(frame: types.FrameType, event: str, _) -> None:
        if event == "return" and isinstance(owner := frame.f_locals.get("self"), Elaboratable):
            # Amaranth's components have a __del__, which those of an earlier call may run now.
            if isinstance(owner, (Module, Check)) or frame.f_code.co_name in ("__init__", "__del__"):
                return
            kept.append(owner)
            local.setdefault(id(owner), {}).update(frame.f_locals)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        fragment = Fragment.get(component.elaborate(None), None)
    finally:
        sys.setprofile(before)
    signals = {signal.name: signal for statements in fragment.statements.values()
               for signal in statements._lhs_signals()}
    own = local.pop(id(component), {})
    return fragment, {**signals, **own, "parts": list(local.values())}


class Check(Elaboratable):
    """Free inputs, claims and invariants. A subclass describes them in ``describe(m)``.

    ``mutant`` leaves the invariants out: they would break first and prove nothing about the claims.
    """

    def __init__(self) -> None:
        self.ports: list[Value] = []
        self.prefix = ""
        self.mutant = False
        self.given = False  # claims and invariants are proven elsewhere, and assumed

    def free(self, shape, name: str) -> Signal:
        """An input that takes any value in any cycle."""
        signal = Signal(shape, name=f"{self.prefix}{name}")
        self.ports.append(Value.cast(signal))
        return signal

    def free_inputs(self, m: Module, component: wiring.Component, *, but: tuple[str, ...] = ()) -> None:
        """All inputs of a component are free, except those whose flattened name begins with one of ``but``."""
        for path, member, value in component.signature.flatten(component):
            name = "__".join(map(str, path))
            if member.flow is In and not name.startswith(but or ("\0",)):
                m.d.comb += Value.cast(value).eq(self.free(Value.cast(value).shape(), name))

    def free_queues(self, m: Module) -> None:
        """All queues made since the last call take any course."""
        for i, queue in enumerate(AnyQueue.made):
            for name in ("any_there", "any_data", "any_room"):
                signal = getattr(queue, name)
                m.d.comb += signal.eq(self.free(len(signal), f"queue{i}_{name}"))
        AnyQueue.made.clear()

    def held_stream(self, m: Module, stream, name: str, *, until=0) -> None:
        """A stream into a unit is free, but valid and payload are held until the transfer, or a cycle of ``until``."""
        payload = Value.cast(stream.payload)
        valid, data = self.free(1, f"{name}_valid"), self.free(len(payload), f"{name}_payload")
        waits, before = Signal(name=f"{name}_waits"), Signal(len(payload), name=f"{name}_before")
        m.d.comb += [stream.valid.eq(valid), payload.eq(data), Assume(~waits | (valid & (payload == before)))]
        m.d.sync += [waits.eq(valid & ~stream.ready & ~Value.cast(until)), before.eq(payload)]

    def claim_held(self, m: Module, stream, name: str, *, unless=0) -> None:
        """A stream out of a unit holds valid and payload until the transfer, but where ``unless`` says so."""
        payload = Value.cast(stream.payload)
        waits, before = Signal(name=f"{name}_waits"), Signal(len(payload), name=f"{name}_before")
        m.d.sync += [waits.eq(stream.valid & ~stream.ready), before.eq(payload)]
        with m.If(waits & ~Value.cast(unless)):
            self.claim(m, stream.valid & (payload == before))

    def constant(self, m: Module, shape, name: str) -> Signal:
        """Any value, the same in all cycles."""
        now, before, later = self.free(shape, name), Signal(shape, name=f"{name}_before"), Signal(name=f"{name}_later")
        m.d.sync += [Value.cast(before).eq(now), later.eq(1)]
        m.d.comb += Assume(~later | (Value.cast(now) == Value.cast(before)))
        return now

    def delayed(self, m: Module, value, cycles: int, name: str) -> Signal:
        """``value`` of so many cycles ago."""
        for k in range(cycles):
            later = Signal(Value.cast(value).shape(), name=f"{name}_{k + 1}")
            m.d.sync += later.eq(value)
            value = later
        return value

    def claim(self, m: Module, condition) -> None:
        """What is to be proven; within m.If, only there."""
        m.d.comb += Assume(condition) if self.given else Assert(condition, src_loc_at=1)

    def invariant(self, m: Module, condition) -> None:
        """What holds as well and carries the induction."""
        if not self.mutant:
            m.d.comb += Assume(condition) if self.given else Assert(condition, src_loc_at=1)

    def describe(self, m: Module) -> None:
        raise NotImplementedError

    def elaborate(self, platform) -> Module:
        m = Module()
        self.describe(m)
        return m


class _All(Elaboratable):
    """Several checks side by side, without a reset: registers begin with their initial values."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self.checks = checks
        self.domain = ClockDomain("sync", reset_less=True)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.domains.sync = self.domain
        for name, fragment in self.fragments.items():
            m.submodules[name] = fragment
        return m

    def prove(self, name: str, mode: str, depth: int, timeout_s: int) -> None:
        # Free inputs come to life while a check is elaborated. Ports of one name would be one.
        self.fragments = {}
        for key, check in self.checks.items():
            check.prefix = f"{key}_"
            self.fragments[key] = Fragment.get(check, None)
        ports = [self.domain.clk] + [port for check in self.checks.values() for port in check.ports]
        prove(self, name=name, mode=mode, depth=depth, ports=ports, timeout_s=timeout_s)


def prove_checks(
    name: str, checks: Mapping[str, Check], *, depth: int, mode: str = "prove", timeout_s: int = 900,
) -> None:
    """Prove the claims of all checks, see :func:`~verif.formal.sby.prove`; one run costs less than several."""
    _All(checks).prove(name, mode, depth, timeout_s)


def prove_bites(name: str, check: Check, *, depth: int) -> None:
    """Find how a claim is broken within ``depth`` cycles by hardware with a bug.

    Raises
    ------
    AssertionError
        If none is.
    """
    check.mutant = True
    try:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")  # other bugs may be tried at the same time
        _All({"mutant": check}).prove(f"{name}{worker}", "bmc", depth, 900)
    except ProofFailed as failure:
        if "failed assertion" not in str(failure):
            raise
    else:
        raise AssertionError(f"{name}: no claim is broken by a bug")


def planted(bugs: Mapping[str, Any]) -> list:
    """Parameters of a test, one for each bug: the first in `make test`, the others in `make soak`."""
    return [pytest.param(bug, id=what.replace(" ", "-"), marks=pytest.mark.soak if i else ())
            for i, (what, bug) in enumerate(bugs.items())]
