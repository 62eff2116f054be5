"""The torus: how much traffic 8 x 8 routers take, measured on their RTL, links of latency 1.

*Saturation* is the highest offered load of which 99 % arrives in the time it was offered in: sources with queues
without end, 10,000 cycles of warm-up, then ``LONG`` cycles. Loads are flits per node and cycle; an even 8 x 8 torus
with shortest ways cannot take more than 0.984 of uniform traffic. Packets are half requests, half responses, half XY,
half YX.

``run`` gives the document that ``sim_build/bench/torus.json`` holds, and draws ``torus.svg`` beside it.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from sluice.build import sim_build_dir
from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.routing import RoutePlan
from verif.bench.plot import curves_svg
from verif.bench.torus_area import router_area
from verif.bench.torus_link import goodput_rows
from verif.models.torus import Torus, build

__all__ = ["ROUTERS", "run"]

#: The router that the figures are of, and a small one: XY only, 4 channels, 4 flits each.
ROUTERS = {
    "main": TorusConfig(rows=8, cols=8, data_bits=56, orders=2, vc_depth=8),
    "small": TorusConfig(rows=8, cols=8, data_bits=56, orders=1, vc_depth=4),
}
LONG, SHORT = 100_000, 10_000

#: Offered loads of the curves.
LOADS = {
    "uniform": (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0),
    "tornado": (0.1, 0.2, 0.3, 0.33, 0.4, 0.6),
    "transpose": (0.1, 0.2, 0.3, 0.4, 0.5, 0.7),
    "hotspot": (0.05, 0.1, 0.2, 0.3, 0.4, 0.6),
}


class Bench:
    """One router, compiled."""

    def __init__(self, name: str) -> None:
        self.config = ROUTERS[name]
        start = time.perf_counter()
        self.library = build(self.config, opt="-O2")
        self.build_s = time.perf_counter() - start
        self.cycles, self.seconds = 0, 0.0

    def measure(self, load: float, cycles: int, *, warm: int = 0, **traffic: Any) -> dict[str, Any]:
        """Offered and accepted load and mean latency of delivered packets."""
        with Torus(self.config, self.library) as torus:
            torus.traffic(load, **traffic)
            torus.run(warm or cycles // 2)
            torus.clear()
            start = time.process_time()
            counts = torus.run(cycles)
            self.seconds += time.process_time() - start
            self.cycles += cycles
            if counts.wrong or counts.stuck:
                raise AssertionError(f"load {load}, {traffic}: {torus.first_wrong or 'the network stands still'}")
        area = cycles * self.config.nodes
        return {
            "load": load, "offered": counts.created / area, "accepted": counts.delivered / area,
            "latency": counts.latency_sum / max(1, counts.packets_delivered), "cycles": cycles,
        }  # fmt: skip

    def saturation(self, *, low: float, high: float, cycles: int = LONG, **traffic: Any) -> dict[str, Any]:
        """The highest load, in steps of 0.01, of which 99 % is accepted: found in short runs, confirmed in a long."""
        first, last = round(low * 100), round(high * 100)
        while first < last:
            middle = (first + last + 1) // 2
            row = self.measure(middle / 100, SHORT, **traffic)
            if row["accepted"] >= 0.99 * row["offered"]:
                first = middle
            else:
                last = middle - 1
        while True:
            row = self.measure(first / 100, cycles, warm=SHORT, **traffic)
            _say(f"{traffic}: load {first / 100} accepted {row['accepted']:.4f} in {cycles} cycles")
            if row["accepted"] >= 0.99 * row["offered"] or first <= 1:
                return row
            first -= 1


def _say(text: str) -> None:
    print(f"  {text}", flush=True)


def hop_cycles(bench: Bench) -> float:
    """Cycles that a hop adds at no load, from a packet over 1 hop and one over 8."""
    plan = RoutePlan(bench.config)
    points = []
    for dst in (1, 36):
        with Torus(bench.config, bench.library) as torus:
            torus.run(50)
            torus.send(0, dst)
            counts = torus.drain()
        points.append((len(plan.path(0, dst, plan.choice(0, dst))), counts.latency_sum))
    (near, first), (far, last) = points
    return (last - first) / (far - near)


def last_link(plan: RoutePlan, src: int) -> int:
    """The link of node 0 that packets from ``src`` come by."""
    return int(plan.path(src, 0, plan.choice(src, 0))[-1].port.opposite)


def fairness(bench: Bench, *, load: float, cycles: int) -> dict[str, Any]:
    """All nodes send to node 0, XY: the least share, of what leaves each of its four links, that one source gets."""
    with Torus(bench.config, bench.library) as torus:
        torus.traffic(load, pattern="all-to-one", hot=0, orders=1)
        torus.run(cycles // 2)
        torus.clear()
        torus.run(cycles)
        arrived = torus.arrived()[0].astype(float)
    merges = []
    plan = RoutePlan(bench.config)
    for port in range(4):
        # A source belongs to the link that its way ends with, also if it gets nothing through.
        sources = [src for src in range(1, bench.config.nodes) if last_link(plan, src) == port]
        flows = arrived[port][sources]
        share = float(flows.min() / flows.mean())
        accepted = float(flows.sum()) / cycles
        merges.append({"link": port, "sources": len(sources), "accepted": accepted, "min_share": share})
    return {"load": load, "min_share": min(merge["min_share"] for merge in merges), "merges": merges}


def run() -> dict[str, Any]:
    """Measure everything; ``rows`` of the document are what is printed as a table."""
    main = Bench("main")
    _say(f"router built in {main.build_s:.0f} s")
    document: dict[str, Any] = {}
    one = main.saturation(low=0.88, high=0.97)
    full = main.measure(1.0, LONG, warm=SHORT)
    eight = main.saturation(low=0.76, high=0.86, length=8)
    full8 = main.measure(1.0, SHORT, warm=SHORT, length=8)
    document["saturation_uniform_1flit"] = one["load"]
    document["saturation_uniform_8flit"] = eight["load"]
    document["accepted_at_full_load_ratio"] = full["accepted"] / max(one["accepted"], full["accepted"])
    document["accepted_at_full_load_ratio_8flit"] = full8["accepted"] / max(eight["accepted"], full8["accepted"])
    document["zero_load_cycles_per_hop"] = hop_cycles(main)
    fair = fairness(main, load=0.2, cycles=30_000)
    document["fairness_min_share"] = fair["min_share"]
    document["fairness"] = fair
    _say(f"fairness: {fair}")
    curves: dict[str, list[dict[str, Any]]] = {}
    for pattern, loads in LOADS.items():
        extra = {"hot_percent": 10} if pattern == "hotspot" else {}
        curves[pattern] = [main.measure(load, 5_000, pattern=pattern, **extra) for load in loads]
        _say(f"{pattern}: " + ", ".join(f"{row['load']}: {row['accepted']:.3f}" for row in curves[pattern]))
    document["curves"] = curves
    document["tornado_accepted_max"] = max(row["accepted"] for row in curves["tornado"])
    small = Bench("small")
    measured = {
        "main": (one, eight, full),
        "small": (
            small.saturation(low=0.74, high=0.90, cycles=2 * SHORT),
            small.saturation(low=0.46, high=0.70, cycles=2 * SHORT, length=8),
            small.measure(1.0, SHORT, warm=SHORT),
        ),
    }
    trade = []
    for name, (top, top8, all_of_it) in measured.items():
        config = ROUTERS[name]
        trade.append({
            "router": name, "channels": config.vcs, "flits_per_channel": config.vc_depth,
            "buffer_flits": 4 * config.vcs * config.vc_depth, "saturation_1flit": top["load"],
            "saturation_8flit": top8["load"], "accepted_at_full_load": all_of_it["accepted"],
            **(router_area(dataclasses.replace(config, data_bits=128)) or {}),
        })  # fmt: skip
    document["trade"] = trade
    document["one_class"] = main.measure(0.8, SHORT, messages=1, orders=1)
    document["sim_cycles_per_cpu_second"] = main.cycles / main.seconds
    document["router_build_s"] = main.build_s
    document["goodput"] = goodput_rows()
    keys = [key for key, value in document.items() if isinstance(value, int | float)]
    document["rows"] = [{"figure": key, "value": float(document[key])} for key in keys] + [
        {"figure": f"{row['router']} {key}", "value": float(row[key])}
        for row in trade for key in row if key != "router"
    ]
    path = sim_build_dir() / "bench" / "torus.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(curves_svg(curves))
    _say(f"curves -> {path}")
    return document
