"""YAML of another author: plain data or one UsageError, never code, never a bomb."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metronome_cli.config.yaml_file import MOST_BYTES, MOST_NODES, parse_yaml, read_yaml
from metronome_cli.core.errors import UsageError


def lines_of_aliases(levels: int, width: int) -> str:
    """Each level lists the one before `width` times: width ** levels values once unfolded."""
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(("text", "says"), [
    ("a: 1\na: 2", "line 2: key 'a' is given twice"),
    ("a:\n  b: 1\n  b: 2", "line 3: key 'b' is given twice"),
    ("a: [1", "line"),
    ("a: b: c", "line 1"),
    ("", "is empty"),
    ("[1, 2]", "is a list"),
    ("text", "single value"),
    ("1: 2", "key '1' is not text"),
    ("yes: 2", "key 'yes' is not text"),
    ("? [a]\n: 1", "is not text"),
    ("a: !!python/object/apply:os.system ['true']", "no tags"),
    ("a: !!float ''", "no tags"),
    ("a: &x [*x]", "contains itself"),
    ("a: *nothing", "alias"),
    ("a: 1\n---\nb: 2", "another document"),
    ("a: 2024-99-99", "not readable"),
    ("a: 1\nb: " + "9" * 5000, "line 2: '999"),
    ("b: " + "9" * 5000, "is no whole number that can be read"),
    ("a: &a {x: 1}\nb: {<<: *a}", "line 2: << is not taken here: write the keys out"),
    ("a: \0", "not readable"),
    ("a: " + "[" * 40 + "]" * 40, "nested more than 32 deep"),
    ("a: " + "[" * 100_000, "nest"),
    (lines_of_aliases(9, 10), f"more than {MOST_NODES:,} values"),
    ("a: [" + "1," * MOST_NODES + "]", f"more than {MOST_NODES:,} values"),
])  # fmt: skip
def test_refusals_name_the_file_and_the_trouble(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_yaml(text, "mine.yaml")
    assert caught.value.message.startswith("mine.yaml")
    assert says in caught.value.message


def test_a_tag_never_runs_anything(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with pytest.raises(UsageError):
        parse_yaml(f"a: !!python/object/apply:os.mkdir ['{mark}']", "mine.yaml")
    assert not mark.exists()


def test_a_few_aliases_are_fine() -> None:
    assert parse_yaml("a: &a {x: 1}\nb: *a\nc: *a", "mine.yaml")["c"] == {"x": 1}


@pytest.mark.parametrize(("make", "says"), [
    (lambda path: None, "No such file"),
    (lambda path: path.mkdir(), "not a regular file"),
    (os.mkfifo, "not a regular file"),
    (lambda path: path.write_bytes(b"a: \xff\xfe"), "not UTF-8"),
    (lambda path: path.write_bytes(b"#" * (MOST_BYTES + 1)), "larger than"),
])  # fmt: skip
def test_files_that_cannot_be_read(tmp_path: Path, make, says: str) -> None:
    path = tmp_path / "mine.yaml"
    make(path)
    with pytest.raises(UsageError, match=says):
        read_yaml(path)


def test_a_byte_order_mark_is_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_yaml(path) == {"a": 1}


@given(st.text(max_size=300) | st.text(alphabet="ab:-&*!?{}[],|>#'\"<=%@ \n\t01~.", max_size=80))
def test_only_usage_errors_come_out(text: str) -> None:
    try:
        data = parse_yaml(text, "mine.yaml")
    except UsageError:
        return
    assert isinstance(data, dict)
    assert all(isinstance(key, str) for key in data)
