"""Properties of WITH (...): read by name, each once; what nothing has asked for is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from engine.definition.durations import parse_duration
from engine.definition.suggestions import hint
from engine.sql.clauses import MAX_DIGITS
from engine.sql.statement_tree import Duration, Property
from engine.sql.tree import Boolean, Column, Identifier, Negative, Node, Number, Text
from engine.statements.faults import StatementRefused, StatementUnsupported

_UNITS_MS: Final = {
    "MILLISECONDS": 1, "SECONDS": 1_000, "MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000, "WEEKS": 7 * 86_400_000,
}  # fmt: skip
_READ_BY: Final = (
    "a record says which schema of the registry it has; name the registry, as in "
    """{side}_READER='{{"format": "avro", "registry": "…"}}'"""
)
_WRITTEN_BY: Final = (
    "name the schema where results are delivered: `schema` or `record` of `value` in the output's connector, as JSON"
)
_NULLS: Final = "a field without a value is NULL where the schema says `optional`; leave it out"
_ELSEWHERE: Final[Mapping[str, str]] = {
    "SOURCED_BY_CONNECTOR": "connectors run elsewhere; read the topic that it fills, and leave this out",
    "KEY_SCHEMA_ID": _READ_BY.format(side="KEY"),
    "VALUE_SCHEMA_ID": _READ_BY.format(side="VALUE"),
    "KEY_SCHEMA_FULL_NAME": _WRITTEN_BY,
    "VALUE_SCHEMA_FULL_NAME": _WRITTEN_BY,
    "VALUE_AVRO_SCHEMA_FULL_NAME": _WRITTEN_BY,
    "KEY_PROTOBUF_NULLABLE_REPRESENTATION": _NULLS,
    "VALUE_PROTOBUF_NULLABLE_REPRESENTATION": _NULLS,
}
"""Properties of ksqlDB that mean nothing here, and what to write instead."""


def milliseconds(duration: Duration) -> int:
    """Return a duration's length.

    Raises:
        StatementRefused: months and years have none.
    """
    unit = _UNITS_MS.get(duration.unit)
    if unit is None:
        raise StatementRefused("duration_malformed", f"{duration.unit} have no fixed length; use DAYS", duration)
    return int(duration.amount) * unit


def is_whole(text: str) -> bool:
    """Whether a text is a whole number without a sign, of as many digits as the language lets one have."""
    return text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS


def milliseconds_of(text: str) -> int | None:
    """Read a duration of a property: ``5 MINUTES``, ``1 MINUTE``, ``5m``; None where it is none."""
    number, _, unit = text.strip().partition(" ")
    plural = unit.strip().upper().rstrip("S") + "S"
    if is_whole(number) and plural in _UNITS_MS:
        return int(number) * _UNITS_MS[plural]
    try:
        return parse_duration(text)
    except ValueError:
        return None


class Properties:
    """The properties of one statement."""

    def __init__(self, given: Sequence[Property]) -> None:
        self._given: dict[str, Property] = {}
        self._asked: set[str] = set()
        for each in given:
            name = _name(each)
            if name in self._given:
                raise StatementRefused("duplicate_property", f"WITH has {name} twice: leave one out", each)
            self._given[name] = each

    @property
    def names(self) -> tuple[str, ...]:
        """What is given, in upper case."""
        return tuple(self._given)

    def node(self, name: str) -> Node | None:
        """Return the value of a property as it stands in the text."""
        self._asked.add(name)
        given = self._given.get(name)
        return None if given is None else given.value

    def has(self, name: str) -> bool:
        """Whether a property is given."""
        return self.node(name) is not None

    def text(self, name: str) -> str | None:
        """Return a property that is a text; words without quotes count as they stand."""
        node = self.node(name)
        match node:
            case None:
                return None
            case Text(value=value):
                return value
            case Identifier(text=value) | Column(name=Identifier(text=value)):
                return value
        raise StatementRefused("property_malformed", f"{name} is a text, as in {name}='…'", node)

    def whole(self, name: str) -> int | None:
        """Return a property that is a whole number, also where it is written as a text."""
        node = self.node(name)
        written = node.text if isinstance(node, Number) else node.value if isinstance(node, Text) else ""
        if node is None:
            return None
        if isinstance(node, Negative) or not is_whole(written):
            raise StatementRefused("property_malformed", f"{name} is a whole number from 0 on", node)
        return int(written)

    def flag(self, name: str) -> bool | None:
        """Return a property that is true or false."""
        node = self.node(name)
        if node is None:
            return None
        if isinstance(node, Boolean):
            return node.value
        if isinstance(node, Text) and node.value.lower() in ("true", "false"):
            return node.value.lower() == "true"
        raise StatementRefused("property_malformed", f"{name} is TRUE or FALSE", node)

    def duration(self, name: str) -> int | None:
        """Return a property that is a duration, in milliseconds."""
        node = self.node(name)
        if node is None:
            return None
        found = milliseconds_of(node.value) if isinstance(node, Text) else None
        if found is None:
            raise StatementRefused("duration_malformed", f"{name} is a duration, as in {name}='5 MINUTES'", node)
        return found

    def one_of(self, name: str, words: Sequence[str]) -> str | None:
        """Return a property that is one of some words, in upper case."""
        found = self.text(name)
        if found is None:
            return None
        if found.upper() not in words:
            raise StatementRefused("property_malformed", f"{name} is one of {', '.join(words)}, not {found}", self.node(name))
        return found.upper()

    def check_all_read(self) -> None:
        """Refuse what nothing has asked for."""
        for name, each in self._given.items():
            if name in _ELSEWHERE:
                raise StatementUnsupported("property_not_supported", f"{name} is not supported: {_ELSEWHERE[name]}", each)
            if name not in self._asked:
                known = sorted(self._asked)
                raise StatementRefused("unknown_property", f"WITH knows no {name} here{hint(name, known)}", each)


def _name(given: Property) -> str:
    """Return a property's name in upper case, but for the name of a column in it, whose letters count (``'AGGREGATE.n'``)."""
    text = given.name.value if isinstance(given.name, Text) else given.name.text
    head, dot, column = text.partition(".")
    return f"{head.upper()}{dot}{column}" if head.upper() == "AGGREGATE" else text.upper()
