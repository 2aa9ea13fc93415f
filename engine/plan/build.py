"""From a definition and a catalog to a plan: the one place where a query is checked and laid out. Pure.

Operators follow T9: ``from.where`` at the source, joins, ``where``, group and window, ``having``, ``select``. A window whose
group does not contain the columns its records are spread by gets a stage of its own, behind an exchange.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace

from engine.definition.queries import DAY_MS, QueryDefinition
from engine.plan.catalog import Catalog
from engine.plan.joins import check_grace, join_pairs
from engine.plan.layout import Layout, assemble, common_columns, spread_of
from engine.plan.model import Input, LateRecords, Operator, Plan, StreamTableJoin, WindowAggregation
from engine.plan.problems import Problems
from engine.plan.results import plan_output, plan_select
from engine.plan.scope import Scope, Side, check_condition, unqualified
from engine.plan.support import check_support
from engine.plan.windows import WINDOW_OPERATOR, check_sizes, check_without_window, plan_window

DEFAULT_RETENTION_MS = 7 * DAY_MS


def normalise(definition: QueryDefinition) -> QueryDefinition:
    """Spell out the defaults that depend on other fields: aliases and the window's retention."""
    source, window = definition.source, definition.window
    if window is not None and window.retention is None and window.size is not None:
        retention = max(DEFAULT_RETENTION_MS, window.size + window.grace)
        window = window.model_copy(update={"retention": retention})
    joins = tuple(join.model_copy(update={"alias": join.alias or join.relation}) for join in definition.joins)
    source = source.model_copy(update={"alias": source.alias or source.relation})
    return definition.model_copy(update={"source": source, "joins": joins, "window": window})


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
    definition = normalise(definition)
    problems = Problems()
    check_support(definition, problems)
    check_without_window(definition, problems)
    sizes = None if definition.window is None else check_sizes(definition.window, problems)
    scope = _resolve(definition, catalog, problems)
    layout = None if scope is None else _check(scope, sizes, catalog)
    problems.raise_if_any()
    if layout is None:
        raise AssertionError("a definition without problems has a plan")
    return assemble(layout)


def state_fingerprint(plan: Plan) -> str:
    """Return a digest of what kept state depends on.

    Left out is what may be edited in place: how long a grace is (J11; not whether a join has one), policies for late and expired
    records, what a window keeps for reading, how many late records are kept; and of the relations what concerns only
    their reading: columns that the query does not use, what happens to bad records.
    """
    kept = replace(
        plan,
        inputs=tuple(map(_state_of_input, plan.inputs)),
        stages=tuple(replace(stage, operators=tuple(map(_state_of, stage.operators))) for stage in plan.stages),
        output=replace(plan.output, retention_ms=None),
        late_records=LateRecords(0, 0),
    )
    return hashlib.sha256(json.dumps(asdict(kept), sort_keys=True).encode()).hexdigest()


def _state_of(operator: Operator) -> Operator:
    if isinstance(operator, StreamTableJoin):
        return replace(operator, grace_ms=None if operator.grace_ms is None else 0, late="join", expired="null")
    return replace(operator, grace_ms=0) if isinstance(operator, WindowAggregation) else operator


def _state_of_input(source: Input) -> Input:
    relation = source.relation
    columns = relation.columns.select(source.columns)
    return replace(source, relation=replace(relation, columns=columns, max_future_skew_ms=None, is_stop_on_bad_record=False))


def _resolve(definition: QueryDefinition, catalog: Catalog, problems: Problems) -> Scope | None:
    """Find the input and the joined tables; None where one is missing, after adding problems."""
    source = definition.source
    if source.table is not None or any(join.stream is not None for join in definition.joins):
        return None
    wanted = [(source.alias or source.relation, source.relation, "stream", "/from")]
    wanted += [(join.alias or join.relation, join.relation, "table", f"/joins/{i}") for i, join in enumerate(definition.joins)]
    sides: list[Side] = []
    for alias, name, kind, pointer in wanted:
        entry = catalog.get(name)
        if entry is None:
            detail = f"there is no {kind} {name!r}; register it with PUT /v1/{kind}s/…"
            problems.add(f"{pointer}/{kind}", "unknown_relation", detail)
        elif entry.relation.kind != kind:
            problems.add(f"{pointer}/{kind}", "wrong_kind", f"{name} is a {entry.relation.kind}; a {kind} is needed here")
        elif kind == "table" and alias == WINDOW_OPERATOR:
            problems.add(
                f"{pointer}/as",
                "name_clash",
                f"{alias} is the name of the window operator; give the table another name with 'as'",
            )
        elif any(side.alias == alias for side in sides):
            problems.add(f"{pointer}/{kind}", "name_clash", f"two inputs are called {alias}; give one another name with 'as'")
        else:
            sides.append(Side(alias, entry, pointer))
    return Scope(definition, sides[0], tuple(sides[1:]), problems) if len(sides) == len(wanted) else None


def _check(scope: Scope, sizes: tuple[int, int] | None, catalog: Catalog) -> Layout | None:
    """Check everything against the relations; None where a problem was found."""
    definition, problems, schema = scope.definition, scope.problems, scope.schema()
    _check_cycle(scope, catalog)
    _check_start(scope)
    pairs = _pairs(scope)
    source_where, where = _conditions(scope)
    window = None if sizes is None else plan_window(definition, sizes, schema, problems)
    if definition.window is not None and window is None:
        return None
    selected = plan_select(scope, schema, window)
    if pairs is None or selected is None:
        return None
    spread = spread_of(scope, pairs, window)
    output = plan_output(scope, selected, window, spread)
    if output is None or problems.found:
        return None
    return Layout(scope, pairs, spread, source_where, where, window, selected.projection, output)


def _pairs(scope: Scope) -> tuple[dict[str, str], ...] | None:
    """Check each join; return what equals each table's key, None after adding problems."""
    found: list[dict[str, str]] = []
    for index, (join, table) in enumerate(zip(scope.definition.joins, scope.tables, strict=True)):
        pointer = f"/joins/{index}"
        check_grace(join, table, pointer, scope.problems)
        pair = join_pairs(join, scope.stream, table, pointer, scope.problems)
        if pair is None:
            continue
        if found and not common_columns((*found, pair)):
            scope.problems.add(
                f"{pointer}/on", "not_supported_yet",
                "the joins of one query must share a column of the stream for now; put this join into a query of its own that "
                "reads the first one's result",
            )  # fmt: skip
            continue
        found.append(pair)
    return tuple(found) if len(found) == len(scope.tables) else None


def _conditions(scope: Scope) -> tuple[str | None, str | None]:
    """Check ``from.where`` and ``where``; return their canonical texts, the first over the relation's own names."""
    definition, problems = scope.definition, scope.problems
    first, second = definition.source.where, definition.where
    stream = scope.stream.schema()
    return (
        None if first is None else check_condition("/from/where", first, stream, problems, unqualified),
        None if second is None else check_condition("/where", second, scope.schema(), problems),
    )


def _check_start(scope: Scope) -> None:
    """A shared feed is entered once: the table needs its whole history, and "latest" has no meaning inside it."""
    feed = scope.stream.entry.feed.name
    if scope.definition.start == "latest" and any(table.entry.feed.name == feed for table in scope.tables):
        scope.problems.add(
            "/start", "not_supported_yet", "the stream shares its feed with a joined table; use earliest or {'at': time}"
        )


def _check_cycle(scope: Scope, catalog: Catalog) -> None:
    """A query must not read what it writes, directly or through other queries."""
    target = scope.definition.into.relation
    waiting, seen = [side.entry.relation.name for side in (scope.stream, *scope.tables)], set[str]()
    while waiting:
        name = waiting.pop()
        if name == target:
            scope.problems.add("/into", "query_cycle", f"this query would read its own result {target}")
            return
        if name not in seen:
            seen.add(name)
            entry = catalog.get(name)
            waiting.extend(entry.reads if entry is not None else ())
