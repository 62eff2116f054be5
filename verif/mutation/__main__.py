"""``python -m verif.mutation [--only TEXT]``: run the catalogue; exit status 1 when a mutation survives."""

from __future__ import annotations

import argparse
import sys

from .catalogue import MUTATIONS
from .run import Verdict, try_mutation


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verif.mutation", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="mutations with TEXT in their name or file")
    options = parser.parse_args()
    chosen = [m for m in MUTATIONS if options.only in m.name or options.only in m.file]
    if not chosen:
        parser.error(f"no mutation has {options.only!r} in its name or file")
    survivors = 0
    for mutation in chosen:
        outcome = try_mutation(mutation)
        survivors += outcome.verdict is not Verdict.CAUGHT
        print(f"{outcome.verdict.value:9} {outcome.seconds:6.1f} s  {mutation.file}: {mutation.name}", flush=True)
        if outcome.verdict is not Verdict.CAUGHT:
            print(f"          {mutation.catcher}, {outcome.log}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
