"""Files of definitions: ``.sql``, ``.yaml`` and ``.json``, parsed into definitions. Knows no service.

A document of YAML or JSON is a definition in the service's form, with one additional member for its name: ``stream: orders``,
``table: prices`` or ``query: totals``. An SQL file has CREATE STREAM, CREATE TABLE and INSERT INTO … SELECT; SET and DEFINE apply to later
statements.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from slackwater.cli.options.failing import FAILED, UsageError
from slackwater.cli.options.naming import inputs_of
from slackwater.cli.statements import Statement, statements_of

KINDS: Final = ("stream", "table", "query")
SUFFIXES: Final = (".sql", ".yaml", ".yml", ".json")
MAX_VALUES: Final = 100_000
"""Limit of values in a YAML document: a few lines of nested aliases can be gigabytes."""


@dataclass(frozen=True, slots=True)
class FileDefinition:
    """One definition of a file.

    Attributes:
        line: in the file; 1 if unknown.
        name: of a stream, a table or a query; for SQL, of its result, if known.
        definition: of a stream, a table or a query.
        sql: the statement, after the SET and DEFINE that apply to it.
        provides: names of relations that it creates.
        mentions: names that it may depend on.
    """

    file: Path
    line: int
    kind: Literal["stream", "table", "query", "sql"]
    name: str | None
    definition: Mapping[str, Any] | None = None
    sql: str | None = None
    statement: Statement | None = None
    provides: frozenset[str] = frozenset()
    mentions: frozenset[str] = frozenset()

    @property
    def place(self) -> str:
        """File and line, for people."""
        return f"{self.file}:{self.line}"

    def body(self) -> dict[str, Any]:
        """Return it in the form for the service's comparison."""
        if self.kind == "sql":
            return {"kind": "sql", "sql": self.sql}
        return {"kind": self.kind, "name": self.name, "definition": self.definition}


def read_files(root: Path) -> list[FileDefinition]:
    """Read every definition below a directory, or of one file, in the order of their dependencies.

    Raises:
        UsageError: there are none, files cannot be read, or two define the same thing; with every fault.
    """
    if not root.exists():
        raise UsageError(f"there is no {root}", "name a directory of .sql, .yaml or .json files, or one such file")
    paths = [root] if root.is_file() else sorted(path for path in root.rglob("*") if _counts(path, root))
    definitions: list[FileDefinition] = []
    faults: list[str] = []
    for path in paths:
        try:
            definitions += _read(path, path if root.is_file() else path.relative_to(root))
        except UsageError as error:
            faults.append(error.detail)
        except (OSError, UnicodeDecodeError) as error:
            faults.append(f"{path}: {error}")
    faults += _doubles(definitions)
    if faults:
        raise UsageError("\n".join(faults), "nothing was asked of the service", FAILED)
    if not definitions:
        raise UsageError(
            f"{root} has no definitions",
            f"put files there that end in {', '.join(SUFFIXES)}; slackwater export {root} makes them",
        )
    return in_order(definitions)


def read_others(root: Path, besides: Collection[Path]) -> list[FileDefinition]:
    """Read the definitions of a directory, except those of some files.

    Args:
        root: the directory; it may not exist.
        besides: files below it to leave out.

    Raises:
        UsageError: a file cannot be read.
    """
    paths = sorted(path for path in root.rglob("*") if _counts(path, root) and path.relative_to(root) not in besides)
    return [each for path in paths for each in _read(path, path.relative_to(root))]


def _counts(path: Path, root: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    return path.is_file() and path.suffix.lower() in SUFFIXES and not is_hidden


def _read(path: Path, shown: Path) -> Iterator[FileDefinition]:
    text = path.read_text(encoding="utf-8")
    if path.suffix.lower() == ".sql":
        yield from _statements(text, shown)
        return
    if path.suffix.lower() == ".json":
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{shown}: no JSON: {error}") from error
        documents = [(1, each) for each in (parsed if isinstance(parsed, list) else [parsed])]
    else:
        documents = list(_documents(text, shown))
    for line, document in documents:
        yield _read_document(document, shown, line)


def _statements(text: str, shown: Path) -> Iterator[FileDefinition]:
    before: list[str] = []
    for statement in statements_of(text):
        if statement.is_setting:
            before.append(statement.text)
            continue
        sql = "".join(f"{each};\n" for each in (*before, statement.text))
        created = statement.created
        provides = frozenset() if created is None else frozenset({created})
        yield FileDefinition(shown, statement.line, "sql", created, None, sql, statement, provides, statement.names - provides)


def _read_document(document: Any, shown: Path, line: int) -> FileDefinition:
    """Read one document.

    Raises:
        UsageError: it is not a definition.
    """
    place = f"{shown}:{line}"
    if not isinstance(document, dict):
        raise UsageError(f"{place}: a definition is a mapping that begins with stream:, table: or query:")
    named = [kind for kind in KINDS if kind in document]
    if not named and "name" in document and "from" in document:  # the form of a POST body
        document, named = {"query": document["name"], **document}, ["query"]
    if len(named) != 1 or not isinstance(document[named[0]], str):
        raise UsageError(f"{place}: say once what it is and how it is called, as in `table: prices`")
    kind, name = named[0], document[named[0]]
    body = {key: value for key, value in document.items() if key != kind}
    if kind != "query":
        feed = (body.get("connector") or {}).get("feed") if isinstance(body.get("connector"), dict) else None
        mentions = frozenset() if feed is None else frozenset({str(feed)})
        return FileDefinition(shown, line, kind, name, body, provides=frozenset({name}), mentions=mentions)  # type: ignore[arg-type]  # one of KINDS
    target = body.get("into")
    into: dict[str, Any] = target if isinstance(target, dict) else {}
    if not into.get("stream") and not into.get("table"):
        raise UsageError(f"{place}: query {name} does not say what it writes: into: {{table: {name}}}")
    provides = frozenset(str(into[each]) for each in ("stream", "table") if into.get(each))
    mentions = frozenset({*inputs_of(body), *([str(into["append_to"])] if into.get("append_to") else [])})
    return FileDefinition(shown, line, "query", name, {**body, "name": name}, provides=provides, mentions=mentions - provides)


def _doubles(definitions: list[FileDefinition]) -> Iterator[str]:
    """Yield an error for each name that is defined twice."""
    by_name: dict[tuple[str, str], FileDefinition] = {}
    for each in definitions:
        if each.name is None:
            continue
        names = [("query", each.name)] if each.kind == "query" else []
        for key in [*names, *(("relation", name) for name in each.provides)]:
            if key in by_name:
                yield f"{each.place}: {key[1]} is defined in {by_name[key].place} already"
            by_name.setdefault(key, each)


def in_order(definitions: list[FileDefinition]) -> list[FileDefinition]:
    """Return definitions after those that they depend on, otherwise in the order of files. The service reports cycles."""
    makers = {name: each for each in definitions for name in each.provides}
    done: dict[int, FileDefinition] = {}
    under_way: set[int] = set()

    def take(each: FileDefinition) -> None:
        if id(each) in done or id(each) in under_way:
            return
        under_way.add(id(each))
        for name in sorted(each.mentions):
            if name in makers:
                take(makers[name])
        done[id(each)] = each

    for each in definitions:
        take(each)
    return list(done.values())


class _Loader(yaml.SafeLoader):
    """YAML 1.2: ``on`` and ``no`` are texts, times stay texts, and a key must be unique."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as the class above declares it


for tag, pattern, first in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", "n~\0"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
):
    starts = ["" if each == "\0" else each for each in first]
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), starts)


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    unique_keys: set[Any] = set()
    for place, key in enumerate(keys):
        mark = node.value[place][0].start_mark
        if isinstance(key, dict | list | set):
            raise yaml.constructor.ConstructorError(None, None, "a key is a text", mark)
        if key in unique_keys:
            raise yaml.constructor.ConstructorError(None, None, f"{key!r} appears twice", mark)
        unique_keys.add(key)
    return dict(zip(keys, (loader.construct_object(value, deep=True) for _, value in node.value), strict=True))


def _whole(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    """Read a whole number in base ten, as in YAML 1.2, with or without leading zeros."""
    return int(loader.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _whole)


def _size(node: Any, known: dict[int, int]) -> int:
    """Return the number of values of a node with every alias (``*name``) expanded."""
    if id(node) not in known:
        known[id(node)] = 1  # for a cycle, which is refused later
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        known[id(node)] = 1 if isinstance(node, yaml.ScalarNode) else 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


def _documents(text: str, shown: Path) -> Iterator[tuple[int, Any]]:
    """Yield the documents of a YAML file with their first lines."""
    loader = _Loader(text)
    try:
        while loader.check_node():
            node: Any = loader.get_node()
            if _size(node, {}) > MAX_VALUES:
                detail = f"more than {MAX_VALUES:,} values, with every alias expanded"
                raise yaml.composer.ComposerError(None, None, detail, node.start_mark)
            document = loader.construct_document(node)
            if document is not None:
                yield node.start_mark.line + 1, document
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{shown}:{mark.line + 1}" if mark is not None else str(shown)
        raise UsageError(f"{place}: {getattr(error, 'problem', None) or error}") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise UsageError(f"{shown}: a value cannot be read: {error}") from error  # a tag such as !!int does not fit its value
    finally:
        loader.dispose()
