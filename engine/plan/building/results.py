"""Checks and plans the result: ``select``, its columns' types, the key of a table, and whether it can keep its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.definition.problems import Problems, pointer_of
from engine.expressions.durations import format_duration
from engine.expressions.limits import MAX_COLUMNS, MAX_KEY_COLUMNS
from engine.expressions.pseudo_columns import FORCED, STATE
from engine.expressions.suggestions import hint
from engine.expressions.syntax import reference
from engine.expressions.types.types import ColumnType, Schema
from engine.expressions.values.nested import NO_KEY
from engine.plan.building.exploding import Exploded, take_explosions
from engine.plan.building.grouping import Grouping
from engine.plan.building.join_keys import wider
from engine.plan.building.running import PlannedJoin, Running
from engine.plan.building.scope import Checked, Scope, check_expression
from engine.plan.building.suppressing import closes_after
from engine.plan.building.windows import open_for
from engine.plan.model import Output
from engine.plan.operators.row_operators import Projection

_SHOWN_AS = {STATE: "state", FORCED: "forced"}
"""Pseudo-columns that a result has by default, and what they are called there."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The ``select``, given or by default.

    Attributes:
        projection: with canonical texts.
        types: of its columns, in order.
        names: from a column before the select to the first result column that is just that column.
        reads: columns before the select that it reads.
        exploded: the arrays of whose elements it makes rows; None where there are none.
    """

    projection: Projection
    types: tuple[tuple[str, ColumnType], ...]
    names: dict[str, str]
    reads: frozenset[str]
    exploded: Exploded | None = None


def plan_select(scope: Scope, joins: tuple[PlannedJoin, ...], grouping: Grouping | None) -> Selected | None:
    """Plan the ``select`` over the columns before it; None after adding problems."""
    given = scope.definition.select
    if given is not None and not given:
        scope.problems.add("/select", "invalid_value", "select at least one column, or leave `select` out")
        return None
    before = scope.selectable(scope.schema() if grouping is None else grouping.schema)
    wanted = given if given is not None else _default(scope, joins, grouping, before)
    if wanted is None:
        return None
    if len(wanted) > MAX_COLUMNS:
        detail = f"the result would have {len(wanted):,} columns, and may have {MAX_COLUMNS:,}; write a `select` with those that are needed"
        scope.problems.add("/select", "too_many_columns", detail)
        return None
    exploded = take_explosions(scope, wanted, is_aggregating=grouping is not None)
    if exploded is None:
        return None
    before = Schema((*before.items(), *exploded.schema.items()))
    rename = None if grouping is None else grouping.rename
    checked = {
        name: check_expression(pointer_of(("select", name)), text, before, scope.problems, rename)
        for name, text in exploded.texts.items()
    }
    found: dict[str, Checked] = {name: item for name, item in checked.items() if item is not None}
    if len(found) < len(checked):
        return None
    names: dict[str, str] = {}
    for name, item in found.items():
        if item.column is not None:
            names.setdefault(item.column, name)
    return Selected(
        Projection(tuple((name, item.text) for name, item in found.items())),
        tuple((name, item.scalar.type) for name, item in found.items()),
        names,
        exploded.reads.union(*(item.scalar.columns for item in found.values())) - {*exploded.arrays},
        exploded if exploded.arrays else None,
    )


def _default(scope: Scope, joins: tuple[PlannedJoin, ...], grouping: Grouping | None, before: Schema) -> dict[str, str] | None:
    """Return what a query without ``select`` gives: the group, bounds and aggregates; or the inputs' columns.

    What a join equates is not given twice.
    """
    if grouping is not None:
        wanted = [(grouping.rename(name)[1], name) for name in grouping.schema.names if name != STATE]
    else:
        wanted = [(name, scope.source.qualified(name)) for name in scope.source.entry.relation.columns.names]
        for join in joins:
            has_own_key = join.side.kind == "stream" and join.join.type in {"right", "outer"}
            equal = set[str]() if has_own_key else {part.right for part in join.parts}
            columns = join.side.entry.relation.columns.names
            wanted += [(name, join.side.qualified(name)) for name in columns if name not in equal]
        wanted += [(_SHOWN_AS[STATE], side.state) for side in scope.eager]
    wanted += [(_SHOWN_AS[name], name) for name in (STATE, FORCED) if name in before]
    chosen: dict[str, str] = {}
    for name, source in wanted:
        if name in chosen:
            scope.problems.add(
                "/select", "name_clash",
                f"both {chosen[name]} and {source} would be called {name}; write a `select` with aliases",
            )  # fmt: skip
            return None
        chosen[name] = source
    return {name: reference(source) for name, source in chosen.items()}


def plan_output(scope: Scope, selected: Selected, grouping: Grouping | None, running: Running) -> Output | None:
    """Plan the derived relation; None after adding problems.

    The key of a table is what the first selected column shows that always equals it, else the first that stands for it: a key
    column of a side that a join may leave absent. That result column then has the row's key also where the side is absent.
    """
    into = scope.definition.into
    before = len(scope.problems.found)
    wanted = grouping.key if grouping is not None else () if running.has_null_keys else running.key
    known = _key_names(selected, running) if grouping is None else selected.names
    absent = [name for name in wanted if name not in known]
    key = () if absent else tuple(known[name] for name in wanted)
    if into.key is not None:
        _check_given_key(scope, selected, grouping, running)
        key = into.key
    if into.table is not None:
        _check_keyed(scope, wanted, absent, running)
        where = "/into/table" if grouping is None else "/group_by"
        size = "/into/table" if scope.definition.select is None else "/select"
        check_table_size(scope.problems, (where, len(key)), (size, len(selected.types)), is_versioned=into.versioned is not None)
    _check_versioned(scope, grouping, running)
    _check_event_time(scope, dict(selected.types))
    _check_open(scope)
    if len(scope.problems.found) > before:
        return None
    window = scope.definition.window
    return Output(
        name=into.relation,
        kind="stream" if into.table is None else "table",
        columns=Schema(selected.types)
        if grouping is not None or into.key is not None
        else _with_key_types(selected, key, running),
        key=key,
        is_windowed=grouping is not None and grouping.is_windowed and bool(key),
        is_final=grouping is not None and grouping.operator.is_final,
        retention_ms=None if window is None else window.retention,
        history_retention_ms=None if into.versioned is None else into.versioned.history_retention,
        closes_after_ms=None if grouping is None else closes_after(scope.definition, grouping.operator.closing_delay_ms),
        has_open=into.materialize_open,
        log_retention_ms=into.retention,
        append_to=into.append_to,
    )


def _check_given_key(scope: Scope, selected: Selected, grouping: Grouping | None, running: Running) -> None:
    """Check a key that is not that of what is read: any columns of a stream; they may be null (T6)."""
    into, types = scope.definition.into, dict(selected.types)
    if into.table is not None or grouping is not None or running.kind == "table":
        reason = (
            "an aggregation's is its group" if grouping is not None else "a table's rows are distinguished by the one they have"
        )
        detail = f"`key` gives the records of a stream another key, and {reason}; leave it out"
        scope.problems.add("/into/key", "unsupported_option", detail)
        return
    for place, name in enumerate(into.key or ()):
        pointer = f"/into/key/{place}"
        if name not in types:
            scope.problems.add(pointer, "unknown_column", f"there is no column {name}{hint(name, types)}")
        elif name in (into.key or ())[:place]:
            scope.problems.add(pointer, "name_clash", f"{name} is in the key already")
        elif types[name].has_map:
            scope.problems.add(pointer, "type_mismatch", f"{name} is of type {types[name]}, {NO_KEY}")


def _check_event_time(scope: Scope, types: Mapping[str, ColumnType]) -> None:
    """Check the column that gives the result its event times."""
    into, problems = scope.definition.into, scope.problems
    if into.event_time is None:
        if into.event_time_format is not None:
            problems.add("/into/event_time_format", "unsupported_option", "it says how `event_time` is written; name that column")
        return
    kind = types.get(into.event_time)
    if kind is None:
        problems.add("/into/event_time", "unknown_column", f"there is no column {into.event_time}{hint(into.event_time, types)}")
    elif kind.kind not in ("timestamp", "bigint", "string"):
        detail = (
            f"{into.event_time} is of type {kind}; an event time is a timestamp, a bigint (milliseconds since 1970) or a string"
        )
        problems.add("/into/event_time", "type_mismatch", detail)
    elif into.event_time_format is not None and kind.kind != "string":
        detail = f"{into.event_time} is of type {kind}, which has no format; leave it out"
        problems.add("/into/event_time_format", "unsupported_option", detail)
    if into.versioned is not None:
        detail = "versions of a row are distinguished by the event times of what made them; leave out one of `versioned` and `event_time`"
        problems.add("/into/event_time", "unsupported_option", detail)


def with_own_key(selected: Selected, output: Output, running: Running) -> Selected:
    """Read the key of a result from the running relation's own key columns, also where a joined side's equal ones were selected.

    Operators fill only those in a delete, and where a side is absent.
    """
    sources = dict(zip(output.key, running.key, strict=True)) if output.key else {}

    def text(name: str, given: str) -> str:
        source = sources.get(name)
        if source is None:
            return given
        kind = output.columns[name]
        return reference(source) if running.types[source] == kind else f"CAST({reference(source)} AS {kind})"

    columns = tuple((name, text(name, given)) for name, given in selected.projection.columns)
    return replace(selected, projection=Projection(columns), reads=selected.reads | set(sources.values()))


def _key_names(selected: Selected, running: Running) -> dict[str, str]:
    """Return the result column that shows each key column."""
    known: dict[str, str] = {}
    for name, text in selected.projection.columns:
        column = running.key_column(text)
        if column is not None:
            known.setdefault(column, name)
    for column, name in selected.names.items():
        key = running.stood_for(column)
        if key is not None:
            known.setdefault(key, name)
    return known


def _with_key_types(selected: Selected, key: tuple[str, ...], running: Running) -> Schema:
    """Return the result's columns; one that shows the key is as wide as the key is."""
    types = dict(selected.types)
    for name, source in zip(key, running.key, strict=True) if key else ():
        types[name] = wider(types[name], running.types[source])
    return Schema(tuple(types.items()))


def _check_keyed(scope: Scope, wanted: tuple[str, ...], absent: list[str], running: Running) -> None:
    """Check that a table has its key."""
    if not wanted and running.has_null_keys:
        scope.problems.add(
            "/into/table", "key_missing_in_select",
            "an outer join makes rows that have no record of the left stream, hence no key; make the result a stream",
        )  # fmt: skip
    elif not wanted:
        scope.problems.add(
            "/into/table", "key_missing_in_select",
            "the stream has no key, so its records cannot be rows of a table; make the result a stream",
        )  # fmt: skip
    elif absent:
        scope.problems.add(
            "/select", "key_missing_in_select",
            f"a table needs its key: select {', '.join(absent)} as plain columns, or make the result a stream",
        )  # fmt: skip


def _check_open(scope: Scope) -> None:
    """Open windows are kept apart only where the table itself does not show them."""
    into = scope.definition.into
    if into.materialize_open and (into.table is None or scope.definition.suppress.mode != "until_window_closes"):
        scope.problems.add(
            "/into/materialize_open", "unsupported_option",
            "`materialize_open` belongs to a table with suppress `until_window_closes`: other results show open windows, or what they let "
            "through of them, anyway; leave it out",
        )  # fmt: skip


def _check_versioned(scope: Scope, grouping: Grouping | None, running: Running) -> None:
    """TT5: a result keeps its history only where every change of it has its place in event time."""
    versioned, window = scope.definition.into.versioned, scope.definition.window
    if versioned is None:
        return
    if scope.definition.into.table is None:
        scope.problems.add("/into/versioned", "unsupported_option", "`versioned` belongs to a table; a stream keeps every record")
    elif grouping is None and scope.definition.joins and running.kind == "table" and not running.is_versionable:
        scope.problems.add(
            "/into/versioned", "result_not_versionable",
            "rows of a join with an unversioned table, and of a foreign-key join, change in the order of arrival, so their event "
            "times may go back: the result's history would be wrong. Register the inputs with 'versioned': {'history_retention': …}, or leave "
            "`versioned` out",
        )  # fmt: skip
    least = None if window is None else open_for(window)
    if least is not None and versioned.history_retention < least:
        scope.problems.add(
            "/into/versioned/history_retention", "history_retention_too_short",
            f"a window may still change {format_duration(least)} after it began, and a change older than the history's retention "
            "would be refused; raise it, or lower the window's grace",
        )  # fmt: skip


def check_table_size(problems: Problems, key: tuple[str, int], columns: tuple[str, int], *, is_versioned: bool) -> None:
    """Check how many columns a table and its key have.

    Args:
        problems: gets what is too much.
        key: where the definition says the key, and of how many columns.
        columns: where it says the columns, and how many.
        is_versioned: the table keeps its history.
    """
    most = MAX_KEY_COLUMNS - is_versioned
    if key[1] > most:
        kept = " with its history" if is_versioned else ""
        detail = f"a table whose rows are kept{kept} has a key of at most {most} columns, this one of {key[1]}; put some of them into one"
        problems.add(key[0], "too_many_columns", detail)
    if columns[1] > MAX_COLUMNS:
        detail = f"a table whose rows are kept has at most {MAX_COLUMNS:,} columns, this one {columns[1]:,}; put some into a map or a struct"
        problems.add(columns[0], "too_many_columns", detail)
