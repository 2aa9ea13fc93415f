"""Definitions of the service as files: ``slackwater export``. It asks the service to confirm that applying them changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from slackwater.answers.answer_list import QueryAnswer, RelationAnswer
from slackwater.blocking.client import Client
from slackwater.cli.definitions.files import FileDefinition
from slackwater.cli.definitions.plan import compared, is_meant
from slackwater.cli.options.failing import FAILED, UsageError
from slackwater.cli.options.naming import result_of

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.$-]*")

USUAL: Final[Mapping[str, Any]] = {
    "dialect": "standard",
    "start": "earliest",
    "desired_state": "running",
    "suppress": {"mode": "none", "limit": None, "buffer": None, "event_driven": False},
    "late_records": {"max_rows": 100_000, "retention": "7d"},
    "max_future_skew": "1d",
    "on_bad_record": "reject",
    "conflict": "latest_arrival",
    "materialize": False,
    "materialize_open": False,
    "read_only": False,
    "unversioned_ok": False,
    "history": "latest",
    "event_driven": False,
}
"""Default values of definitions, by name of the field.

A wrong entry makes no wrong file: if a shortened file would change something, the whole definition is written.
"""


@dataclass(frozen=True, slots=True)
class Exported:
    """One file.

    Attributes:
        path: below the directory.
        defines: its relation, and ``query/NAME`` for a query.
    """

    path: Path
    text: str
    defines: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Exported:
    kind: str
    name: str
    definition: dict[str, Any]

    @property
    def defines(self) -> frozenset[str]:
        return frozenset({f"query/{self.name}", result_of(self.definition)}) if self.kind == "query" else frozenset({self.name})

    def body(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "definition": definition}


def exported(client: Client, *, patterns: Sequence[str] = (), as_sql: bool = False) -> list[Exported]:
    """Return files for all definitions of the service, without internal ones.

    Args:
        client: of the service.
        patterns: of names; none: all.
        as_sql: write queries as statements if these mean the same.

    Raises:
        UsageError: a name cannot be a file name.
    """
    everything = list(_everything(client))
    for each in everything:
        # Do not trust names from the service as file names.
        if _NAME.fullmatch(each.name) is None:
            raise UsageError(
                f"{each.name!r} can be the name of no file", "nothing was written; is this the URL of a service?", FAILED
            )
    selected = [each for each in everything if is_meant(each.name, patterns)]
    if not selected:
        return []
    short = [each.body(_short(each.definition)) for each in selected]
    is_same = _unchanged(client, short)
    statements = _statements(client, selected) if as_sql else {}
    files: list[Exported] = []
    for place, each in enumerate(selected):
        if each.name in statements and each.kind == "query":
            files.append(Exported(Path("queries") / f"{each.name}.sql", statements[each.name], each.defines))
            continue
        folder = {"stream": "streams", "table": "tables", "query": "queries"}[each.kind]
        definition = short[place]["definition"] if place in is_same else each.definition
        files.append(Exported(Path(folder) / f"{each.name}.yaml", yaml_of(each.kind, each.name, definition), each.defines))
    return files


def defined_in(client: Client, definitions: Sequence[FileDefinition]) -> dict[str, str]:
    """Return the names that files define: the name of a relation, or ``query/NAME`` → file and line.

    The service is asked, because a statement does not contain the name of its query.
    """
    places = {name: each.place for each in definitions for name in each.provides}
    for item in compared(client, [each.body() for each in definitions]) if definitions else ():
        if item.name is not None:
            places[f"query/{item.name}" if item.kind == "query" else item.name] = definitions[item.index].place
    return places


def _unchanged(client: Client, bodies: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the indexes of definitions that would change nothing."""
    return {item.index for item in compared(client, bodies) if item.action == "no_op"}


def _statements(client: Client, selected: Sequence[_Exported]) -> dict[str, str]:
    """Return queries as statements, if these mean exactly the same, and the query is meant to run, because SQL cannot say otherwise."""
    texts = {
        each.name: client.query(each.name).info()
        for each in selected
        if each.kind == "query" and "desired_state" not in each.definition
    }
    written = {name: (info.statement or info.sql).rstrip(";") + ";\n" for name, info in texts.items()}
    if not written:
        return {}
    places = _unchanged(client, [{"kind": "sql", "sql": text} for text in written.values()])
    return {name: text for place, (name, text) in enumerate(written.items()) if place in places}


def _everything(client: Client) -> Iterator[_Exported]:
    relations: list[RelationAnswer] = [*client.streams(), *client.tables()]
    for relation in relations:
        if relation.origin == "source":
            yield _Exported(relation.kind, relation.name, dict(relation.definition))
    queries: list[QueryAnswer] = [each for each in client.queries.list() if not each.internal]
    for query in queries:
        body = {name: value for name, value in query.definition.items() if name != "name"}
        if body.get("desired_state") == "running":  # the usual case: without it in the file, a query can be paused by hand
            del body["desired_state"]
        yield _Exported("query", query.name, body)


def _short(value: Any) -> Any:
    """Remove members without information: nulls, empty lists and default values."""
    if isinstance(value, Mapping):
        members = {name: each for name, each in value.items() if each is not None or name == "max_future_skew"}
        members = {
            name: each for name, each in members.items() if each not in ([], {}) and (name not in USUAL or each != USUAL[name])
        }
        return {name: _short(each) for name, each in members.items()}
    return [_short(each) for each in value] if isinstance(value, list) else value


def yaml_of(kind: str, name: str, definition: Mapping[str, Any]) -> str:
    """Return a definition as a YAML document."""
    document = {kind: name, **definition}
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks; words that are booleans in older YAML (``on``) in quotes, so that any program reads them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - as the class above has it
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)
