"""Cost model: the cycles of a program, without a simulator.

:func:`estimate` takes a program apart into its ops and works out when each is issued, starts and ends, from the
latencies of the hardware (:mod:`~sluice.estimate.timing`). Where nothing meets, an op is a formula; only while two
units share banks, or loads and stores the memory, do their accesses go one by one (:mod:`~sluice.estimate.ports`).
"""

from .errors import EstimateError
from .result import Estimate
from .run import estimate
from .timing import Timing

__all__ = ["Estimate", "EstimateError", "Timing", "estimate"]
