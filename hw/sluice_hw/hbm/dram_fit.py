"""Which chips DRAM channels fit behind: of beats, slices and memory; nothing here needs a configuration."""

from __future__ import annotations

from functools import cache

from .schedule import Schedule
from .timing import TIMINGS, DramTiming

__all__ = ["CHANNEL_BEAT", "MOST_UNITS", "check_fit", "schedule_of", "timing_of"]

#: Bytes that a channel moves in a memory clock.
CHANNEL_BEAT = 32
#: Most units of a slice.
MOST_UNITS = 16


def timing_of(memory: str, gigabits: int) -> DramTiming:
    """Timings of a kind of DRAM, ``hbm2`` or ``hbm3``, with channels of so many gigabits."""
    return TIMINGS[f"{memory}-{gigabits}gb"]


@cache
def schedule_of(timing: DramTiming) -> Schedule:
    """The schedule of such channels."""
    return Schedule(timing)


def check_fit(timing: DramTiming, *, bytes_per_cycle: int, slice_bytes: int, hbm_bytes: int) -> None:
    """Refuse sizes that channels in step cannot have.

    Raises
    ------
    ValueError
        The message names the field, its value and what is allowed.
    """
    channels = bytes_per_cycle // CHANNEL_BEAT
    if bytes_per_cycle != channels * CHANNEL_BEAT or not channels or channels & (channels - 1):
        raise ValueError(
            f"hbm_bytes_per_cycle of a chip with DRAM must be {CHANNEL_BEAT} times a power of two, "
            f"not {bytes_per_cycle}"
        )
    least = channels * schedule_of(timing).unit * CHANNEL_BEAT
    if slice_bytes % least or slice_bytes & (slice_bytes - 1):
        raise ValueError(
            f"slice_bytes with {channels} channels of {timing.name} must be {least} times a power of two, "
            f"not {slice_bytes}"
        )
    if slice_bytes > MOST_UNITS * least:
        raise ValueError(
            f"slice_bytes must be at most {MOST_UNITS * least}, {MOST_UNITS} units of each channel, not {slice_bytes}"
        )
    if hbm_bytes > channels * timing.bytes:
        raise ValueError(
            f"hbm_bytes must be at most {channels * timing.bytes}, what {channels} channels of {timing.name} hold, "
            f"not {hbm_bytes}"
        )
