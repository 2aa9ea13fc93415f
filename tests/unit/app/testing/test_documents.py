"""Test files as text: YAML 1.2's types, JSON, lines, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.testing.documents import FileInvalid, find_files, read_documents


def written(directory: Path, text: str, name: str = "t.yaml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def fault(path: Path) -> tuple[int | None, str, str]:
    with pytest.raises(FileInvalid) as caught:
        read_documents(path)
    (problem,) = caught.value.problems
    return problem.line, problem.pointer, problem.detail


def test_words_of_yaml_1_1_and_times_are_texts(tmp_path: Path) -> None:
    (document,) = read_documents(written(tmp_path, "on: yes\nat: 2024-01-01T00:00:00Z\nday: 2024-01-01\ntime: 12:30:00\n"))
    assert document.value == {"on": "yes", "at": "2024-01-01T00:00:00Z", "day": "2024-01-01", "time": "12:30:00"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),
        ("-3", -3),
        ("0x1f", 31),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("~", None),
        ("true", True),
        ("'5'", "5"),
        ("1_000", "1_000"),
    ],
)
def test_plain_scalars_have_the_types_of_the_core_schema(tmp_path: Path, text: str, value: object) -> None:
    (document,) = read_documents(written(tmp_path, f"v: {text}\n"))
    assert document.value == {"v": value}
    assert type(document.value["v"]) is type(value)


def test_every_document_of_a_file_is_read_with_its_lines(tmp_path: Path) -> None:
    first, second = read_documents(written(tmp_path, "a: 1\n---\nb:\n  - {c: 2}\n---\n"))
    assert (first.value, second.value) == ({"a": 1}, {"b": [{"c": 2}]})
    assert second.line_of("/b/0/c") == 4
    assert second.line_of("/b/0/absent/deeper") == 4


def test_json_keeps_what_yaml_would_read_otherwise(tmp_path: Path) -> None:
    (document,) = read_documents(written(tmp_path, '{\n\t"a": "\\ud83d\\ude00",\n\t"b": [1]\n}', "t.json"))
    assert document.value == {"a": "😀", "b": [1]}
    assert document.line_of("/b/0") == 3


@pytest.mark.parametrize(
    ("text", "line", "pointer", "detail"),
    [
        ("a: [1\nb: 2", 2, "", "is not YAML"),
        ("a: 1\na: 2", 2, "/a", "a second 'a'"),
        ("a: {1: x}", 1, "/a", "must be a text"),
        ("a: &x [*x]", 1, "/a/0", "names a value around it"),
        ("a: *x", 1, "", "undefined alias"),
        ("a: !!binary aaaa", 1, "/a", "the tag !!binary"),
        ("", None, "", "holds no test"),
    ],
)
def test_a_fault_is_shown_where_it_is(tmp_path: Path, text: str, line: int | None, pointer: str, detail: str) -> None:
    found = fault(written(tmp_path, text))
    assert found[:2] == (line, pointer)
    assert detail in found[2]


def test_a_fault_of_json_has_its_line_too(tmp_path: Path) -> None:
    line, _, detail = fault(written(tmp_path, '{"a": 1,\n "b" 2}', "t.json"))
    assert (line, detail) == (2, "is not JSON: Expecting ':' delimiter, column 6")


def test_what_is_not_utf_8_is_no_test(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_bytes(b"a: \xff")
    assert fault(tmp_path / "t.yaml")[2] == "is not UTF-8: byte 3"


def test_a_directory_stands_for_the_files_below_it(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    files = [written(tmp_path, "", "b.yml"), written(tmp_path / "deep", "", "a.json")]
    written(tmp_path, "", "notes.txt")
    assert find_files([tmp_path, files[0]]) == files


def test_a_directory_without_tests_and_an_absent_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileInvalid, match=r"no file \*\.yaml"):
        find_files([tmp_path])
    with pytest.raises(FileInvalid, match="no such file"):
        find_files([tmp_path / "absent.yaml"])
