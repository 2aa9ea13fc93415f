"""Checks and plans aggregations: group, aggregates, ``having``, and which operators they become."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.definition.problems import Problems, pointer_of
from engine.expressions.aggregate_calls import AggregateCall, name_aggregates, parse_aggregate
from engine.expressions.aggregates.aggregates import AGGREGATE_NAMES, UNDOABLE, is_undoable
from engine.expressions.expressions import columns_of
from engine.expressions.pseudo_columns import STATE
from engine.expressions.syntax import parse
from engine.expressions.types.types import STRING, TIMESTAMP, Schema
from engine.expressions.values.nested import NO_KEY
from engine.expressions.values.operands import ExpressionInvalid
from engine.plan.building.running import Running
from engine.plan.building.scope import Checked, Scope, add_faults, check_condition, check_expression
from engine.plan.building.windows import Sizes
from engine.plan.operators.aggregation import AggregateColumn, Aggregation, RunningAggregation, TableAggregation, TableRegrouping
from engine.plan.operators.windows import Emit, SessionAggregation, SlidingAggregation, WindowAggregation
from engine.sql.tree import Call, Node

WINDOW_OPERATOR = "window"
AGGREGATE_OPERATOR = "aggregate"
WINDOW_BOUNDS = ("window_start", "window_end")

EMIT: dict[str, Emit] = {"until_window_closes": "final", "window_end_then_corrections": "corrections"}


@dataclass(frozen=True, slots=True)
class Group:
    """One part of ``group_by``.

    Attributes:
        name: of the result's column.
        source: the column before the aggregation that holds it.
        value: what it is made of.
        is_computed: whether ``source`` has to be computed first.
    """

    name: str
    source: str
    value: Checked
    is_computed: bool


@dataclass(frozen=True, slots=True)
class Grouping:
    """An aggregation with what ``having`` and ``select`` may name.

    Attributes:
        groups: the group's parts.
        operator: what aggregates.
        regrouping: what goes before it where a table is aggregated.
        schema: columns after it. A group column stands under the name it had before, so that both ``origin`` and
            ``departures.origin`` find it; ``rename`` gives the name it really has there.
        reads: columns after the joins that the group and the aggregates read.
    """

    groups: tuple[Group, ...]
    operator: Aggregation
    regrouping: TableRegrouping | None
    schema: Schema
    reads: frozenset[str]

    @property
    def is_windowed(self) -> bool:
        """Whether its key ends with a window's bounds."""
        return self.operator.closing_delay_ms is not None

    @property
    def key(self) -> tuple[str, ...]:
        """The key of its result, by the names of ``schema``."""
        return (*(group.source for group in self.groups), *(WINDOW_BOUNDS if self.is_windowed else ()))

    def rename(self, name: str) -> tuple[str | None, str]:
        """Return the operator's own name of a column of ``schema``."""
        return None, {group.source: group.name for group in self.groups}.get(name, name)

    def result(self) -> Schema:
        """Return the columns after it by the operator's own names."""
        return Schema(tuple((self.rename(name)[1], kind) for name, kind in self.schema.items()))


def plan_grouping(scope: Scope, sizes: Sizes | None, running: Running) -> Grouping | None:
    """Plan the aggregation over the columns after the joins; None after adding problems.

    Args:
        scope: the definition; it has a group, a window or aggregates.
        sizes: of its window, None where it has none, or a wrong one.
        running: what is aggregated.
    """
    definition, problems, schema = scope.definition, scope.problems, scope.schema()
    before = len(problems.found)
    is_table = running.kind == "table"
    if is_table and definition.window is not None:
        problems.add(
            "/window", "window_over_table",
            "a window collects a stream's records; a table's rows are replaced, not collected. Leave `window` out to aggregate the "
            "rows as they are now, or start from the stream that the table is made of",
        )  # fmt: skip
    groups = _groups(scope, schema)
    if definition.window is None and not definition.group_by:
        problems.add(
            "/group_by", "group_missing",
            "say by which columns to group: they are the key of the result. A total over everything needs a `window`",
        )  # fmt: skip
    calls = _aggregates(scope, {group.name for group in groups}, schema, is_table=is_table)
    if len(problems.found) > before or (definition.window is not None and sizes is None):
        return None
    columns = tuple(_column(name, call) for name, call in calls.items())
    arguments = _read_by([text for call in calls.values() for text in call.arguments], schema)
    grouping = Grouping(
        groups,
        _operator(scope, sizes, groups, columns, is_table=is_table),
        _regrouping(running, groups, arguments) if is_table else None,
        _result_schema(scope, groups, calls),
        frozenset({*arguments, *(name for group in groups for name in group.value.scalar.columns)}),
    )
    return _with_having(grouping, _having(scope, schema, calls), problems)


def _column(name: str, call: AggregateCall) -> AggregateColumn:
    return AggregateColumn(name, call.function, call.argument, call.limit, call.options)


def _operator(
    scope: Scope, sizes: Sizes | None, groups: tuple[Group, ...], aggregates: tuple[AggregateColumn, ...], *, is_table: bool
) -> Aggregation:
    group = tuple((part.name, part.source) for part in groups)
    emit = EMIT.get(scope.definition.suppress.mode, "changes")
    if is_table:
        return TableAggregation(AGGREGATE_OPERATOR, group, aggregates)
    if sizes is None:
        return RunningAggregation(AGGREGATE_OPERATOR, group, aggregates)
    if sizes.type == "session":
        return SessionAggregation(WINDOW_OPERATOR, group, sizes.length_ms, sizes.grace_ms, aggregates, emit)
    if sizes.type == "sliding":
        return SlidingAggregation(WINDOW_OPERATOR, group, sizes.length_ms, sizes.grace_ms, aggregates, emit)
    return WindowAggregation(WINDOW_OPERATOR, group, sizes.length_ms, sizes.advance_ms, sizes.grace_ms, aggregates, emit)


def _regrouping(running: Running, groups: tuple[Group, ...], arguments: set[str]) -> TableRegrouping:
    """Plan the step before an aggregation over a table; both steps have one name, which prefixes the messages' columns."""
    group = tuple(part.source for part in groups)
    return TableRegrouping(AGGREGATE_OPERATOR, running.key, running.retention_ms, group, tuple(sorted(arguments)))


def _result_schema(scope: Scope, groups: tuple[Group, ...], calls: dict[str, AggregateCall]) -> Schema:
    columns = [(group.source, group.value.scalar.type) for group in groups]
    if scope.definition.window is not None:
        columns += [(bound, TIMESTAMP) for bound in WINDOW_BOUNDS]
    columns += [(name, call.type) for name, call in calls.items()]
    if scope.definition.window is not None and EMIT.get(scope.definition.suppress.mode) == "corrections":
        columns.append((STATE, STRING))
    return Schema(tuple(columns))


def _having(scope: Scope, schema: Schema, calls: dict[str, AggregateCall]) -> str | None:
    """Return ``having`` over the result's columns: it may name them, or write their aggregates out as SQL does (A2)."""
    having = scope.definition.having
    try:
        return None if having is None else name_aggregates(having, schema, calls)
    except ExpressionInvalid as error:
        scope.problems.add("/having", error.code, error.detail)
        return None


def _with_having(grouping: Grouping, having: str | None, problems: Problems) -> Grouping | None:
    """Add ``having``. It judges results, not how final they are: ``$state`` is not among its columns."""
    if having is None:
        return grouping
    columns = Schema(tuple(pair for pair in grouping.schema.items() if pair[0] != STATE))
    condition = check_condition("/having", having, columns, problems, grouping.rename)
    return None if condition is None else replace(grouping, operator=grouping.operator.showing(condition))


def _groups(scope: Scope, schema: Schema) -> tuple[Group, ...]:
    found: list[Group] = []
    for index, text in enumerate(scope.definition.group_by):
        group = _group(f"/group_by/{index}", index, text, schema, scope.problems)
        if group is None:
            continue
        is_bound = scope.definition.window is not None and group.name in WINDOW_BOUNDS
        if is_bound or any(group.name == taken.name for taken in found):
            scope.problems.add(
                f"/group_by/{index}", "name_clash", f"two columns of the result would be called {group.name}; select one of them "
                "under another name in a query before",
            )  # fmt: skip
        else:
            found.append(group)
    return tuple(found)


def _group(pointer: str, index: int, text: str, schema: Schema, problems: Problems) -> Group | None:
    """Check one part: a column keeps its name, the n-th part of a group that is more than a column is called ``group_<n>``."""
    checked = check_expression(pointer, text, schema, problems)
    if checked is None:
        return None
    is_computed = checked.column is None or checked.column.rpartition(".")[2].startswith("$")
    name = f"group_{index + 1}" if is_computed or checked.column is None else checked.column.partition(".")[2]
    source = f"group.{name}" if is_computed or checked.column is None else checked.column
    if checked.scalar.type.has_map:
        problems.add(pointer, "type_mismatch", f"{text} is of type {checked.scalar.type}, {NO_KEY}")
        return None
    if is_computed and source in schema:
        problems.add(pointer, "name_clash", f"there is a column {source} already; give the relation another name with 'as'")
        return None
    return Group(name, source, checked, is_computed)


def _aggregates(scope: Scope, group: set[str], schema: Schema, *, is_table: bool) -> dict[str, AggregateCall]:
    definition, problems = scope.definition, scope.problems
    taken = {*group, *(WINDOW_BOUNDS if definition.window is not None else ())}
    if not definition.aggregate:
        code = "group_without_aggregate" if definition.window is None else "window_without_aggregate"
        problems.add("/aggregate", code, "say what to compute, such as {'records': 'count(*)'}")
    found: dict[str, AggregateCall] = {}
    for name, text in definition.aggregate.items():
        pointer = pointer_of(("aggregate", name))
        if name in taken:
            problems.add(pointer, "name_clash", f"{name} is a group column or a bound of the window; choose another name")
            continue
        call = _aggregate(pointer, text, schema, problems)
        if call is None:
            continue
        if is_table and not is_undoable(call.function):
            *names, last = UNDOABLE
            problems.add(
                pointer, "aggregate_not_undoable",
                f"when a row of {scope.source.name} changes, its old value must be taken out of the result again, which "
                f"{call.function} cannot; use {', '.join(names)} or {last}, or aggregate a stream",
            )  # fmt: skip
            continue
        found[name] = call
    return found


def _aggregate(pointer: str, text: str, schema: Schema, problems: Problems) -> AggregateCall | None:
    tree: Node | None = None
    try:
        tree = parse(text)
        return parse_aggregate(text, schema)
    except ExpressionInvalid as error:
        is_aggregate = isinstance(tree, Call) and tree.name.text in AGGREGATE_NAMES
        add_faults(pointer, error, tree if is_aggregate else None, schema, problems)
        return None


def _read_by(texts: list[str], schema: Schema) -> set[str]:
    return set[str]().union(*(columns_of(text, schema) for text in texts))
