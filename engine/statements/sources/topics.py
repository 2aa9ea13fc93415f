"""Topics and formats of WITH (...), for sources and for results."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from engine.definition.record_formats import RECORD_FORMATS, delimiter_of
from engine.expressions.types.types import STRING, ColumnType, Schema
from engine.sql.tree import Node
from engine.statements.context.faults import StatementRefused, StatementUnsupported
from engine.statements.context.naming import folded
from engine.statements.context.properties import Properties
from engine.statements.context.session import Format, Session, SqlRelation, Topic
from engine.statements.context.type_names import shown

FORMATS: Final = tuple(RECORD_FORMATS)
"""Those that the language has; the reader decides which of them can be read."""

_DEFAULT_KEY: Final = "ksql.persistence.default.format.key"
_DEFAULT_VALUE: Final = "ksql.persistence.default.format.value"
_WRAPS: Final = "ksql.persistence.wrap.single.values"


def topic_of(properties: Properties, session: Session, name: str, inherited: Topic | None, at: Node) -> Topic:
    """Return where a relation's records are.

    Args:
        properties: of the statement.
        session: with the defaults.
        name: of the topic, where KAFKA_TOPIC does not say it.
        inherited: the topic that a query reads; None for a source, whose formats must be known.
        at: what a missing property is reported at.
    """
    both = properties.one_of("FORMAT", FORMATS)
    of_key, of_value = properties.one_of("KEY_FORMAT", FORMATS), properties.one_of("VALUE_FORMAT", FORMATS)
    if both is not None and (of_key or of_value):
        other = "KEY_FORMAT" if of_key else "VALUE_FORMAT"
        detail = f"FORMAT is that of keys and of values: leave {other} out, or write KEY_FORMAT and VALUE_FORMAT"
        properties.faults.add(StatementRefused("property_clash", detail, at))
    values = session.settings.values
    key = both or of_key or (inherited.key_format.name if inherited else values.get(_DEFAULT_KEY, "KAFKA").upper())
    value = both or of_value or (inherited.value_format.name if inherited else values.get(_DEFAULT_VALUE, "").upper())
    if not value:
        value = "JSON"  # stands in for one that is malformed or missing, which is reported
        if not properties.has("FORMAT") and not properties.has("VALUE_FORMAT"):
            detail = f"say how the values are written: VALUE_FORMAT='JSON', or SET '{_DEFAULT_VALUE}' for all"
            properties.faults.add(StatementRefused("property_missing", detail, at))
    topic = Topic(
        properties.text("KAFKA_TOPIC") or name,
        _format(properties, "KEY", key, inherited.key_format if inherited else None),
        _format(properties, "VALUE", value, inherited.value_format if inherited else None),
        _positive(properties, "PARTITIONS"),
        _wraps(properties, value, session),
        None,
        None,
    )
    properties.whole("REPLICAS")
    properties.whole("RETENTION_MS")
    properties.one_of("CLEANUP_POLICY", ("COMPACT", "DELETE", "COMPACT,DELETE", "DELETE,COMPACT"))
    return topic


def with_fitting_key(
    topic: Topic, columns: Schema, key: tuple[str, ...], properties: Properties, session: Session, at: Node
) -> Topic:
    """Return the topic of a relation in the built-in log with keys in JSON, where no one says how they are written and KAFKA cannot.

    Args:
        topic: as ``topic_of`` gives it.
        columns: of the relation.
        key: names of the key's columns.
        properties: of the statement.
        session: with the defaults.
        at: see ``check_formats``.
    """
    is_said = any(map(properties.has, ("FORMAT", "KEY_FORMAT"))) or _DEFAULT_KEY in session.settings.values
    if is_said or topic.key_format.name != "KAFKA":
        return topic
    try:
        _check_format(topic.key_format, [(name, columns[name]) for name in key], "key", at)
    except StatementRefused:
        return replace(topic, key_format=Format("JSON"))
    return topic


def check_topic(relation: SqlRelation, tree: Node, session: Session) -> None:
    """Refuse a new relation of the built-in log that names another one's topic: there it would have records of its own, unlike in a broker.

    Args:
        relation: the new one.
        tree: the statement that makes it; without KAFKA_TOPIC it claims no topic.
        session: as the statement was bound.

    Raises:
        StatementRefused: ``topic_taken``.
    """
    given = next((each for each in getattr(tree, "properties", ()) if folded(each.name).upper() == "KAFKA_TOPIC"), None)
    if given is None or relation.name in session.relations or not relation.entry.feed.traits.is_kept_here:
        return
    others = (each for each in session.relations.values() if each.topic.name == relation.topic.name)
    other = next((each for each in others if each.entry.feed.traits.is_kept_here), None)
    if other is None or other.entry.feed.name == relation.entry.feed.name:
        return
    way = f"read {other.name} itself, whose query writes it"
    if other.entry.produced_by is None:
        way = f"write FEED='{other.entry.feed.log_feed}' to read the same records"
    if relation.entry.produced_by is not None:
        way = f"write INSERT INTO {other.name} SELECT … to add to its records"
    detail = (
        f"{other.name} has the topic {relation.topic.name!r}, and in the built-in log a topic is of one relation: {way}, give another "
        "KAFKA_TOPIC for a log of its own, or name a broker by CONNECTION"
    )
    raise StatementRefused("topic_taken", detail, given)


def _positive(properties: Properties, name: str) -> int | None:
    found = properties.whole(name)
    if found == 0:
        properties.malformed(name, f"{name} is 1 or more")
        return None
    return found


def _format(properties: Properties, side: str, name: str, inherited: Format | None) -> Format:
    node = properties.node(f"{side}_DELIMITER")
    written = properties.text(f"{side}_DELIMITER")
    if written is None or properties.is_unreadable("FORMAT", f"{side}_FORMAT"):
        return inherited if inherited is not None and inherited.name == name else Format(name)
    if not RECORD_FORMATS[name].takes_delimiter:
        properties.faults.add(StatementRefused("property_clash", f"{name} has no delimiter: leave {side}_DELIMITER out", node))
        return Format(name)
    try:
        return Format(name, delimiter_of(written))
    except ValueError as error:
        properties.malformed(f"{side}_DELIMITER", f"{side}_DELIMITER cannot be {written!r}: {error}")
        return Format(name)


def _wraps(properties: Properties, value_format: str, session: Session) -> bool | None:
    given, form = properties.flag("WRAP_SINGLE_VALUE"), RECORD_FORMATS[value_format]
    if given is not None:
        if not properties.is_unreadable("FORMAT", "VALUE_FORMAT") and not (form.can_wrap if given else form.can_unwrap):
            detail = f"{value_format} has one way to write a single value: leave WRAP_SINGLE_VALUE out"
            properties.faults.add(StatementRefused("property_clash", detail, properties.node("WRAP_SINGLE_VALUE")))
        return given
    default = session.settings.values.get(_WRAPS)
    return None if default is None or not form.can_wrap else default.lower() == "true"


def check_formats(topic: Topic, columns: Schema, key: tuple[str, ...], at: Node, *, is_wrap_given: bool) -> None:
    """Refuse columns that a format cannot hold."""
    keys = [(name, kind) for name, kind in columns.items() if name in key]
    values = [(name, kind) for name, kind in columns.items() if name not in key]
    if topic.key_format.name == "NONE" and keys:
        raise StatementRefused("format_clash", "KEY_FORMAT NONE is for relations without a key: give another one, or no key", at)
    _check_format(topic.key_format, keys, "key", at)
    _check_format(topic.value_format, values, "value", at)
    if is_wrap_given and len(values) != 1:
        raise StatementRefused("property_clash", "WRAP_SINGLE_VALUE is for relations with one value column: leave it out", at)


def _check_format(form: Format, columns: list[tuple[str, ColumnType]], side: str, at: Node) -> None:
    known = RECORD_FORMATS[form.name]
    if known.is_single and len(columns) > 1:
        raise StatementRefused(
            "format_clash",
            f"{form.name} writes one column, and the {side} has {len(columns)}: write {side.upper()}_FORMAT='JSON', or another that "
            "writes several",
            at,
        )
    if form.name == "JSON":
        for name, kind in columns:
            if any(each.kind == "map" and each.key != STRING for each in kind.walk()):
                raise StatementRefused(
                    "format_clash",
                    f"{name}: keys of a JSON object are texts, and {shown(kind)} has others; CAST them to STRING",
                    at,
                )
    if form.name == "NONE" and columns:
        raise StatementRefused(
            "format_clash", f"{side.upper()}_FORMAT NONE writes nothing, and there are columns: choose another format", at
        )
    if side == "key":
        _check_key_types(form, columns, at)
    for name, kind in columns:
        odd = known.unholdable(kind, is_key=side == "key")
        if odd is not None:
            raise StatementRefused(
                "format_clash",
                f"{name}: {form.name} has no way to write {shown(odd)}; CAST the column, or choose another {side.upper()}_FORMAT",
                at,
            )


def _check_key_types(form: Format, columns: list[tuple[str, ColumnType]], at: Node) -> None:
    for name, kind in columns:
        if any(each.kind == "map" for each in kind.walk()):
            raise StatementRefused(
                "key_type",
                f"{name} is {shown(kind)}: a key holds no MAP, whose entries have no order; use a STRUCT or an ARRAY",
                at,
            )
        if form.name.startswith("PROTOBUF") and kind.is_nested:
            raise StatementUnsupported(
                "format_not_supported", f"{form.name} has no keys of type {shown(kind)}: give another KEY_FORMAT", at
            )
