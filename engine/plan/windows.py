"""Checks and plans the window: sizes, group, aggregates, ``having``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.definition.expressions import parse_aggregate
from engine.definition.operands import ExpressionInvalid
from engine.definition.queries import QueryDefinition, Window
from engine.definition.types import TIMESTAMP, ColumnType, Schema
from engine.plan.model import AggregateColumn, WindowAggregation
from engine.plan.problems import Problems
from engine.plan.scope import check_condition, check_expression

WINDOW_OPERATOR = "window"
WINDOW_BOUNDS = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class PlannedWindow:
    """The window with what ``having`` and ``select`` may name.

    Attributes:
        schema: columns after the window. A group column stands under its qualified name, so that both ``origin`` and
            ``departures.origin`` find it; ``rename`` gives the name it really has there.
    """

    operator: WindowAggregation
    schema: Schema

    def rename(self, name: str) -> tuple[str | None, str]:
        """Return the operator's own name of a column of ``schema``."""
        return None, {source: column for column, source in self.operator.group}.get(name, name)


def check_sizes(window: Window, problems: Problems) -> tuple[int, int] | None:
    """Check a tumbling or hopping window; return (size, advance) in ms, None after adding problems."""
    if window.type not in ("tumbling", "hopping"):
        return None
    before = len(problems.found)
    wanted = ("size",) if window.type == "tumbling" else ("size", "advance")
    for name in ("size", "advance", "difference", "gap"):
        value = getattr(window, name)
        pointer = f"/window/{name}"
        if name in wanted and value is None:
            problems.add(pointer, "field_missing", f"a {window.type} window needs `{name}`")
        elif name in wanted and value == 0:
            problems.add(pointer, "invalid_value", f"`{name}` must be longer than 0s")
        elif name not in wanted and value is not None:
            problems.add(pointer, "unknown_field", f"a {window.type} window has no `{name}`")
    if len(problems.found) > before or window.size is None:
        return None
    advance = window.size if window.advance is None else window.advance
    if advance > window.size:
        problems.add("/window/advance", "advance_exceeds_size", "windows would leave gaps and lose records; `size` is the most")
    if window.retention is not None and window.retention < window.size + window.grace:
        problems.add(
            "/window/retention", "retention_below_size_plus_grace",
            "a window must stay readable at least for its size and grace; raise `retention` or leave it out",
        )  # fmt: skip
    return window.size, advance


def check_without_window(definition: QueryDefinition, problems: Problems) -> None:
    """Refuse what only a window can have."""
    if definition.window is None and definition.suppress.mode == "until_window_closes":
        problems.add("/suppress/mode", "final_without_window", "only windows become final; give a window, or another mode")
    if definition.window is None and definition.having is not None:
        problems.add("/having", "having_without_window", "`having` filters aggregates; use `where`")


def plan_window(definition: QueryDefinition, sizes: tuple[int, int], schema: Schema, problems: Problems) -> PlannedWindow | None:
    """Plan the window over the columns after the joins; None after adding problems."""
    window = definition.window
    before = len(problems.found)
    group = _group(definition, schema, problems)
    aggregates, types = _aggregates(definition, {name for name, _ in group}, schema, problems)
    if window is None or len(problems.found) > before:
        return None
    after = Schema((*((source, schema[source]) for _, source in group), *((bound, TIMESTAMP) for bound in WINDOW_BOUNDS), *types))
    operator = WindowAggregation(
        name=WINDOW_OPERATOR,
        group=group,
        size_ms=sizes[0],
        advance_ms=sizes[1],
        grace_ms=window.grace,
        aggregates=aggregates,
        emit="final" if definition.suppress.mode == "until_window_closes" else "changes",
    )
    planned = PlannedWindow(operator, after)
    if definition.having is None:
        return planned
    having = check_condition("/having", definition.having, after, problems, planned.rename)
    return None if having is None else PlannedWindow(replace(operator, having=having), after)


def _group(definition: QueryDefinition, schema: Schema, problems: Problems) -> tuple[tuple[str, str], ...]:
    group: list[tuple[str, str]] = []
    for index, text in enumerate(definition.group_by):
        pointer = f"/group_by/{index}"
        checked = check_expression(pointer, text, schema, problems)
        if checked is None:
            continue
        if checked.column is None:
            problems.add(pointer, "not_supported_yet", "a group is made of plain columns for now; compute it in a query before")
            continue
        name = checked.column.partition(".")[2]
        if checked.scalar.type.is_nested:
            problems.add(pointer, "type_mismatch", f"{name} is of type {checked.scalar.type}, which cannot be a key")
        elif name.startswith("$"):
            problems.add(pointer, "not_supported_yet", f"{name} can be selected, not grouped by; select it into a stream first")
        elif name in WINDOW_BOUNDS or any(name == taken for taken, _ in group):
            problems.add(pointer, "name_clash", f"two columns of the result would be called {name}")
        else:
            group.append((name, checked.column))
    return tuple(group)


def _aggregates(
    definition: QueryDefinition, group: set[str], schema: Schema, problems: Problems
) -> tuple[tuple[AggregateColumn, ...], list[tuple[str, ColumnType]]]:
    if not definition.aggregate:
        problems.add("/aggregate", "window_without_aggregate", "say what to compute, such as {'records': 'count(*)'}")
    planned: list[AggregateColumn] = []
    types: list[tuple[str, ColumnType]] = []
    for name, text in definition.aggregate.items():
        pointer = f"/aggregate/{name}"
        if name in group or name in WINDOW_BOUNDS:
            problems.add(pointer, "name_clash", f"{name} is a group column or a bound of the window; choose another name")
            continue
        try:
            function, argument, kind = parse_aggregate(text, schema)
        except ExpressionInvalid as error:
            problems.add(pointer, error.code, error.detail)
            continue
        planned.append(AggregateColumn(name, function, argument))
        types.append((name, kind))
    return tuple(planned), types
