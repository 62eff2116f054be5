"""When a refresh is due: the account of what has been refreshed, which a reset does not touch."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .dram_config import DramConfig

__all__ = ["RefreshAccount"]


class RefreshAccount(wiring.Component):
    """Counts refreshes that are due: of sets of banks, or of all banks.

    Every set is refreshed once in a round (a device counts its rows in rounds of all banks). A refresh may be late by
    ``postpone`` intervals; from ``urgent`` on, three before that, slices have to wait for it.

    Parameters
    ----------
    config : DramConfig

    Members
    -------
    taken : In(1)
        A refresh starts, of the set ``set``.
    waiting : In(sets)
        Sets that the next slices need, and those that are under refresh.
    due : Out(1)
        A refresh is due; with ``all-bank``, a group of them.
    one_due : Out(1)
        At least one is, of a group.
    urgent : Out(1)
    free : Out(1)
        There is a set, ``candidate``, that is not yet refreshed in this round and not in ``waiting``.
    owed, owed_set : Out
        A set that is not yet refreshed in this round, in ``waiting`` or not.
    """

    def __init__(self, config: DramConfig) -> None:
        self._config = config
        sets = config.sets
        super().__init__({
            "taken": In(1), "set": In(range(sets)), "waiting": In(sets),
            "due": Out(1), "one_due": Out(1), "urgent": Out(1),
            "free": Out(1), "candidate": Out(range(sets)), "owed_set": Out(range(sets)),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        config, timing = self._config, self._config.timing
        per_bank = config.refresh == "per-bank"
        sets = config.sets
        share = sets if per_bank else 1
        interval = timing.refi // share
        clock = Signal(range(interval), reset_less=True)
        count = Signal(range(16 * share), reset_less=True)
        tick = clock == interval - 1
        m.d.sync += clock.eq(clock + 1)
        with m.If(tick):
            m.d.sync += clock.eq(0)
        with m.If(tick & ~self.taken & ~count.all()):
            m.d.sync += count.eq(count + 1)
        with m.Elif(~tick & self.taken & (count != 0)):
            m.d.sync += count.eq(count - 1)
        m.d.comb += [
            self.one_due.eq(count != 0),
            self.due.eq(count >= (1 if per_bank else config.refresh_group)),
            self.urgent.eq(count >= (timing.postpone - 3) * share),
        ]

        done = Signal(sets, reset_less=True)
        after = Signal(sets)
        m.d.comb += after.eq(done | (self.taken << self.set))
        m.d.sync += done.eq(after)
        with m.If(after.all()):
            m.d.sync += done.eq(0)
        # In turn, from the one behind the last.
        last = Signal(range(sets), reset_less=True)
        with m.If(self.taken):
            m.d.sync += last.eq(self.set)
        with m.Switch(last):
            for i in range(sets):
                with m.Case(i):
                    for j in reversed([(i + 1 + n) % sets for n in range(sets)]):
                        with m.If(~done[j]):
                            m.d.comb += self.owed_set.eq(j)
                        with m.If(~done[j] & ~self.waiting[j]):
                            m.d.comb += [self.free.eq(1), self.candidate.eq(j)]
        return m
