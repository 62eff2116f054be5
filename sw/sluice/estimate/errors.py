"""What cannot be estimated."""

from sluice.errors import SluiceError

__all__ = ["EstimateError"]


class EstimateError(SluiceError):
    """A program that would not end, or is in error."""
