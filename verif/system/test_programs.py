"""The example programs on the chip: HBM and work counters equal golden's, every cycle of every unit accounted for."""

from pathlib import Path

import numpy as np
import pytest

from sluice.asm import assemble
from sluice_hw.emit.chip import TOP, chip_verilog
from verif.harness import run_verilog
from verif.system.configs import CONFIGS

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "asm").glob("*.s"))
REACH = 1 << 16


@pytest.fixture(scope="session")
def tiny_verilog() -> str:
    return chip_verilog(CONFIGS["tiny"], emission="loop")


@pytest.mark.parametrize("source", EXAMPLES, ids=lambda p: p.stem)
def test_example(source: Path, tiny_verilog: str, tmp_path: Path) -> None:
    program = assemble(source.read_text(), file=source.name)
    rng = np.random.default_rng(7)
    hbm = rng.integers(0, 256, REACH, np.uint8)
    hbm[hbm & 63 == 63] ^= 1  # any byte may be read as a shift, and 63 is none
    (tmp_path / "program.bin").write_bytes(program.to_bytes())
    np.savez(tmp_path / "image.npz", hbm=hbm, reach=REACH)
    run_verilog(
        tiny_verilog, "verif.system.bench_program", name="chip_tiny", top=TOP,
        env={"CONFIG": "tiny", "PROGRAM": str(tmp_path / "program.bin"), "IMAGE": str(tmp_path / "image.npz"),
             "REPEATS": "2"},
    )
