"""Long random runs, only by ``make soak``; SLUICE_SEED replays one."""

import numpy as np
import pytest

from sluice.build.model import pick_seed
from sluice.runtime import Device
from sluice.runtime.matmul import run_matmul


@pytest.mark.soak
@pytest.mark.parametrize("chip", ["tiny", "wide"])
def test_random_matmuls(chip: str, request: pytest.FixtureRequest) -> None:
    """200 shapes, half of them around the array's edges; every value against golden."""
    device: Device = request.getfixturevalue(chip)
    seed = pick_seed()
    rng = np.random.default_rng(seed)
    edge = 2 * max(device.config.rows, device.config.cols) + 2
    for number in range(200):
        m, k, n = (int(x) for x in rng.integers(1, edge if number % 2 else 97, 3))
        out = "int32" if rng.random() < 0.3 else "int8"
        relu = bool(rng.random() < 0.5)
        result = run_matmul(device.config, m, k, n, seed=seed + number, out=out, relu=relu, device=device)
        assert not result.verification.mismatches, f"{m}x{k}x{n} {out} relu {relu} seed {seed + number}"
