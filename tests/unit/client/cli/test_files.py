"""Files of definitions: what is read, what is refused, and in which order it is carried out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from slackwater.cli.definitions.files import FileDefinition, read_files
from slackwater.cli.options.failing import UsageError


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names(found: list[FileDefinition]) -> list[str | None]:
    return [each.name for each in found]


def test_documents_of_yaml_json_and_sql_are_read_below_a_directory(tmp_path: Path) -> None:
    write(
        tmp_path,
        a_dot_yaml="stream: orders\ncolumns: {item: string}\n---\ntable: prices\nkey: [item]\ncolumns: {item: string}\n",
        deep__b_dot_json='[{"name": "q", "from": {"stream": "orders"}, "into": {"table": "totals"}}]',
        c_dot_sql="SET 'x' = 'y';\n-- a comment\nCREATE STREAM s (a INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');",
        notes_dot_txt="not read",
        _dot_hidden__d_dot_sql="NOT READ",
    )
    found = {each.name: each for each in read_files(tmp_path)}
    assert set(found) == {"orders", "prices", "q", "s"}
    assert found["orders"].body() == {"kind": "stream", "name": "orders", "definition": {"columns": {"item": "string"}}}
    assert found["prices"].place == "a.yaml:4"
    assert found["q"].body()["definition"]["name"] == "q"
    assert found["s"].sql == "SET 'x' = 'y';\nCREATE STREAM s (a INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');\n"
    assert found["s"].place == "c.sql:3"


def test_yaml_is_read_as_yaml_1_2(tmp_path: Path) -> None:
    text = """
query: q
from: {stream: a}
start: {at: 2013-01-01T00:00:00Z}
joins:
  - {table: b, on: a.x = b.x, unversioned_ok: true}
tasks: 2
where: no
into: {stream: r}
"""
    (found,) = read_files(write(tmp_path, q_dot_yaml=text))
    definition: Any = found.definition
    assert definition["joins"] == [{"table": "b", "on": "a.x = b.x", "unversioned_ok": True}]
    assert (definition["start"], definition["tasks"], definition["where"]) == ({"at": "2013-01-01T00:00:00Z"}, 2, "no")


def test_what_is_depended_on_comes_first_whatever_the_files_are_called(tmp_path: Path) -> None:
    write(
        tmp_path,
        a_dot_sql="CREATE TABLE last AS SELECT a, COUNT(*) AS n FROM middle GROUP BY a;",
        b_dot_yaml="query: middle\nfrom: {stream: first}\njoins: [{table: side}]\ninto: {stream: middle}\n",
        z_dot_sql="CREATE STREAM first (a INT) WITH (KAFKA_TOPIC='f', VALUE_FORMAT='JSON');",
        y_dot_yaml="table: side\nkey: [a]\ncolumns: {a: int}\n",
    )
    assert names(read_files(tmp_path)) == ["first", "side", "middle", "last"]


def test_a_circle_is_left_to_the_service(tmp_path: Path) -> None:
    write(
        tmp_path,
        a_dot_yaml="query: a\nfrom: {stream: b}\ninto: {stream: a}\n---\nquery: b\nfrom: {stream: a}\ninto: {stream: b}\n",
    )
    assert sorted(map(str, names(read_files(tmp_path)))) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- 1\n", "a.yaml:1: a definition is a mapping"),
        ("columns: {}\n", "a.yaml:1: say once what it is"),
        ("stream: a\ntable: b\n", "a.yaml:1: say once what it is"),
        ("stream: 3\n", "a.yaml:1: say once what it is"),
        ("query: q\nfrom: {stream: a}\n", "a.yaml:1: query q does not say what it writes"),
        ("stream: a\nkey: [x]\nkey: [y]\n", "'key' appears twice"),
        ("stream: [\n", "a.yaml:2"),
        ("stream: a\n---\nstream: a\n", "a.yaml:3: a is defined in a.yaml:1 already"),
        ("query: q\nfrom: {stream: a}\ninto: {table: t}\n---\ntable: t\n", "t is defined in a.yaml:1 already"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_files(write(tmp_path, a_dot_yaml=text))
    assert fault in refused.value.detail


def test_every_fault_of_every_file_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        read_files(write(tmp_path, a_dot_yaml="1", b_dot_json="{", c_dot_yaml="stream: a"))
    assert [line.partition(":")[0] for line in refused.value.detail.splitlines()] == ["a.yaml", "b.json"]


def test_an_empty_or_missing_directory_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no definitions"):
        read_files(tmp_path)
    with pytest.raises(UsageError, match="there is no"):
        read_files(tmp_path / "missing")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("table: a\nx: [\n" + "[" * 5_000 + "]" * 5_001, "recursion"),
        (f"table: a\nx: {'9' * 5_000}", "digits"),
        ("table: a\n? [b]\n: c", "a key is a text"),
        ("table: a\nx: &x [*x]", "recursive"),
        (
            "table: a\nx0: &x0 [1]\n" + "".join(f"x{n + 1}: &x{n + 1} [*x{n}, *x{n}]\n" for n in range(40)),
            "more than 100,000 values",
        ),
    ],
)
def test_a_file_that_would_break_the_reader_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        read_files(write(tmp_path, a_dot_yaml=text))


def test_whole_numbers_are_in_base_ten(tmp_path: Path) -> None:
    (found,) = read_files(write(tmp_path, a_dot_yaml="table: a\nx: [010, 09, -7, +3]"))
    assert found.definition == {"x": [10, 9, -7, 3]}
