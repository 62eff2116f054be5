"""Token counters."""

import pytest

from sluice_hw.config import preset
from sluice_hw.tokens import TokenCounters
from verif.harness import run_bench


@pytest.mark.parametrize("top", [1, 5, 255])
def test_tokens(top):
    run_bench(TokenCounters(token_max=top), "verif.unit.bench_tokens", name=f"tokens_{top}", env={"TOP": str(top)})


def test_parameters():
    assert TokenCounters.for_config(preset("tiny")).token_max == 255
    with pytest.raises(ValueError, match="token_max must be 1 to 255, not 256"):
        TokenCounters(token_max=256)
    with pytest.raises(TypeError, match="token_max must be an integer, not True"):
        TokenCounters(token_max=True)
