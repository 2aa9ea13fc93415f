"""Properties of WITH (...): read by name, each once; what nothing has asked for is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from engine.definition.sources.connector_list import MODELS
from engine.expressions.durations import parse_duration
from engine.expressions.suggestions import hint, meant
from engine.sql.statement_tree import Duration, Property
from engine.sql.statements.clauses import MAX_DIGITS
from engine.sql.tree import Boolean, Column, Identifier, Negative, Node, Number, Text
from engine.statements.context.faults import Faults, StatementFault, StatementRefused, StatementUnsupported, raise_all, together

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


_OWN: Final = frozenset({
    "APPEND_TO", "CLEANUP_POLICY", "CLOCK", "CONFLICT", "DESIRED_STATE", "DIALECT", "EMIT_AT", "EMIT_BUFFER_BYTES", "EMIT_BUFFER_ROWS",
    "EMIT_EVENT_DRIVEN", "EMIT_EVERY", "EMIT_ON_FULL", "EMIT_WAIT", "EVENT_TIME_FORMAT", "EVENT_TIME_UNIT", "FEED_WHERE",
    "FORMAT", "FROM.WHERE", "HISTORY_RETENTION", "IDLE_AFTER", "INTO_CONNECTOR", "KAFKA_TOPIC", "KEY", "KEY_DELIMITER",
    "KEY_FORMAT", "LATE_RECORDS_MAX_ROWS", "LATE_RECORDS_RETENTION", "LOG_RETENTION", "MATERIALIZE", "MATERIALIZE_OPEN",
    "MAX_FUTURE_SKEW", "MEMORY_MB", "ON_BAD_RECORD", "ON_ERROR", "PARTITIONS", "QUERY_ID", "REPLICAS", "RETENTION_MS", "START",
    "STATE", "TASKS", "TIMEOUT", "TIMESTAMP", "TIMESTAMP_FORMAT", "VALUE_DELIMITER", "VALUE_FORMAT", "WINDOW_SIZE",
    "WINDOW_TYPE", "WRAP_SINGLE_VALUE",
})  # fmt: skip
_OF_PARTS: Final = ("JOIN.", "AGGREGATE.")
NAMES: Final = _OWN | {clause.name for model in MODELS.values() for clause in model.clauses} | _ELSEWHERE.keys()
"""What properties may be called, whatever the statement; beside them those of joins and aggregates (``JOIN.W.GRACE``, ``AGGREGATE.N``)."""

_FOLLOWING: Final = ("property_missing", "property_clash")
"""Codes of what may be wrong only because another property cannot be read."""


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
    """The properties of one statement.

    One that is malformed counts as absent, and so does a part of the statement that is wrong, until ``gathered`` or ``check_all_read``
    reports all of them.

    Attributes:
        faults: of the statement's other parts; they are reported with those of the properties.
    """

    def __init__(self, given: Sequence[Property]) -> None:
        self._given: dict[str, Property] = {}
        self._asked: set[str] = set()
        self._unreadable: set[str] = set()
        self._faults: list[StatementFault] = []
        self.faults = Faults()
        for each in given:
            name = _name(each)
            if name in self._given:
                self._faults.append(StatementRefused("duplicate_property", f"WITH has {name} twice: leave one out", each))
            self._given.setdefault(name, each)

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
        self.malformed(name, f"{name} is a text, as in {name}='…'")
        return None

    def whole(self, name: str) -> int | None:
        """Return a property that is a whole number, also where it is written as a text."""
        node = self.node(name)
        written = node.text if isinstance(node, Number) else node.value if isinstance(node, Text) else ""
        if node is None:
            return None
        if isinstance(node, Negative) or not is_whole(written):
            self.malformed(name, f"{name} is a whole number from 0 on")
            return None
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
        self.malformed(name, f"{name} is TRUE or FALSE")
        return None

    def duration(self, name: str) -> int | None:
        """Return a property that is a duration, in milliseconds."""
        node = self.node(name)
        if node is None:
            return None
        found = milliseconds_of(node.value) if isinstance(node, Text) else None
        if found is None:
            self.malformed(name, f"{name} is a duration, as in {name}='5 MINUTES'", "duration_malformed")
        return found

    def one_of(self, name: str, words: Sequence[str]) -> str | None:
        """Return a property that is one of some words, in upper case."""
        found = self.text(name)
        if found is None:
            return None
        if found.upper() not in words:
            near = meant(found, words)
            ending = "" if near is None else f"; did you mean {near}?"
            self.malformed(name, f"{name} is one of {', '.join(words)}, not {found}{ending}")
            return None
        return found.upper()

    def malformed(self, name: str, sentence: str, code: str = "property_malformed") -> None:
        """Report a property that cannot be read."""
        self._unreadable.add(name)
        self._faults.append(StatementRefused(code, sentence, self.node(name)))

    def is_unreadable(self, *names: str) -> bool:
        """Whether one of these properties is malformed: what depends on it cannot be judged."""
        return not self._unreadable.isdisjoint(names)

    @property
    def has_faults(self) -> bool:
        """Whether something has been reported."""
        return bool(self._faults or self.faults.listed)

    def check_all_read(self) -> None:
        """Refuse what is malformed, what nothing has asked for, and the parts of the statement that are wrong.

        Raises:
            StatementFault: with every fault.
        """
        if self.faults.listed:
            raise self.refusal()
        unread = [name for name in self._given if name not in self._asked or name in _ELSEWHERE]
        raise_all([*self._faults, *(self._unread(name, sorted(self._asked)) for name in unread)])

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Report a fault of the statement together with those of its properties.

        Raises:
            StatementFault: with every fault.
        """
        try:
            yield
        except StatementFault as fault:
            raise self.refusal(fault.all) from fault

    def refusal(self, raised: Sequence[StatementFault] = ()) -> StatementFault:
        """Return faults of the statement together with those of its properties, without what only follows from the latter."""
        unknown = [name for name in self._given if name not in NAMES | self._asked and not name.startswith(_OF_PARTS)]
        own = [*self._faults, *(self._unread(name, sorted(NAMES)) for name in unknown)]
        spans = {each.span for each in own}
        further = [each for each in (*self.faults.listed, *raised) if each.span is None or each.span not in spans]
        if any(
            each.code == "relation_exists" for each in further
        ):  # a query with a name of its own would read no result of its own
            further = [each for each in further if each.code != "query_cycle"]
        return together([*own, *(each for each in further if not own or each.code not in _FOLLOWING)])

    def _unread(self, name: str, known: Sequence[str]) -> StatementFault:
        given = self._given[name]
        if name in _ELSEWHERE:
            return StatementUnsupported("property_not_supported", f"{name} is not supported: {_ELSEWHERE[name]}", given)
        return StatementRefused("unknown_property", f"WITH knows no {name} here{hint(name, known)}", given)


def _name(given: Property) -> str:
    """Return a property's name in upper case, but for the name of a column in it, whose letters count (``'AGGREGATE.n'``)."""
    text = given.name.value if isinstance(given.name, Text) else given.name.text
    head, dot, column = text.partition(".")
    return f"{head.upper()}{dot}{column}" if head.upper() == "AGGREGATE" else text.upper()
