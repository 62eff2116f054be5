"""The example programs on the chip: HBM and work counters equal golden's, every cycle of every unit accounted for."""

from pathlib import Path

import numpy as np
import pytest

from sluice.asm import assemble
from sluice.build import CocotbModel
from verif.harness import report_dir
from verif.system.configs import examples

REACH = 1 << 15


@pytest.mark.parametrize("source", examples("tiny"), ids=lambda p: p.stem)
def test_example(source: Path, tiny_model: CocotbModel, tmp_path: Path) -> None:
    program = assemble(source.read_text(), file=source.name)
    rng = np.random.default_rng(7)
    hbm = rng.integers(0, 256, REACH, np.uint8)
    hbm[hbm & 63 == 63] ^= 1  # any byte may be read as a shift, and 63 is none
    (tmp_path / "program.bin").write_bytes(program.to_bytes())
    np.savez(tmp_path / "image.npz", hbm=hbm, reach=REACH)
    tiny_model.run(
        "verif.system.bench_program", results_dir=report_dir(source.stem),
        env={"CONFIG": "tiny", "PROGRAM": str(tmp_path / "program.bin"), "IMAGE": str(tmp_path / "image.npz"),
             "REPEATS": "2"},
    )  # fmt: skip
