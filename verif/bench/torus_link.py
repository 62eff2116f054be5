"""Goodput of a link: flits delivered per cycle, by bit error rate and latency of the cable.

Each latency has its own link, with the window and pool that :class:`LinkConfig` chooses for it, and traffic both ways
as fast as credits allow. ``bound`` is what selective repeat cannot exceed: every transmission fails with the
probability that a word of the wire has a wrong bit. ``go_back_n`` is the bound of a link that sends everything again
from the lost flit on, beside it for comparison. ``payload`` is the share of the wire's bits that are the flit's.
"""

from __future__ import annotations

from typing import Any

from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.frame import wire_bits
from verif.models.link import Channel, Pair, Router

__all__ = ["ERROR_RATES", "LATENCIES", "goodput_rows"]

ERROR_RATES = (0.0, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
LATENCIES = (1, 10, 100, 500)
#: Flits of 128 bits, four channels.
TORUS = TorusConfig(data_bits=128, orders=1)


def goodput_rows(*, cycles: int = 100_000, seed: int = 1) -> list[dict[str, Any]]:
    """Measure every pair of rate and latency over so many cycles, or 400 round trips if that is more.

    The first loss of a run makes up to a round trip of flits wait at the receiver, once; so much is missing at the end
    of the time (at most 1 in 400), which is not a rate.

    Rows have ``bit_error_rate``, ``link_latency``, ``goodput`` (flits per cycle and direction, the mean of both),
    ``bound``, ``go_back_n``, ``retries`` (of all transmissions), ``window``, ``pool`` (flits), ``payload``, and
    ``mismatches``: flits that were not the next of their channel.
    """
    rows = []
    for latency in LATENCIES:
        for rate in ERROR_RATES:
            with Pair(seed=seed, torus=TORUS, latency=latency) as pair:
                config = pair.config
                pair.channels(Channel(latency=latency, bit_errors=rate))
                pair.routers(Router())
                # The handshake waits until the window is cleared.
                pair.run(config.window + max(5000, 2 * config.round_trip))
                before = [pair.end(i) for i in (0, 1)]
                time = max(cycles, 400 * config.round_trip)
                pair.run(time)
                after = [pair.end(i) for i in (0, 1)]
                delivered = sum(b.received - a.received for a, b in zip(before, after, strict=True))
                retries = sum(b.counters["retries"] - a.counters["retries"] for a, b in zip(before, after, strict=True))
                lost = 1 - (1 - rate) ** wire_bits(config)
                rows.append({
                    "bit_error_rate": rate, "link_latency": latency, "goodput": delivered / time / 2,
                    "bound": 1 - lost, "go_back_n": (1 - lost) / (1 + lost * (config.round_trip - 1)),
                    "retries": retries / max(1, retries + delivered), "window": config.window, "pool": config.pool,
                    "payload": config.flit_bits / wire_bits(config), "mismatches": sum(e.wrong for e in after),
                })  # fmt: skip
    return rows
