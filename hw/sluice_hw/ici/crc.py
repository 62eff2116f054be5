"""The checksum of link frames: CRC-32C over a whole frame in one cycle.

The generator is Castagnoli's 0x1EDC6F41 (G. Castagnoli, S. Braeuer, M. Herrmann, "Optimization of cyclic
redundancy-check codes with 24 and 32 parity bits", IEEE Trans. Communications 41(6), 1993), 0x8F6E37A0 in the notation
of P. Koopman, "32-bit cyclic redundancy codes for Internet applications", DSN 2002, who confirms Hamming distance 6 up
to 5243 data bits and 8 up to 177. (x + 1) divides it, so that every odd number of flipped bits is found.
``verif/unit/ici/test_link_crc.py`` computes the distance again at the frame lengths in use.
"""

from __future__ import annotations

from functools import cache

from amaranth.hdl import Cat, Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..emit.verilog import use_verilog

__all__ = ["CRC_BITS", "Crc", "POLYNOMIAL", "crc_value"]

CRC_BITS = 32
#: Without its top term.
POLYNOMIAL = 0x1EDC6F41
_TOP = 1 << (CRC_BITS - 1)
_MASK = (1 << CRC_BITS) - 1


def crc_value(message: int, length: int) -> int:
    """Checksum of the low `length` bits of `message`, the lowest first; the register starts with all ones.

    Raises
    ------
    ValueError
        If the message does not fit in `length` bits.
    """
    if length < 0 or message < 0 or message >> length:
        raise ValueError(f"message must be a number of {length} bits, not {message:#x}")
    state = _MASK
    for i in range(length):
        feedback = (state >> (CRC_BITS - 1)) ^ (message >> i & 1)
        state = (state << 1 & _MASK) ^ (POLYNOMIAL if feedback else 0)
    return state


@cache
def _columns(length: int, polynomial: int = POLYNOMIAL) -> tuple[int, ...]:
    """What each message bit adds to the checksum: bit i passes through the register ``length - i`` times."""
    # The first step of a single bit at an all-zero register gives the polynomial itself, x**32.
    columns = [polynomial][:length]
    while len(columns) < length:
        last = columns[-1]
        columns.append((last << 1 & _MASK) ^ (polynomial if last & _TOP else 0))
    return tuple(reversed(columns))


_MODULE = "sluice_crc32c"
# A loop, which tools flatten to the same XOR trees and Verilator runs as it stands: trees written out are megabytes.
_TEXT = f"""\
module {_MODULE} #(parameter WIDTH = 1) (input [WIDTH-1:0] message, output reg [31:0] crc);
  integer i;
  always @* begin
    crc = 32'hffffffff;
    for (i = 0; i < WIDTH; i = i + 1)
      crc = {{crc[30:0], 1'b0}} ^ (crc[31] ^ message[i] ? 32'h{POLYNOMIAL:08x} : 32'h0);
  end
endmodule
"""


class Crc(wiring.Component):
    """Hardware of :func:`crc_value` for messages of `length` bits; no register.

    Members
    -------
    message : In(length)
    crc : Out(32)
    """

    def __init__(self, length: int) -> None:
        self.length = length
        super().__init__({"message": In(length), "crc": Out(CRC_BITS)})

    def verilog_modules(self) -> dict[str, str]:
        """The Verilog module behind the instance, by name."""
        return {_MODULE: _TEXT}

    def elaborate(self, platform) -> Module:
        m = Module()
        if hasattr(platform, "add_file"):
            use_verilog(platform, self.verilog_modules())
            m.submodules.crc = Instance(_MODULE, p_WIDTH=self.length, i_message=self.message, o_crc=self.crc)
            return m
        # Amaranth's simulator and proofs see no instances: one XOR tree per bit.
        columns, start = _columns(self.length), crc_value(0, self.length)
        masks = [sum((column >> bit & 1) << i for i, column in enumerate(columns)) for bit in range(CRC_BITS)]
        m.d.comb += self.crc.eq(Cat((self.message & mask).xor() ^ (start >> bit & 1) for bit, mask in enumerate(masks)))
        return m
