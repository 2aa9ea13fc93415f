"""From a definition and a catalog to a plan: the one place where a query is checked and laid out. Pure.

Operators follow T9: ``from.where`` first, joins, ``where``, group and window, ``having``, suppress, ``select``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from engine.definition.dialects import elaborated
from engine.definition.problems import Problems
from engine.definition.queries import LateRecordsKept, QueryDefinition
from engine.definition.reading import read_definition
from engine.errors import DefinitionInvalid, Problem
from engine.expressions.cpu_deadline import begin
from engine.expressions.model import NAME_PATTERN
from engine.expressions.python_functions import known_functions
from engine.expressions.suggestions import meant
from engine.expressions.types.types import BIGINT, Schema
from engine.plan.appending import check_append, is_wider
from engine.plan.building.grouping import AGGREGATE_OPERATOR, WINDOW_OPERATOR, plan_grouping
from engine.plan.building.joins import plan_joins
from engine.plan.building.layout import FILTER, Layout, assemble
from engine.plan.building.results import plan_output, plan_select, with_own_key
from engine.plan.building.running import Running
from engine.plan.building.scope import Scope, Side, check_condition, unqualified
from engine.plan.building.suppressing import SUPPRESS_OPERATOR, check_suppress, check_suppressed
from engine.plan.building.windows import Sizes, check_sizes, default_retention
from engine.plan.catalog import Catalog
from engine.plan.fingerprint import adds_columns, fits_stored_state, state_fingerprint
from engine.plan.model import Output, Plan

__all__ = ["adds_columns", "build_plan", "faults_of_new", "fits_stored_state", "normalise", "read_query", "state_fingerprint"]

_OPERATOR_NAMES = (WINDOW_OPERATOR, AGGREGATE_OPERATOR, SUPPRESS_OPERATOR, FILTER)
"""A join is called by its relation's alias in clocks and counters, so no alias may be one of these."""


def normalise(definition: QueryDefinition, tasks: int = 1) -> QueryDefinition:
    """Spell out the defaults that depend on other fields, and the number of tasks.

    Aliases are spelled out where a relation can have that name, and the window's retention.

    Args:
        definition: as the user gave it, or as stored.
        tasks: how many it has if it does not say: those of the query that it replaces, else the cores that a query can use. Results do not
            depend on it (T1).
    """
    source, window = definition.source, definition.window
    if window is not None and window.retention is None and definition.into.table is not None:
        window = window.model_copy(update={"retention": default_retention(window)})
    joins = tuple(join.model_copy(update={"alias": join.alias or _usable_name(join.relation)}) for join in definition.joins)
    source = source.model_copy(update={"alias": source.alias or _usable_name(source.relation)})
    return definition.model_copy(update={"source": source, "joins": joins, "window": window, "tasks": definition.tasks or tasks})


def _usable_name(relation: str) -> str | None:
    return relation if re.fullmatch(NAME_PATTERN, relation) else None


def read_query(body: Any, catalog: Callable[[], Catalog]) -> QueryDefinition:
    """Read a body as a query.

    Args:
        body: JSON as the user gave it.
        catalog: gives the relations by name; asked only where the body's shape is wrong, so that the rules find their faults as well.

    Raises:
        DefinitionInvalid: the shape is wrong; with every problem, of the shape and by the rules.
    """
    reading = read_definition(QueryDefinition, body)
    found: list[Problem] = [] if reading.definition is None else list(faults_of_new(reading.definition))
    if reading.definition is not None and not reading.problems and not found:
        return reading.definition
    if reading.definition is not None:
        try:
            build_plan(reading.definition, catalog())
        except DefinitionInvalid as error:
            found += error.problems
    raise DefinitionInvalid(reading.with_rules(found))


def faults_of_new(definition: QueryDefinition) -> Iterator[Problem]:
    """Yield what is wrong with a definition that somebody sends, and would not be with one that is stored."""
    if definition.into.connector is not None:
        yield from definition.into.connector.faults_of_new()


def build_plan(definition: QueryDefinition, catalog: Catalog) -> Plan:
    """Check a definition and lay it out.

    Args:
        definition: as the user gave it, or as stored.
        catalog: the relations by name.

    Returns:
        The plan. Equal arguments give equal plans.

    Raises:
        DefinitionInvalid: with every problem found, each with the pointer to its field.
    """
    begin()
    functions = known_functions(definition.functions)
    definition = elaborated(normalise(definition))
    problems = Problems()
    check_suppress(definition, problems)
    check_effects(definition, problems)
    _check_shape(definition, problems)
    sizes = None if definition.window is None else check_sizes(definition.window, problems)
    scope = _resolve(definition, catalog, problems)
    if scope is not None:
        check_late_records(definition, scope.sides, problems)
    layout = None if scope is None else _check(scope, sizes, catalog)
    problems.raise_if_any()
    if layout is None:
        raise AssertionError("a definition without problems has a plan")
    plan = assemble(layout)
    if not functions:
        return plan
    return replace(plan, functions=functions, inputs=tuple(replace(each, functions=functions) for each in plan.inputs))


def _is_aggregating(definition: QueryDefinition) -> bool:
    return definition.window is not None or bool(definition.group_by) or bool(definition.aggregate)


def _check_shape(definition: QueryDefinition, problems: Problems) -> None:
    """Check what the relations do not matter for."""
    if definition.having is not None and not _is_aggregating(definition):
        problems.add("/having", "having_without_aggregate", "`having` filters an aggregation's results; use `where`")
    if definition.idle is not None and definition.idle.after == 0:
        problems.add("/idle/after", "invalid_value", "`after` must be longer than 0s: time would never follow the records")


def _resolve(definition: QueryDefinition, catalog: Catalog, problems: Problems) -> Scope | None:
    """Find the relations; None where one is missing, after adding problems."""
    source = definition.source
    wanted: list[tuple[str, str, Literal["stream", "table"], str]] = [
        (source.alias or source.relation, source.relation, "stream" if source.table is None else "table", "/from")
    ]
    for index, join in enumerate(definition.joins):
        kind: Literal["stream", "table"] = "stream" if join.table is None else "table"
        wanted.append((join.alias or join.relation, join.relation, kind, f"/joins/{index}"))
    sides: list[Side] = []
    for alias, name, kind, pointer in wanted:
        entry = catalog.get(name)
        if entry is None:
            near = meant(name, [known for known, each in catalog.items() if each.relation.kind == kind and not each.is_hidden])
            way = f"register it with PUT /v1/{kind}s/…" if near is None else f"did you mean {near}?"
            detail = f"there is no {kind} {name!r}; {way}"
            problems.add(f"{pointer}/{kind}", "unknown_relation", detail)
        elif entry.relation.kind != kind:
            problems.add(f"{pointer}/{kind}", "wrong_kind", f"{name} is a {entry.relation.kind}; a {kind} is needed here")
        elif pointer != "/from" and alias in _OPERATOR_NAMES:
            detail = f"{alias} is the name of an operator; give the {kind} another name with 'as'"
            problems.add(f"{pointer}/as", "name_clash", detail)
        elif any(side.alias == alias for side in sides):
            problems.add(f"{pointer}/{kind}", "name_clash", f"two inputs are called {alias}; give one another name with 'as'")
        else:
            sides.append(Side(alias, entry, pointer))
    return Scope(definition, sides[0], tuple(sides[1:]), problems) if len(sides) == len(wanted) else None


def _check(scope: Scope, sizes: Sizes | None, catalog: Catalog) -> Layout | None:
    """Check everything against the relations; None where a problem was found."""
    definition, problems = scope.definition, scope.problems
    _check_cycle(scope, catalog)
    _check_start(scope)
    planned = plan_joins(scope)
    source_where, where = _conditions(scope)
    is_aggregating = _is_aggregating(definition)
    if planned is None:
        _check_behind_joins(scope, sizes, is_aggregating=is_aggregating)
        return None
    joins, running = planned
    grouping = plan_grouping(scope, sizes, running) if is_aggregating else None
    is_versioned = running.retention_ms is not None and not is_aggregating
    is_table = is_aggregating or running.kind == "table"
    check_suppressed(definition, is_table=is_table, is_versioned=is_versioned, problems=problems)
    if is_aggregating and grouping is None:
        return None
    selected = plan_select(scope, joins, grouping)
    output = None if selected is None else plan_output(scope, selected, grouping, running)
    if output is not None:
        check_append(definition, output, catalog, problems)
        _check_delivery(definition, output, problems)
    if selected is None or output is None or problems.found:
        return None
    if grouping is None and definition.into.key is None:
        selected = with_own_key(selected, output, running)
    return Layout(scope, joins, running, source_where, where, grouping, selected, output)


def _check_delivery(definition: QueryDefinition, output: Output, problems: Problems) -> None:
    """Check where results go against what they are; the target itself is asked elsewhere (``engine.deliveries.deliveries``)."""
    delivery = definition.into.connector
    if delivery is not None:
        for fault in delivery.faults(output.columns.names, output.key, is_table=output.kind == "table"):
            problems.add(fault.pointer, fault.code, fault.detail)


def _check_behind_joins(scope: Scope, sizes: Sizes | None, *, is_aggregating: bool) -> None:
    """Check what comes behind joins that are wrong, as far as it does not depend on how they meet."""
    grouping = plan_grouping(scope, sizes, Running.of(scope.source)) if is_aggregating else None
    if scope.definition.select is not None and (grouping is not None or not is_aggregating):
        plan_select(scope, (), grouping)


def _conditions(scope: Scope) -> tuple[str | None, str | None]:
    """Check ``from.where`` and ``where``; return their canonical texts, a stream's first one over the relation's own names."""
    definition, problems = scope.definition, scope.problems
    first, second = definition.source.where, definition.where
    source = scope.source
    rename = unqualified if source.kind == "stream" else None
    return (
        None if first is None else check_condition("/from/where", first, source.schema(), problems, rename),
        None if second is None else check_condition("/where", second, scope.schema(), problems),
    )


def _check_start(scope: Scope) -> None:
    """A table needs its whole history; and a shared feed is entered once, so "latest" has no meaning inside it."""
    start, source = scope.definition.start, scope.source
    if source.kind == "table":
        if start != "earliest":
            scope.problems.add(
                "/start", "start_needs_stream", "a table is read from its beginning, or rows would be missing; use earliest"
            )
        return
    tables = [side for side in scope.joined if side.kind == "table"]
    feeds = {feed.name for side in scope.sides if side.kind == "stream" for feed in side.entry.feeds}
    if start == "latest" and any(table.entry.feed.name in feeds for table in tables):
        scope.problems.add(
            "/start", "not_supported_yet", "the stream shares its feed with a joined table; use earliest or {'at': time}"
        )


def _check_cycle(scope: Scope, catalog: Catalog) -> None:
    """A query must not read what it writes, directly or through other queries; a source may be copied into its own rows."""
    target = scope.definition.into.relation
    if scope.source.entry.is_materialised and scope.source.name == target and not scope.joined:
        return
    targets = {target, scope.definition.into.append_to}
    waiting, seen = [side.name for side in scope.sides], set[str]()
    while waiting:
        name = waiting.pop()
        if name in targets:
            scope.problems.add("/into", "query_cycle", f"this query would read its own result {name}")
            return
        if name not in seen:
            seen.add(name)
            entry = catalog.get(name)
            waiting.extend(entry.reads if entry is not None else ())


_CLOCKED_SUPPRESSION = "until_time_limit"
"""The one suppression that waits for event time without a window."""


def check_effects(definition: QueryDefinition, problems: Problems) -> None:
    """Check options that the rest of the definition leaves without anything to act on.

    Each is refused where it stands. Codes: ``idle_without_clock``, ``slowest_without_clock``, ``slowest_without_idle``,
    ``retention_without_table``, ``buffer_without_bound``.
    """
    is_slowest, has_clock = definition.clock == "slowest", _has_clock(definition)
    if is_slowest and not has_clock:
        problems.add(
            "/clock", "slowest_without_clock",
            "`clock` says which partition makes stream time, and nothing in this query waits for event time: that would be a join's `grace` "
            "or `within`, a window, or suppress mode until_time_limit. Leave `clock` out",
        )  # fmt: skip
    elif is_slowest and definition.idle is None:
        problems.add(
            "/clock", "slowest_without_idle",
            "with `clock: slowest` a partition that gets no more records would hold stream time back for ever. Give `idle` as well, such as "
            "`\"idle\": {\"after\": \"5m\"}` (in SQL `IDLE AFTER 5 MINUTES CLOCK SLOWEST`): a partition that has been at its end for so long "
            "does not count",
        )  # fmt: skip
    if definition.idle is not None and not has_clock:
        problems.add(
            "/idle", "idle_without_clock",
            "`idle` lets event time go on in silence, and nothing in this query waits for event time: that would be a join's `grace` "
            "or `within`, a window, or suppress mode until_time_limit. Leave `idle` out",
        )  # fmt: skip
    window = definition.window
    if window is not None and window.retention is not None and definition.into.table is None:
        problems.add(
            "/window/retention", "retention_without_table",
            "`retention` says how long a table shows closed windows; a stream keeps every record as long as its feed does. "
            "Leave `retention` out, or make the result a table",
        )  # fmt: skip
    buffer = definition.suppress.buffer
    if buffer is not None and definition.suppress.limit is not None and buffer.max_rows is None and buffer.max_bytes is None:
        problems.add(
            "/suppress/buffer",
            "buffer_without_bound",
            "a buffer without a bound is never full; give `max_rows` or `max_bytes`, or leave it out",
        )


def check_late_records(definition: QueryDefinition, sides: Sequence[Side], problems: Problems) -> None:
    """Check that there can be late rows to keep. Code: ``late_records_without_late``."""
    if definition.late_records == LateRecordsKept():
        return
    has_late = definition.window is not None or any(
        join.within is not None or join.late != "join" or join.expired in ("drop", "divert") for join in definition.joins
    )
    if not has_late and not any(side.entry.relation.history_retention_ms is not None for side in sides):
        problems.add(
            "/late_records", "late_records_without_late",
            "no row of this query can be late: that takes a window, a join of two streams, a late policy, or a versioned table. "
            "Leave `late_records` out",
        )  # fmt: skip


def _has_clock(definition: QueryDefinition) -> bool:
    is_waiting = any(join.grace is not None or join.within is not None for join in definition.joins)
    return is_waiting or definition.window is not None or definition.suppress.mode == _CLOCKED_SUPPRESSION


def column_faults(before: Schema, after: Schema, key: Sequence[str]) -> list[Problem]:
    """Return why records of one schema cannot be read by another one; none where each is a record of that as well.

    A column that is new is null in older records. One that is there stays, with its type or one that holds all values of that; of the key
    with one that gives equal keys their task.
    """
    faults = []
    for name, kind in before.items():
        pointer = f"/columns/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in after:
            faults.append(Problem(pointer, "relation_not_empty", "there are records with this column; leave it as it is"))
            continue
        wanted = after[name]
        if wanted == kind:
            continue
        if not is_wider(kind, wanted):
            detail = f"there are records in which it is {kind}, and not every {kind} is a {wanted}; add another column beside it"
            faults.append(Problem(pointer, "relation_not_empty", detail))
        elif name in key and wanted != BIGINT:
            detail = f"it is of the key, by which records have found their places; there an int becomes a bigint, and nothing a {wanted}"
            faults.append(Problem(pointer, "relation_not_empty", detail))
    return faults


def with_columns_named(definition: QueryDefinition, catalog: Catalog) -> QueryDefinition:
    """Spell out what a definition without ``select`` takes of the catalog as it is.

    Raises:
        DefinitionInvalid: it does not fit the catalog.
    """
    if definition.select is not None:
        return definition
    operators = reversed(build_plan(definition, catalog).stages[-1].operators)
    selected = next(operator.selected for operator in operators if operator.selected)
    return definition.model_copy(update={"select": dict(selected)})
