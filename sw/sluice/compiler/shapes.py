"""Window arithmetic of convolutions and pools: paddings resolved, output sizes, errors that say what is allowed."""

from __future__ import annotations

from .tensors import GraphError

__all__ = ["Padding", "pair", "resolve_padding", "window_output"]

Padding = tuple[tuple[int, int], tuple[int, int]]
"""((top, bottom), (left, right)), each >= 0."""


def _is_int(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def pair(value: object, name: str, where: str) -> tuple[int, int]:
    """(height, width) from one integer or two, each >= 1."""
    both = (value, value) if _is_int(value) else value
    if not (isinstance(both, tuple | list) and len(both) == 2 and all(_is_int(v) and v >= 1 for v in both)):
        raise GraphError(f"{where}: {name} {value!r}; allowed: an integer >= 1 or a pair (height, width) of them")
    return int(both[0]), int(both[1])


def resolve_padding(
    padding: object,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    where: str,
) -> Padding:
    """Explicit padding for 'same', 'valid' or ((top, bottom), (left, right)).

    'same' gives ceil(size / stride) outputs; of an odd total the larger half goes to the bottom and to the right, as in
    TensorFlow and TFLite.
    """
    if padding == "valid":
        return (0, 0), (0, 0)
    if padding == "same":
        sides = []
        for n, k, s, d in zip(size, kernel, stride, dilation, strict=True):
            total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            sides.append((total // 2, total - total // 2))
        return sides[0], sides[1]
    try:
        (top, bottom), (left, right) = padding  # type: ignore[misc]
        good = all(_is_int(v) and v >= 0 for v in (top, bottom, left, right))
    except (TypeError, ValueError):
        good = False
    if not good:
        raise GraphError(
            f"{where}: padding {padding!r}; allowed: 'same', 'valid' or ((top, bottom), (left, right)) of integers >= 0"
        )
    return (int(top), int(bottom)), (int(left), int(right))


def window_output(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: Padding,
    dilation: tuple[int, int],
    where: str,
) -> tuple[int, int]:
    """Output height and width of a window that slides over a padded image: floor((n + pads - span) / stride) + 1."""
    out = []
    for axis, n, k, s, p, d in zip(("height", "width"), size, kernel, stride, padding, dilation, strict=True):
        span = (k - 1) * d + 1
        room = n + sum(p) - span
        if room < 0:
            raise GraphError(
                f"{where}: window {axis} {span} (kernel {k}, dilation {d}) exceeds the padded input {axis} "
                f"{n + sum(p)} ({n} + padding {p[0]} + {p[1]}); allowed: at most {n + sum(p)}"
            )
        out.append(room // s + 1)
    return out[0], out[1]
