"""Reading test files: YAML or JSON, with the line of every value, so that a fault can be shown where it is.

YAML is read by the core schema of YAML 1.2: ``on`` and ``no`` are texts, and so are times. That makes JSON a part of it, and lets
the bodies of requests be pasted as they are. Knows nothing of what a test file means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

SUFFIXES: Final = (".yaml", ".yml", ".json")
"""What a directory is searched for."""

_TAG: Final = "tag:yaml.org,2002:"
_KINDS: Final = ("null", "bool", "int", "float", "str", "seq", "map")


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One fault of a test file.

    Attributes:
        pointer: RFC 6901 pointer into the document.
        detail: what is wrong and how to mend it.
        line: from 1; None where it is not known.
    """

    pointer: str
    detail: str
    line: int | None = None


class FileInvalid(Exception):
    """A file, or one document in it, is no test that could be run."""

    def __init__(self, path: Path, problems: list[FileProblem]) -> None:
        super().__init__("; ".join(f"{path}: {problem.pointer} {problem.detail}" for problem in problems))
        self.path = path
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file.

    Attributes:
        value: what it says, as ``json.loads`` would give it.
        lines: pointer → line of every value.
    """

    path: Path
    value: Any
    lines: Mapping[str, int] = field(default_factory=dict)

    def line_of(self, pointer: str) -> int | None:
        """Return the line of a value, or of the nearest one around it that there is."""
        while pointer not in self.lines:
            if not pointer:
                return None
            pointer = pointer.rpartition("/")[0]
        return self.lines[pointer]


def find_files(paths: list[Path]) -> list[Path]:
    """Return the files meant: a directory stands for every YAML and JSON file below it, by name.

    Raises:
        FileInvalid: there is no such file, or no test file in the directory.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
            if not inside:
                raise FileInvalid(path, [FileProblem("", f"there is no file *{', *'.join(SUFFIXES)} in this directory")])
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise FileInvalid(path, [FileProblem("", "there is no such file")])
    return list(dict.fromkeys(found))


def read_documents(path: Path) -> list[Document]:
    """Read a file; empty documents are left out.

    Raises:
        FileInvalid: it cannot be read, is neither YAML nor JSON, or has no document.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileInvalid(path, [FileProblem("", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise FileInvalid(path, [FileProblem("", f"is not UTF-8: byte {error.start}")]) from error
    documents = _read_json(path, text) if path.suffix == ".json" else _read_yaml(path, text)
    documents = [document for document in documents if document.value is not None]
    if not documents:
        raise FileInvalid(path, [FileProblem("", "holds no test; see app/testing/README.md for what one looks like")])
    return documents


def _read_json(path: Path, text: str) -> list[Document]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise FileInvalid(path, [FileProblem("", f"is not JSON: {error.msg}, column {error.colno}", error.lineno)]) from error
    except RecursionError as error:
        raise FileInvalid(path, [FileProblem("", "is nested too deeply")]) from error
    # YAML's scanner knows no tabs between tokens; inside JSON's strings there are none.
    return [Document(path, value, each.lines) for each in _read_yaml(path, text.replace("\t", " "))]


def _read_yaml(path: Path, text: str) -> list[Document]:
    loader = _Loader(text)
    documents: list[Document] = []
    try:
        while loader.check_node():
            if (node := loader.get_node()) is not None:
                lines = _lines(path, node)
                documents.append(Document(path, loader.construct_document(node), lines))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f", column {mark.column + 1}"
        problem = FileProblem(
            "", f"is not YAML: {error.problem or error.context}{where}", None if mark is None else mark.line + 1
        )
        raise FileInvalid(path, [problem]) from error
    except yaml.YAMLError as error:
        raise FileInvalid(path, [FileProblem("", f"is not YAML: {error}")]) from error
    except RecursionError as error:
        raise FileInvalid(path, [FileProblem("", "is nested too deeply")]) from error
    finally:
        loader.dispose()
    return documents


def _lines(path: Path, root: yaml.Node) -> dict[str, int]:
    """Return the line of every value, and refuse what JSON does not have: keys twice, keys that are no text, other types, endless values."""
    lines: dict[str, int] = {}
    faults: list[FileProblem] = []
    for pointer, node, above in _walk("", root, ()):
        line = node.start_mark.line + 1
        lines.setdefault(pointer, line)
        if node in above:
            raise FileInvalid(path, [FileProblem(pointer, "an alias names a value around it", line)])
        faults += _faults(pointer, node)
    if faults:
        raise FileInvalid(path, faults)
    return lines


def _walk(pointer: str, node: yaml.Node, above: tuple[yaml.Node, ...]) -> Iterator[tuple[str, yaml.Node, tuple[yaml.Node, ...]]]:
    yield pointer, node, above
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _walk(f"{pointer}/{_escaped(key.value)}", value, (*above, node))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _walk(f"{pointer}/{index}", value, (*above, node))


def _faults(pointer: str, node: yaml.Node) -> Iterator[FileProblem]:
    if node.tag.removeprefix(_TAG) not in _KINDS:
        yield FileProblem(
            pointer, f"the tag {node.tag.replace(_TAG, '!!')} has no place in a test file", node.start_mark.line + 1
        )
    if not isinstance(node, yaml.MappingNode):
        return
    seen = set[str]()
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if key.tag not in (f"{_TAG}str", f"{_TAG}merge"):
            yield FileProblem(pointer, f"the key {str(key.value)[:40]!r} must be a text: put it in quotes", line)
        elif key.value in seen:
            yield FileProblem(f"{pointer}/{_escaped(key.value)}", f"there is a second {key.value!r} here", line)
        seen.add(str(key.value))


def _escaped(part: object) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


class _Loader(yaml.SafeLoader):
    """SafeLoader with the implicit types of YAML 1.2's core schema instead of those of 1.1, and merge keys."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own way
    """First character → types that a plain scalar may have."""


def _whole(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text.startswith(("0o", "0x")) else int(text)


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(str(loader.construct_scalar(node)).replace(".inf", "inf").replace(".nan", "nan"))


_DIGITS = "0123456789"
_Loader.add_implicit_resolver(f"{_TAG}null", re.compile(r"(?:~|null)?$"), ["~", "n", ""])
_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile(r"(?:true|false)$"), ["t", "f"])
_Loader.add_implicit_resolver(f"{_TAG}int", re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), list(f"-+{_DIGITS}"))
_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)$"),
    list(f"-+.{_DIGITS}"),
)
_Loader.add_implicit_resolver(f"{_TAG}merge", re.compile(r"<<$"), ["<"])
_Loader.add_constructor(f"{_TAG}int", _whole)
_Loader.add_constructor(f"{_TAG}float", _number)
