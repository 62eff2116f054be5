"""The DRAM command back end: turns granted units and refreshes into commands and data at their clocks."""

from __future__ import annotations

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Member, Out, Signature
from amaranth.utils import bits_for, ceil_log2

from .dram_config import DramConfig
from .schedule import Kind

__all__ = ["ColumnOp", "CommandEngine", "DramSignature", "RowOp", "connect_pins", "pin_members", "unit_layout"]


class RowOp(enum.Enum, shape=3):
    """Commands of the row bus. ACT holds it for two clocks."""

    NOP = 0
    ACT = 1
    PRE = 2
    #: Precharge all banks of the pseudo-channel.
    PREA = 3
    #: Refresh all banks.
    REF = 4
    #: Refresh one bank.
    REFSB = 5


class ColumnOp(enum.Enum, shape=2):
    """Commands of the column bus."""

    NOP = 0
    RD = 1
    WR = 2


def bank_bits(config: DramConfig) -> int:
    return 2 + ceil_log2(config.sets)


def row_layout(config: DramConfig) -> data.StructLayout:
    """A row command. A bank's number is its group's times the banks of a group, plus its own in the group: its set."""
    return data.StructLayout({"op": RowOp, "pc": 1, "bank": bank_bits(config), "row": ceil_log2(config.timing.rows)})


def column_layout(config: DramConfig) -> data.StructLayout:
    """A column command; ``column`` counts bursts of 32 bytes."""
    return data.StructLayout({
        "op": ColumnOp, "pc": 1, "bank": bank_bits(config), "column": ceil_log2(config.timing.row_bursts),
    })  # fmt: skip


class DramSignature(Signature):
    """The controller's view of its channels: commands, and what the pins carry in each clock, by pseudo-channel.

    Data of a WR stand on ``write_data`` WL clocks after it, and one more; those of a RD on ``read_data``, with
    ``read_valid``, RL (and the physical layer's) clocks after it, and one more. In a clock a pseudo-channel carries 16
    bytes of each channel, channel 0 first, and two bytes of check bits.
    """

    def __init__(self, config: DramConfig) -> None:
        self.config = config
        width, check = 128 * config.channels, 16 * config.channels
        super().__init__({
            "row": Out(row_layout(config)), "column": Out(column_layout(config)),
            "write_data": Out(data.ArrayLayout(width, 2)), "write_check": Out(data.ArrayLayout(check, 2)),
            "read_data": In(data.ArrayLayout(width, 2)), "read_check": In(data.ArrayLayout(check, 2)),
            "read_valid": In(2),
        })  # fmt: skip


def pin_members(config: DramConfig) -> dict[str, Member]:
    """The same as ports of a chip, a signal for each thing, ``dram_*``; no check bits without ``config.coded``."""
    members: dict[str, Member] = {}
    for bus, layout in (("row", row_layout(config)), ("column", column_layout(config))):
        members |= {f"dram_{bus}_{name}": Out(field.shape) for name, field in layout}
    for what, bits in (("data", 128), ("check", 16)) if config.coded else (("data", 128),):
        for pc in (0, 1):
            members |= {f"dram_{way}_{what}{pc}": flow(bits * config.channels)
                        for way, flow in (("write", Out), ("read", In))}  # fmt: skip
    return members | {"dram_read_valid": In(2)}


def connect_pins(m: Module, component: wiring.Component, config: DramConfig, dram) -> None:
    """Connect a controller's pins with the ports of :func:`pin_members` that ``component`` has."""
    for name, member in pin_members(config).items():
        way, *rest = name.removeprefix("dram_").split("_")
        if way in ("read", "write") and rest[0] != "valid":
            pin = getattr(dram, f"{way}_{rest[0][:-1]}")[int(rest[0][-1])]
        else:
            pin = dram.read_valid if way == "read" else getattr(getattr(dram, way), rest[0])
        port = getattr(component, name)
        m.d.comb += port.eq(pin) if member.flow is Out else pin.eq(port)


def unit_layout(config: DramConfig) -> data.StructLayout:
    """A unit that is granted; ``last`` of its slice."""
    return data.StructLayout({
        "write": 1, "set": max(1, ceil_log2(config.sets)), "row": ceil_log2(config.timing.rows),
        "part": max(1, ceil_log2(config.row_parts)), "last": 1,
    })  # fmt: skip


class CommandEngine(wiring.Component):
    """Plays the schedule's programs. Whoever grants keeps their distances; nothing is checked here.

    Parameters
    ----------
    config : DramConfig

    Members
    -------
    grant, unit : In
        A unit starts.
    refresh, refresh_set : In
        The refresh of a set starts. Lives through a reset: a refresh that has begun is completed.
    special : In(RowOp)
        PREA or REF of pseudo-channel 0 in this clock, of 1 in the next.
    row, column : Out
        As in :class:`DramSignature`, registers.
    fetch : Out(1)
        A beat is to be read from the write buffer, its data registered in the next clock.
    arriving : Out(1)
        Pseudo-channel 0 brings its part of a beat in this clock, 1 in the next.
    done, done_write : Out
        A slice is through, ``DramConfig.latency`` clocks after its first unit's grant.
    """

    def __init__(self, config: DramConfig) -> None:
        self._config = config
        super().__init__({
            "grant": In(1), "unit": In(unit_layout(config)), "refresh": In(1),
            "refresh_set": In(unit_layout(config)["set"].shape), "special": In(RowOp),
            "row": Out(row_layout(config)), "column": Out(column_layout(config)),
            "fetch": Out(1), "arriving": Out(1), "done": Out(1), "done_write": Out(1),
        })  # fmt: skip

    def elaborate(self, platform) -> Module:
        m = Module()
        config, schedule, timing = self._config, self._config.schedule, self._config.timing
        set_bits = ceil_log2(config.sets)
        row, column = Signal(row_layout(config)), Signal(column_layout(config))
        # Commands have registers that no reset touches: what a reset cuts off ends with a whole command.
        row_pins = Signal.like(row, name="row_pins", reset_less=True)
        column_pins = Signal.like(column, name="column_pins", reset_less=True)
        m.d.sync += [row_pins.eq(row), column_pins.eq(column)]
        m.d.comb += [self.row.eq(row_pins), self.column.eq(column_pins)]

        def bank_of(group, bank_set):
            return Cat(bank_set[:set_bits], Const(group, 2) if isinstance(group, int) else group)

        # Two units are under way at most: the one that moves data, and one before it or behind it.
        turn = Signal()
        # A unit's part in `latency`, from its grant.
        through = config.latency - (config.units - 1) * schedule.unit - 1
        start, start_unit = Signal(), Signal(unit_layout(config))
        for i in (0, 1):
            active = Signal(name=f"active{i}")
            clock = Signal(range(2 * schedule.unit), name=f"clock{i}", reset_less=True)
            unit = Signal(unit_layout(config), name=f"unit{i}", reset_less=True)
            with m.If(active):
                m.d.sync += clock.eq(clock + 1)
                with m.If(clock == max(through, schedule.rows[-1].at)):
                    m.d.sync += active.eq(0)
            with m.If(self.grant & (turn == i)):
                m.d.sync += [active.eq(1), clock.eq(0), unit.eq(self.unit)]
            with m.If(active), m.Switch(clock):
                for command in schedule.rows:
                    with m.Case(command.at):
                        m.d.comb += [
                            row.op.eq(RowOp.ACT if command.kind is Kind.ACT else RowOp.PRE), row.pc.eq(command.pc),
                            row.bank.eq(bank_of(command.bank, unit.set)), row.row.eq(unit.row),
                        ]  # fmt: skip
                with m.Default():
                    pass
            with m.If(active & (clock == schedule.column - 1)):
                m.d.comb += [start.eq(1), start_unit.eq(unit)]
            with m.If(active & unit.last & (clock == through)):
                m.d.comb += [self.done.eq(1), self.done_write.eq(unit.write)]
        with m.If(self.grant):
            m.d.sync += turn.eq(~turn)

        # Column commands: pseudo-channels and two bank groups take turns.
        moving, at = Signal(), Signal(range(schedule.unit), reset_less=True)
        unit = Signal(unit_layout(config), name="moving_unit", reset_less=True)
        last = at == schedule.unit - 1
        with m.If(start):
            m.d.sync += [moving.eq(1), at.eq(0), unit.eq(start_unit)]
        with m.Elif(moving):
            m.d.sync += [moving.eq(~last), at.eq(at + 1)]
        with m.If(moving):
            first = Mux(unit.part[0], config.schedule.bank_bursts, 0) if config.row_parts == 2 else 0
            m.d.comb += [
                column.op.eq(Mux(unit.write, ColumnOp.WR, ColumnOp.RD)), column.pc.eq(at[0]),
                column.bank.eq(bank_of(Cat(at[1], at[-1]), unit.set)), column.column.eq(first | at[2:-1]),
            ]  # fmt: skip
        m.d.comb += [
            self.arriving.eq(self._delayed(m, moving & ~unit.write, timing.rl + config.phy_clocks + 1, "arriving")),
            self.fetch.eq(self._delayed(m, moving & unit.write, timing.wl - 1, "fetch")),
        ]

        # A refresh of a set.
        refreshing = Signal(reset_less=True)
        refresh_clock = Signal(range(schedule.refresh[-1].at + 1), reset_less=True)
        refresh_set = Signal.like(self.refresh_set, reset_less=True)
        with m.If(refreshing):
            m.d.sync += refresh_clock.eq(refresh_clock + 1)
            with m.Switch(refresh_clock):
                for command in schedule.refresh:
                    with m.Case(command.at):
                        m.d.comb += [
                            row.op.eq(RowOp.REFSB), row.pc.eq(command.pc),
                            row.bank.eq(bank_of(command.bank, refresh_set)),
                        ]  # fmt: skip
                with m.Default():
                    pass
            with m.If(refresh_clock == schedule.refresh[-1].at):
                m.d.sync += refreshing.eq(0)
        with m.If(self.refresh):
            m.d.sync += [refreshing.eq(1), refresh_clock.eq(0), refresh_set.eq(self.refresh_set)]

        # What concerns all banks, first of one pseudo-channel, then of the other.
        second = Signal(RowOp)
        m.d.sync += second.eq(self.special)
        with m.If(self.special != RowOp.NOP):
            m.d.comb += [row.op.eq(self.special), row.pc.eq(0)]
        with m.Elif(second != RowOp.NOP):
            m.d.comb += [row.op.eq(second), row.pc.eq(1)]
        assert bits_for(through) <= bits_for(2 * schedule.unit - 1)
        return m

    @staticmethod
    def _delayed(m: Module, value, clocks: int, name: str):
        if clocks < 0:
            raise ValueError(f"{name} would have to be {-clocks} clocks earlier")
        if not clocks:
            return value
        line = Signal(clocks, name=f"{name}_line")
        m.d.sync += line.eq(Cat(value, line[:-1]))
        return line[-1]
