"""Random legal programs on chip and golden, and illegal ones; see docs/verification.md.

A *seed* and a configuration make a case: microcode, parameter registers, an HBM image and bounds. A program is made as
a *tree* of ops and loops (``tree``), whose operands are places in an arena of all memories (``arena``, ``operands``,
``generate``); ``tokens`` orders what touches the same place; ``lower`` makes words of it; ``legal`` has the golden
machine and the race finder judge it. ``compare`` runs it on a chip, ``shrink`` makes a failing one small, and
``python -m verif.random_programs`` replays a seed.
"""
