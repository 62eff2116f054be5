"""Large memories: two RAM primitives, each one parameterised Verilog module.

Amaranth's own memory writes an initial value for every row, which takes minutes and megabytes at the size of a vector
memory; these carry no contents at all, so that generation does not depend on the depth. Small memories (queues,
stores) stay with ``amaranth.lib.memory``.
"""

from amaranth import ClockSignal, Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .emit.verilog import use_verilog

__all__ = ["Ram1RW", "Ram1R1W"]


# The loop is the shape that FPGA tools infer as block RAM with write enables per lane. Simulation takes another, equal
# form: a loop of partial nonblocking writes costs Verilator a queue entry of a whole row for every lane.
_WRITE = """\
`ifdef VERILATOR
    if (&we)
      mem[{addr}] <= wdata;
    else if (|we) begin : merge
      reg [WIDTH-1:0] row;
      row = mem[{addr}];
      for (lane = 0; lane < LANES; lane = lane + 1)
        if (we[lane])
          row[lane*GRANULARITY +: GRANULARITY] = wdata[lane*GRANULARITY +: GRANULARITY];
      mem[{addr}] <= row;
    end
`else
    for (lane = 0; lane < LANES; lane = lane + 1)
      if (we[lane])
        mem[{addr}][lane*GRANULARITY +: GRANULARITY] <= wdata[lane*GRANULARITY +: GRANULARITY];
`endif
"""

_RAM_1RW = """\
// One port, synchronous read. An access either writes the enabled lanes, and rdata holds, or reads.
module sluice_ram_1rw #(
  parameter DEPTH = 2,
  parameter WIDTH = 8,
  parameter GRANULARITY = 8,
  parameter ADDR_BITS = 1,
  parameter LANES = WIDTH / GRANULARITY
) (
  input clk,
  input en,
  input [LANES-1:0] we,
  input [ADDR_BITS-1:0] addr,
  input [WIDTH-1:0] wdata,
  output reg [WIDTH-1:0] rdata
);
  reg [WIDTH-1:0] mem [0:DEPTH-1];
  integer lane;
  always @(posedge clk) if (en) begin
""" + _WRITE.format(addr="addr") + """\
    if (!(|we))
      rdata <= mem[addr];
  end
endmodule
"""

_RAM_1R1W = """\
// One read port and one write port, synchronous read. A read of the row being written gives the old contents.
module sluice_ram_1r1w #(
  parameter DEPTH = 2,
  parameter WIDTH = 8,
  parameter GRANULARITY = 8,
  parameter ADDR_BITS = 1,
  parameter LANES = WIDTH / GRANULARITY
) (
  input clk,
  input re,
  input [ADDR_BITS-1:0] raddr,
  output reg [WIDTH-1:0] rdata,
  input [LANES-1:0] we,
  input [ADDR_BITS-1:0] waddr,
  input [WIDTH-1:0] wdata
);
  reg [WIDTH-1:0] mem [0:DEPTH-1];
  integer lane;
  always @(posedge clk) begin
    if (re)
      rdata <= mem[raddr];
""" + _WRITE.format(addr="waddr") + """\
  end
endmodule
"""


def _positive(what: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"RAM {what} must be an integer, not {value!r}")
    if value < 1:
        raise ValueError(f"RAM {what} must be at least 1, not {value}")
    return value


class _Ram(wiring.Component):
    """What both primitives share: size, lanes, the instance."""

    _module: str
    _text: str

    def __init__(self, depth: int, width: int, granularity: int | None, ports: dict) -> None:
        self._depth, self._width, self._granularity = depth, width, granularity
        super().__init__(ports)

    @staticmethod
    def _check(depth: int, width: int, granularity: int | None) -> tuple[int, int, int]:
        _positive("depth", depth)
        _positive("width", width)
        granularity = width if granularity is None else _positive("granularity", granularity)
        if width % granularity:
            raise ValueError(f"RAM granularity must divide the width {width}, {granularity} does not")
        return granularity, width // granularity, max(1, ceil_log2(depth))

    @property
    def depth(self) -> int:
        """Number of rows."""
        return self._depth

    @property
    def width(self) -> int:
        """Bits of a row."""
        return self._width

    @property
    def granularity(self) -> int:
        """Bits written by one bit of ``we``."""
        return self._granularity

    def verilog_modules(self) -> dict[str, str]:
        """The Verilog module behind the instance, by name."""
        return {self._module: self._text}

    def elaborate(self, platform) -> Module:
        m = Module()
        use_verilog(platform, self.verilog_modules())
        ports = {f"{'i' if member.flow is In else 'o'}_{name}": getattr(self, name)
                 for name, member in self.signature.members.items()}
        m.submodules.ram = Instance(
            self._module, i_clk=ClockSignal(), p_DEPTH=self.depth, p_WIDTH=self.width,
            p_GRANULARITY=self.granularity, p_ADDR_BITS=max(1, ceil_log2(self.depth)), **ports)
        return m


class Ram1RW(_Ram):
    """Single-port RAM, read latency one cycle, no reset and no initial contents.

    While ``en`` is high a cycle either writes (any bit of ``we`` high: these lanes of row ``addr`` take ``wdata``, and
    ``rdata`` holds) or reads (``rdata`` is row ``addr`` in the next cycle, and holds until the next read). An address
    of `depth` or more must not be accessed: a write goes nowhere, a read gives any value.

    Parameters
    ----------
    depth : int
        Rows, any number from 1.
    width : int
        Bits of a row.
    granularity : int, optional
        Bits per write lane, a divisor of `width`; by default the whole row is one lane.

    Members
    -------
    en : In(1)
    we : In(width // granularity)
    addr : In(max(1, ceil_log2(depth)))
    wdata : In(width)
    rdata : Out(width)

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive integer, or `granularity` does not divide `width`.
    """

    _module, _text = "sluice_ram_1rw", _RAM_1RW

    def __init__(self, *, depth: int, width: int, granularity: int | None = None) -> None:
        granularity, lanes, addr_bits = self._check(depth, width, granularity)
        super().__init__(depth, width, granularity, {
            "en": In(1), "we": In(lanes), "addr": In(addr_bits), "wdata": In(width), "rdata": Out(width)})


class Ram1R1W(_Ram):
    """RAM with one read and one write port, read latency one cycle, no reset and no initial contents.

    ``rdata`` shows, one cycle after ``re``, row ``raddr`` and holds until the next read. The lanes of row ``waddr``
    whose ``we`` is high take ``wdata``. A read of a row in the cycle that writes it gives the OLD contents. Addresses
    of `depth` or more must not be accessed: a write goes nowhere, a read gives any value.

    Parameters
    ----------
    depth, width, granularity
        As for :class:`Ram1RW`.

    Members
    -------
    re : In(1)
    raddr : In(max(1, ceil_log2(depth)))
    rdata : Out(width)
    we : In(width // granularity)
    waddr : In(max(1, ceil_log2(depth)))
    wdata : In(width)

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive integer, or `granularity` does not divide `width`.
    """

    _module, _text = "sluice_ram_1r1w", _RAM_1R1W

    def __init__(self, *, depth: int, width: int, granularity: int | None = None) -> None:
        granularity, lanes, addr_bits = self._check(depth, width, granularity)
        super().__init__(depth, width, granularity, {
            "re": In(1), "raddr": In(addr_bits), "rdata": Out(width),
            "we": In(lanes), "waddr": In(addr_bits), "wdata": In(width)})
