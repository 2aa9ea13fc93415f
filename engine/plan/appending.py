"""Checks ``into.append_to``: whether a query's records can be records of another stream as well.

The query writes a stream of its own, a *part* of the other one. Who reads that reads all its parts, each in its own order, merged by event
time (T2, P6): the queries' commits may interleave as they like.
"""

from __future__ import annotations

from engine.definition.problems import Problems
from engine.definition.queries import QueryDefinition
from engine.expressions.suggestions import hint
from engine.expressions.types.types import ColumnType
from engine.plan.catalog import Catalog, CatalogEntry
from engine.plan.model import Output

POINTER = "/into/append_to"


def check_append(definition: QueryDefinition, output: Output, catalog: Catalog, problems: Problems) -> None:
    """Add what keeps a result from being a part of the stream that it names."""
    name = output.append_to
    if name is None:
        return
    target = catalog.get(name)
    if name == output.name:
        detail = f"{name} is what the query writes; give that another name, such as {name}_{definition.name}"
        problems.add(POINTER, "name_clash", detail)
    elif target is None:
        known = [each for each, entry in catalog.items() if entry.relation.kind == "stream" and not entry.is_hidden]
        problems.add(POINTER, "unknown_relation", f"there is no stream {name!r}{hint(name, known)}")
    elif target.relation.kind != "stream":
        detail = f"{name} is a table, whose rows replace each other; records are appended to streams"
        problems.add(POINTER, "wrong_kind", detail)
    elif target.append_to is not None:
        detail = f"{name} is a part of {target.append_to}, as this query's result would be; append to {target.append_to}"
        problems.add(POINTER, "unsupported_option", detail)
    elif target.is_read_only:
        detail = (
            f"{name} is read only (`CREATE SOURCE STREAM`): others fill it; append to another stream, or make it writable first"
        )
        problems.add(POINTER, "read_only", detail)
    elif target.relation.where is not None:
        detail = f"{name} has of a shared feed what its `where` lets through; append to a stream without one, and read both"
        problems.add(POINTER, "unsupported_option", detail)
    else:
        _check_columns(target, output, problems)


def _check_columns(target: CatalogEntry, output: Output, problems: Problems) -> None:
    relation = target.relation
    for column, kind in output.columns.items():
        pointer = f"/select/{column}"
        if column not in relation.columns:
            near = hint(column, relation.columns.names)
            problems.add(pointer, "unknown_column", f"{relation.name} has no column {column!r}{near}; it has {_shown(target)}")
        elif (wanted := relation.columns[column]) != kind and not is_wider(kind, wanted):
            problems.add(
                pointer, "type_mismatch", f"{relation.name}.{column} is {wanted}, and this is {kind}; CAST it to {wanted}"
            )
    needed = (*relation.key, *([] if relation.event_time is None else [relation.event_time]))
    for column in dict.fromkeys(needed):
        if column not in output.columns:
            what = "event time" if column == relation.event_time else "key"
            problems.add("/select", "unknown_column", f"the {what} of {relation.name} is missing: select {column!r} as well")


def _shown(target: CatalogEntry) -> str:
    columns: list[tuple[str, ColumnType]] = list(target.relation.columns.items())
    return ", ".join(f"{name} {kind}" for name, kind in columns)


_DIGITS = {"int": 10, "bigint": 19}
"""Digits of whole numbers of each type."""


def is_wider(narrow: ColumnType, wide: ColumnType) -> bool:
    """Whether each value of ``narrow`` is a value of ``wide``, unrounded; false for equal types.

    A bigint beyond 2^53 is rounded as a double, so only an int becomes one.

    >>> from engine.expressions.types.types import parse_type
    >>> is_wider(parse_type("int"), parse_type("bigint")), is_wider(parse_type("bigint"), parse_type("double"))
    (True, False)
    """
    return narrow != wide and _holds(wide, narrow)


def _holds(wide: ColumnType, narrow: ColumnType) -> bool:
    if narrow == wide:
        return True
    if narrow.is_integer:
        if wide.kind == "decimal":
            return (wide.precision or 0) - (wide.scale or 0) >= _DIGITS[narrow.kind]
        return narrow.kind == "int" and wide.kind in ("bigint", "double")
    if narrow.kind != wide.kind:
        return False
    if narrow.kind == "decimal":
        before = (wide.precision or 0) - (wide.scale or 0) >= (narrow.precision or 0) - (narrow.scale or 0)
        return before and (wide.scale or 0) >= (narrow.scale or 0)
    if narrow.kind == "array" and narrow.element is not None and wide.element is not None:
        return _holds(wide.element, narrow.element)
    if narrow.kind == "map" and narrow.value is not None and wide.value is not None:
        return narrow.key == wide.key and _holds(wide.value, narrow.value)
    if narrow.kind == "struct":
        fields = dict(wide.fields)
        return all(name in fields and _holds(fields[name], field) for name, field in narrow.fields)
    return False
