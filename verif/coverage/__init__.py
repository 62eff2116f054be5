"""What the tests reach: Verilator's lines, branches and toggles, functional bins, and the holes with their reasons.

``make coverage`` runs the tests with ``SLUICE_COVERAGE=1`` and then ``python -m verif.coverage``, which writes
``sim_build/coverage``: ``index.html`` with a page per module, ``uncovered.txt``, ``functional.txt``, ``summary.json``.
"""
