"""Window arithmetic against counting."""

from __future__ import annotations

import itertools

import pytest

from sluice.compiler.shapes import resolve_padding, window_output
from sluice.compiler.tensors import GraphError

CASES = list(itertools.product(range(1, 9), (1, 2, 3, 5), (1, 2, 3), (1, 2)))


def test_same_padding_gives_ceil_outputs_and_no_more_than_needed() -> None:
    for n, k, s, d in CASES:
        (before, after), _ = resolve_padding("same", (n, 1), (k, 1), (s, 1), (d, 1), "t")
        outputs = -(-n // s)
        assert window_output((n, 1), (k, 1), (s, 1), ((before, after), (0, 0)), (d, 1), "t")[0] == outputs
        assert before <= after <= before + 1
        # Without padding the last window would end here; 'same' adds just what is missing.
        assert before + after == max((outputs - 1) * s + (k - 1) * d + 1 - n, 0)


def test_output_size_by_counting_starts() -> None:
    refused = 0
    for n, k, s, d in CASES:
        for pads in ((0, 0), (1, 0), (2, 3)):
            span = (k - 1) * d + 1
            starts = [i for i in range(0, n + sum(pads), s) if i + span <= n + sum(pads)]
            args = ((1, n), (1, k), (1, s), ((0, 0), pads), (1, d), "conv2d 'c'")
            if starts:
                assert window_output(*args) == (1, len(starts))
            else:
                refused += 1
                with pytest.raises(GraphError, match=f"conv2d 'c': window width {span} .* at most {n + sum(pads)}"):
                    window_output(*args)
    assert refused > 10
