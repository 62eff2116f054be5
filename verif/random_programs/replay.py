"""Run seeds, and report one that fails so that it can be run again: seed, command, program and log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from sluice.asm import disassemble

from .compare import Bench, Mismatch
from .legal import Case, make_case
from .shrink import shrink

__all__ = ["command", "explain", "run_seeds"]


def command(case: Case, *more: str) -> str:
    """What replays a case."""
    parts = ["python -m verif.random_programs", f"--config {case.config.name}", f"--seed {case.draft.seed}", *more]
    return " ".join(parts)


def text_of(case: Case, head: Iterable[str] = ()) -> str:
    """Assembly of a case, with all that it needs beside its words in comments."""
    draft = case.draft
    lines = [
        *head, command(case),
        f"entry {draft.entry}, parameters {' '.join(f'p{i}={v:#x}' for i, v in enumerate(draft.params))}",
        f"HBM_LO {draft.arena.hbm.start}, HBM_HI {draft.arena.hbm.end}, contents from the seed",
    ]  # fmt: skip
    return "".join(f"# {line}\n" for line in lines) + disassemble(case.lowered.program, case.config)


def explain(
    bench: Bench, case: Case, error: Mismatch, folder: Path, *, tries: int = 400,
    say: Callable[[str], None] = print, before: int | None = None,
) -> str:  # fmt: skip
    """Shrink a failing case, write program and log to ``folder``, and say how it is replayed."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{case.config.name}-{case.draft.seed}"
    lines = [f"config {case.config.name} seed {case.draft.seed}: {error}", f"replay: {command(case, '--shrink')}"]
    (folder / f"{name}.s").write_text(text_of(case, [str(error).splitlines()[0]]))
    errors: dict[int, str] = {}

    def fails(tried: Case) -> bool:
        try:
            bench.run(tried)
        except Mismatch as failure:
            errors[id(tried)] = str(failure)
            return True
        return False

    if fails(case):
        small = shrink(case, fails, tries=tries, say=say)
        why = errors[id(small)]
        (folder / f"{name}.small.s").write_text(text_of(small, [why.splitlines()[0], "made smaller by --shrink"]))
        lines += [f"made smaller: {len(small.lowered.program)} words, {small.result.counters.ops} ops: {why}",
                  f"program: {folder / f'{name}.small.s'}"]  # fmt: skip
    else:
        lines.append("it does not fail again on the same chip: what ran before it matters")
        if before is not None:
            lines.append(f"replay both: {command(case).replace('--seed ', f'--seed {before} ')}")
    text = "\n".join(lines)
    (folder / f"{name}.log").write_text(text + "\n")
    return text


def run_seeds(
    bench: Bench, seeds: Iterable[int], folder: Path, *, tries: int = 400, say: Callable[[str], None] = print,
    each: Callable[[Case], None] = lambda case: None,
) -> list[str]:  # fmt: skip
    """Run the cases of seeds; returns a text for each that failed."""
    out: list[str] = []
    before: int | None = None
    for seed in seeds:
        case = make_case(bench.config, seed)
        try:
            bench.run(case)
            each(case)
        except Mismatch as error:
            out.append(explain(bench, case, error, folder, tries=tries, say=say, before=before))
            say(out[-1])
        before = seed
    return out
