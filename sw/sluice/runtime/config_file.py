"""Chip configurations by preset name, or from a TOML or JSON file."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from pathlib import Path
from typing import Any

from sluice.errors import ConfigError
from sluice_hw.config import PRESETS, ChipConfig, preset

__all__ = ["load_config"]


def load_config(name: str) -> ChipConfig:
    """The preset called ``name``, or the configuration in a file.

    A file holds fields of :class:`ChipConfig` by name, and optionally ``base``: the preset whose other fields it takes
    (default ``tiny``). Its chip is called by the file's name unless a field ``name`` says otherwise.

    Raises
    ------
    ConfigError
        For a name that is neither, a file that cannot be read, an unknown or impossible field; with its place.
    """
    path = Path(name)
    if name in PRESETS:
        return preset(name)
    if path.suffix not in (".toml", ".json"):
        raise ConfigError(
            f"unknown config {name!r}; known configs: {', '.join(PRESETS)}, or a .toml or .json file with fields"
        )
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"config file {name}: {error.strerror or error}") from None
    try:
        fields: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{name}: {error}") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{name}: must hold fields by name, not {type(fields).__name__}")
    known = [f.name for f in dataclasses.fields(ChipConfig)]
    for key in fields:
        if key not in known and key != "base":
            raise ConfigError(
                f"{name}:{_line(text, key)}: unknown field {key!r}; known fields: base, {', '.join(known)}"
            )
    base = fields.pop("base", "tiny")
    if base not in PRESETS:
        raise ConfigError(f"{name}:{_line(text, 'base')}: base must be one of {', '.join(PRESETS)}, not {base!r}")
    try:
        return preset(base).replace(**{"name": path.stem, **fields})
    except (TypeError, ValueError) as error:
        key = str(error).split(" ", 1)[0]
        raise ConfigError(f"{name}:{_line(text, key)}: {error}") from None


def _line(text: str, key: str) -> int:
    """Line on which a key stands; 1 when it is not written there."""
    pattern = re.compile(rf'^[\s{{,]*"?{re.escape(key)}"?\s*[=:]', re.MULTILINE)
    match = pattern.search(text) or re.search(rf'"{re.escape(key)}"\s*:', text)
    if not match:
        return 1
    return text.count("\n", 0, match.start() + len(match.group()) - len(match.group().lstrip())) + 1
