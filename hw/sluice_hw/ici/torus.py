"""A torus of routers as Verilog: the router's module once, an instance for each node.

Amaranth would write the router out for every node; here the text around the instances is made directly, as for the
array. Before anything is emitted the routing is checked for deadlocks.
"""

from __future__ import annotations

from ..emit.verilog import to_verilog
from .config import TorusConfig
from .flit import Message
from .interface import Port
from .router import Router
from .routing import neighbour

__all__ = ["torus_verilog"]

_WIRE = """\
// A link of LATENCY cycles that loses nothing: registers for flits one way and credits the other. The first cycle is
// the register of the router's input buffer. What is under way when the link dies still arrives; then o_ended rises.
module sluice_wire #(
  parameter FLIT_BITS = 8,
  parameter VCS = 8,
  parameter LATENCY = 1
) (
  input clk,
  input rst,
  input i_ended,
  input i_valid,
  input [FLIT_BITS-1:0] i_flit,
  output [VCS-1:0] i_credit,
  output o_valid,
  output [FLIT_BITS-1:0] o_flit,
  output o_ended,
  input [VCS-1:0] o_credit
);
  generate
    if (LATENCY == 1) begin : direct
      assign o_valid = i_valid;
      assign o_flit = i_flit;
      assign o_ended = i_ended;
      assign i_credit = o_credit;
    end else begin : stages
      reg [LATENCY-2:0] valid, ended;
      reg [FLIT_BITS-1:0] flit [0:LATENCY-2];
      reg [VCS-1:0] credit [0:LATENCY-2];
      integer k;
      always @(posedge clk) begin
        valid[0] <= ~rst & i_valid;
        ended[0] <= ~rst & i_ended;
        flit[0] <= i_flit;
        credit[0] <= rst ? {VCS{1'b0}} : o_credit;
        for (k = 1; k < LATENCY - 1; k = k + 1) begin
          valid[k] <= ~rst & valid[k-1];
          ended[k] <= ~rst & ended[k-1];
          flit[k] <= flit[k-1];
          credit[k] <= rst ? {VCS{1'b0}} : credit[k-1];
        end
      end
      assign o_valid = valid[LATENCY-2];
      assign o_flit = flit[LATENCY-2];
      assign o_ended = ended[LATENCY-2];
      assign i_credit = credit[LATENCY-2];
    end
  endgenerate
endmodule
"""


def torus_verilog(config: TorusConfig, *, latency: int = 1, name: str = "sluice_torus") -> str:
    """The whole torus; nodes count along x first, and a node's lanes by ``2 * port + message``.

    Ports, beside ``clk`` and ``rst``, are unpacked arrays with an element per node or per node and lane:
    ``inject_valid``, ``inject_ready``, ``eject_valid``, ``eject_ready`` (a bit per lane), ``inject_flit``,
    ``eject_flit``, ``dead`` (a bit per port; the two ends of a link are to be set together) and ``passed``.

    Parameters
    ----------
    config
        Every router's parameters.
    latency
        Cycles of a link, the input buffer's register included.
    name
        Of the top module.

    Raises
    ------
    DeadlockError
        If the routing has a cycle.
    ValueError
        If ``latency`` is not 1 to 500.
    """
    if not 1 <= latency <= 500:
        raise ValueError(f"latency of the torus's links must be 1 to 500 cycles, not {latency}")
    nodes, flit, ports, lanes = config.nodes, f"[{config.flit_bits - 1}:0]", len(Port), len(Port) * len(Message)
    per_node, per_lane = f"[0:{nodes - 1}]", f"[0:{nodes * lanes - 1}]"
    lines = [
        f"module {name}(", "  input clk,", "  input rst,",
        f"  input [{lanes - 1}:0] inject_valid {per_node},", f"  output [{lanes - 1}:0] inject_ready {per_node},",
        f"  input {flit} inject_flit {per_lane},", f"  output [{lanes - 1}:0] eject_valid {per_node},",
        f"  input [{lanes - 1}:0] eject_ready {per_node},", f"  output {flit} eject_flit {per_lane},",
        f"  input [{ports - 1}:0] dead {per_node},", f"  output [{ports - 1}:0] passed {per_node}", ");",
    ]  # fmt: skip
    vcs = f"[{config.vcs - 1}:0]"
    for node in range(nodes):
        for port in Port:
            at = f"{node}_{port}"
            lines.append(f"  wire sv{at}, rv{at}, se{at}, re{at}, rd{at};")
            lines.append(f"  wire {flit} sf{at}, rf{at}; wire {vcs} sc{at}, rc{at};")
            lines.append(
                f"  sluice_wire #(.FLIT_BITS({config.flit_bits}), .VCS({config.vcs}), .LATENCY({latency})) w{at} "
                f"(.clk(clk), .rst(rst), .i_ended(se{at} | dead[{node}][{port}]), .i_valid(sv{at}), .i_flit(sf{at}), "
                f".i_credit(sc{at}), .o_valid(rv{at}), .o_flit(rf{at}), .o_ended(re{at}), .o_credit(rc{at}));"
            )
    for node in range(nodes):
        pins = [("clk", "clk"), ("rst", "rst"), ("x", f"{config.x_bits}'d{node % config.cols}"),
                ("y", f"{config.y_bits}'d{node // config.cols}"), ("last_x", f"{config.x_bits}'d{config.cols - 1}"),
                ("last_y", f"{config.y_bits}'d{config.rows - 1}"), ("passed", f"passed[{node}]")]  # fmt: skip
        for port in Port:
            out, back = f"{node}_{port}", f"{neighbour(config, node, port)}_{port.opposite}"
            pins += [
                (f"link_out__{port}__valid", f"sv{out}"), (f"link_out__{port}__flit", f"sf{out}"),
                (f"link_out__{port}__credit", f"sc{out}"),
                (f"link_out__{port}__dead", f"dead[{node}][{port}] | rd{out}"),
                (f"link_out__{port}__ended", f"se{out}"),
                (f"link_in__{port}__valid", f"rv{back}"), (f"link_in__{port}__flit", f"rf{back}"),
                (f"link_in__{port}__credit", f"rc{back}"), (f"link_in__{port}__ended", f"re{back}"),
                (f"link_in__{port}__dead", f"rd{back}"),
            ]  # fmt: skip
            for message in Message:
                lane = 2 * port + message
                for side in ("inject", "eject"):
                    pins += [
                        (f"{side}__{port}__{message}__valid", f"{side}_valid[{node}][{lane}]"),
                        (f"{side}__{port}__{message}__ready", f"{side}_ready[{node}][{lane}]"),
                        (f"{side}__{port}__{message}__payload", f"{side}_flit[{node * lanes + lane}]"),
                    ]
        lines.append(f"  sluice_router r{node} (" + ", ".join(f".{pin}({net})" for pin, net in pins) + ");")
    lines.append("endmodule\n")
    return "\n".join([to_verilog(Router(config), name="sluice_router"), _WIRE, "\n".join(lines)])
