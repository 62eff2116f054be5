"""Configuration files and memory images."""

from __future__ import annotations

import re

import numpy as np
import pytest

from sluice.asm import assemble
from sluice.errors import ConfigError, OutOfMemory, UsageError
from sluice.runtime import Device, Image, load_config, load_image
from sluice.runtime.image import parse_read
from sluice_hw.config import preset

TINY = preset("tiny")


def test_config_by_preset_and_by_file(tmp_path):
    assert load_config("small") == preset("small")
    path = tmp_path / "wide.toml"
    path.write_text('base = "small"  # the rest\ncols = 32\n')
    assert load_config(str(path)) == preset("small").replace(name="wide", cols=32)
    path = tmp_path / "x.json"
    path.write_text('{"name": "mine",\n "rows": 12}')
    assert load_config(str(path)) == TINY.replace(name="mine", rows=12)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("a.toml", "rows = 8\nrowz = 4\n", "a.toml:2: unknown field 'rowz'; known fields: base, name, rows"),
        ("a.json", '{"rows": 8,\n\n "banks": 1}', "a.json:3: unknown field 'banks'"),
        ("a.toml", "\n\nrows = 1\n", "a.toml:3: rows must be 2 to 1024, not 1"),
        ("a.toml", 'cols = 4\nrows = "8"\n', "a.toml:2: rows must be int, not '8'"),
        ("a.toml", 'base = "huge"\n', "a.toml:1: base must be one of tiny"),
        ("a.toml", "rows =\n", "a.toml: Invalid value (at line 1, column 7)"),
        ("a.json", "[1]", "a.json: must hold fields by name, not list"),
        ("a.json", "{", "a.json: Expecting property name"),
    ],
)  # fmt: skip
def test_bad_config_files(tmp_path, file, text, message):
    path = tmp_path / file
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path}/{message}")):
        load_config(str(path))


def test_bad_config_names(tmp_path):
    with pytest.raises(ConfigError, match="unknown config 'tinny'; known configs: tiny, small"):
        load_config("tinny")
    with pytest.raises(ConfigError, match="gone.toml: No such file"):
        load_config(str(tmp_path / "gone.toml"))


def test_image(tmp_path):
    a, want = np.arange(24, dtype=np.int8).reshape(3, 8), np.arange(4, dtype=np.int32)
    path = tmp_path / "i.npz"
    np.savez(path, **{"a@2": a, "out:c@2": np.empty((2, 3), np.int8), "expect:d@5": want, "d@5": want,
                      "param:1": np.uint32(0xFFFFFFFF)})  # fmt: skip
    image = load_image(path)
    assert image.param_list == [0, 0xFFFFFFFF]
    with Device(TINY, "golden") as device:
        image.write(device)
        device.run(assemble("halt", TINY))
        got = image.read(device)
        assert device.hbm.used == 0
    assert np.array_equal(got["c"], a.reshape(-1)[:6].reshape(2, 3)) and np.array_equal(got["d"], want)
    assert np.array_equal(image.expected["d"], want)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("a", np.zeros(3, np.int8), "key 'a' must be NAME@SLICE, out:NAME@SLICE"),
        ("a@-1", np.zeros(3, np.int8), "key 'a@-1' must be"),
        ("in:a@1", np.zeros(3, np.int8), "key 'in:a@1' must be"),
        ("a@1", np.zeros(3), "'a@1' must be of int8, uint8, int32, uint32, float32, not float64"),
        ("a@1", np.zeros((0, 3), np.int8), r"'a@1' is empty, shape \[0, 3\]"),
        ("param:8", np.uint32(1), "param:0 to param:7"),
        ("param:1", np.int32(-1), "must be one integer from 0"),
        ("param:1", np.zeros(2, np.int32), "must be one integer"),
        ("a@1", np.array([None]), "not a readable .npz file"),
    ],
)  # fmt: skip
def test_bad_images(tmp_path, key, value, message):
    path = tmp_path / "i.npz"
    np.savez(path, **{key: value})
    with pytest.raises(UsageError, match=message):
        load_image(path)


def test_files_that_are_no_images(tmp_path):
    path = tmp_path / "i.npz"
    with pytest.raises(UsageError, match="No such file"):
        load_image(path)
    path.write_bytes(b"PK\x03\x04 not a zip file")
    with pytest.raises(UsageError, match="not a readable"):
        load_image(path)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(UsageError, match="holds one array"):
        load_image(path)


def test_images_that_do_not_fit():
    with Device(TINY, "golden") as device:
        image = Image([("a", 0, np.ones(300, np.int8)), ("b", 1, np.ones(8, np.int8))])
        with pytest.raises(OutOfMemory, match="slices 1 to 1 are not free"):
            image.write(device)
        assert device.hbm.used == 0 and device.read_memory(0, 8) == bytes(8), "nothing is written"
        with pytest.raises(OutOfMemory, match="slices 65535 to 65536"):
            Image([("a", 65535, np.ones(257, np.int8))]).write(device)


def test_results_asked_for_as_text():
    assert parse_read("out@3:int8[16,8]") == ("out", (3, (16, 8), "int8"))
    assert parse_read("x.y@0:float32[4x2]") == ("x.y", (0, (4, 2), "float32"))
    assert parse_read("x@0:int32") == ("x", (0, (), "int32"))
    for text in ("out", "out@3", "out@3:int64[2]", "out@3:int8[0]", "out@3:int8[2,,3]", "@3:int8"):
        with pytest.raises(UsageError, match="a result is NAME@SLICE:DTYPE"):
            parse_read(text)
