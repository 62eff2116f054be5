"""Run seeds, and report one that fails so that it can be run again: seed, command, program and log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from sluice.asm import assemble, disassemble
from sluice.runtime import RunReport
from sluice_hw.config import ChipConfig
from verif.harness import waves_wanted

from .arena import Arena, Window
from .compare import Bench, Mismatch
from .generate import Draft
from .legal import Case, judge, make_case
from .lower import Lowered
from .shrink import shrink

__all__ = ["command", "explain", "from_text", "run_seeds", "text_of"]

_AREAS = ("raw", "clean", "scratch", "dump")
_FACTS = "case: "
#: Failing seeds of a run that are made smaller.
_MADE_SMALL = 2
_RUN = ".venv/bin/python -m verif.random_programs"  # from the project's folder


def command(case: Case, *more: str) -> str:
    """What replays a case."""
    parts = [_RUN, f"--config {case.config.name}", f"--seed {case.draft.seed}", *more]
    return " ".join(parts)


def text_of(case: Case, head: Iterable[str] = ()) -> str:
    """Assembly of a case, with all that it needs beside its words in comments; :func:`from_text` reads it back."""
    draft, arena = case.draft, case.draft.arena
    areas = {name: (getattr(arena, name).start, getattr(arena, name).size) for name in _AREAS}
    facts = {"seed": draft.seed, "entry": draft.entry, "params": draft.params, **areas}
    lines = [*head, f"HBM_LO {arena.hbm.start}, HBM_HI {arena.hbm.end}", _FACTS + json.dumps(facts)]
    return "".join(f"# {line}\n" for line in lines) + disassemble(case.lowered.program, case.config)


def from_text(text: str, config: ChipConfig) -> Case:
    """The case of a file that :func:`text_of` wrote.

    Raises
    ------
    ValueError
        When the comment with the facts is missing, or golden refuses the program.
    """
    line = next((line for line in text.splitlines() if line.startswith("# " + _FACTS)), None)
    if line is None:
        raise ValueError(f"no line '# {_FACTS}...' in the program")
    facts = json.loads(line[2 + len(_FACTS) :])
    areas = {name: Window(*facts[name]) for name in _AREAS}
    arena = Arena(data=(), params=Window(0, 0), acc=(), **areas)
    program = assemble(text, config, check=False)
    made = Draft(config, facts["seed"], arena, [], facts["params"], facts["entry"], 0)
    case = judge(made, Lowered(program, [None] * len(program)))
    if case is None:
        raise ValueError("golden refuses the program")
    return case


def explain(
    bench: Bench, case: Case, error: Mismatch, folder: Path, *, tries: int = 400,
    say: Callable[[str], None] = print, before: int | None = None,
) -> str:  # fmt: skip
    """Shrink a failing case (with 0 ``tries``: do not), write program and log to ``folder``, say how it is replayed."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{case.config.name}-{case.draft.seed}"
    lines = [f"config {case.config.name} seed {case.draft.seed}: {error}", f"replay: {command(case, '--shrink')}"]
    (folder / f"{name}.s").write_text(text_of(case, [str(error).splitlines()[0], command(case)]))
    errors: dict[int, str] = {}

    def fails(tried: Case) -> bool:
        try:
            bench.run(tried)
        except Mismatch as failure:
            errors[id(tried)] = str(failure)
            return True
        return False

    if not tries:
        pass
    elif fails(case):
        small = shrink(case, fails, tries=tries, say=say)
        why = errors[id(small)]
        head = [why.splitlines()[0], f"made smaller by {command(case, '--shrink')}"]
        (folder / f"{name}.small.s").write_text(text_of(small, head))
        lines += [f"made smaller: {len(small.lowered.program)} words, {small.result.counters.ops} ops: {why}",
                  f"program: {_RUN} --program {folder / f'{name}.small.s'}"]  # fmt: skip
    else:
        lines.append("it does not fail again on the same chip: what ran before it matters")
        if before is not None:
            lines.append(f"replay both: {command(case).replace('--seed ', f'--seed {before} ')}")
    text = "\n".join(lines)
    (folder / f"{name}.log").write_text(text + "\n")
    return text


def run_seeds(
    bench: Bench, seeds: Iterable[int], folder: Path, *, tries: int = 400, say: Callable[[str], None] = print,
    each: Callable[[Case, RunReport], None] = lambda case, report: None,
) -> list[str]:  # fmt: skip
    """Run the cases of seeds; returns a text for each that failed. The first two are made smaller, so that a chip on
    which all fail does not hold up the tests; on a chip that traces none is."""
    out: list[str] = []
    before: int | None = None
    for seed in seeds:
        case = make_case(bench.config, seed)
        try:
            each(case, bench.run(case))
        except Mismatch as error:
            smaller = tries if len(out) < _MADE_SMALL and not waves_wanted() else 0
            out.append(explain(bench, case, error, folder, tries=smaller, say=say, before=before))
            say(out[-1])
        before = seed
    return out
