"""Checks and plans the result: ``select``, its columns' types, and the key of a table."""

from __future__ import annotations

from dataclasses import dataclass

from engine.definition.syntax import quoted
from engine.definition.types import ColumnType, Schema
from engine.plan.model import Output, Projection
from engine.plan.scope import Checked, Scope, check_expression
from engine.plan.windows import WINDOW_BOUNDS, PlannedWindow


@dataclass(frozen=True, slots=True)
class Selected:
    """The ``select``, given or by default.

    Attributes:
        projection: with canonical texts.
        types: of its columns, in order.
        names: from a column before the select to the first result column that is just that column.
    """

    projection: Projection
    types: tuple[tuple[str, ColumnType], ...]
    names: dict[str, str]


def plan_select(scope: Scope, schema: Schema, window: PlannedWindow | None) -> Selected | None:
    """Plan the ``select`` over the columns before it; None after adding problems."""
    definition = scope.definition
    if definition.select is not None and not definition.select:
        scope.problems.add("/select", "invalid_value", "select at least one column, or leave `select` out")
        return None
    before = window.schema if window is not None else schema
    wanted = definition.select if definition.select is not None else _default(scope, window)
    if wanted is None:
        return None
    rename = None if window is None else window.rename
    checked = {name: check_expression(f"/select/{name}", text, before, scope.problems, rename) for name, text in wanted.items()}
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
    )


def _default(scope: Scope, window: PlannedWindow | None) -> dict[str, str] | None:
    """Return the group, bounds and aggregates; or the stream's columns and each table's beside its key."""
    if window is not None:
        return {window.rename(name)[1]: _reference(name) for name in window.schema.names}
    chosen: dict[str, str] = {}
    for side in (scope.stream, *scope.tables):
        relation = side.entry.relation
        for name in relation.columns.names:
            if side is not scope.stream and name in relation.key:
                continue
            if name in chosen:
                scope.problems.add(
                    "/select", "name_clash",
                    f"both {chosen[name]} and {side.qualified(name)} would be called {name}; write a `select` with aliases",
                )  # fmt: skip
                return None
            chosen[name] = side.qualified(name)
    return {name: _reference(source) for name, source in chosen.items()}


def plan_output(scope: Scope, selected: Selected, window: PlannedWindow | None, spread: tuple[str, ...]) -> Output | None:
    """Plan the derived relation; None after adding problems.

    Args:
        scope: the definition.
        selected: its ``select``.
        window: its window.
        spread: the stream's columns that choose the task, where there is no window.
    """
    definition, stream = scope.definition, scope.stream
    if window is None:
        wanted = [stream.qualified(name) for name in stream.entry.relation.key]
    else:
        wanted = [*(source for _, source in window.operator.group), *WINDOW_BOUNDS]
    absent = [name for name in wanted if name not in selected.names]
    key = () if absent else tuple(selected.names[name] for name in wanted)
    is_table = definition.into.table is not None
    if is_table and not _is_table_keyed(scope, window, absent, spread):
        return None
    return Output(
        name=definition.into.relation,
        kind="table" if is_table else "stream",
        columns=Schema(selected.types),
        key=key,
        is_windowed=window is not None and bool(key),
        is_final=window is not None and window.operator.emit == "final",
        retention_ms=None if definition.window is None else definition.window.retention,
    )


def _is_table_keyed(scope: Scope, window: PlannedWindow | None, absent: list[str], spread: tuple[str, ...]) -> bool:
    """Check that a table has its key, and that every row of one key is written by one task, in its order."""
    key = scope.stream.entry.relation.key
    if window is None and not key:
        scope.problems.add(
            "/into/table", "key_missing_in_select",
            "the stream has no key, so its records cannot be rows of a table; make the result a stream",
        )  # fmt: skip
        return False
    if absent:
        scope.problems.add(
            "/select", "key_missing_in_select",
            f"a table needs its key: select {', '.join(absent)} as plain columns, or make the result a stream",
        )  # fmt: skip
        return False
    if window is None and not set(spread) <= set(key):
        scope.problems.add(
            "/into/table", "not_supported_yet",
            f"the join spreads records by {', '.join(spread)}, which is not in the stream's key ({', '.join(key)}), so rows of "
            "one key would be written by several tasks in no fixed order; make the result a stream",
        )  # fmt: skip
        return False
    return True


def _reference(name: str) -> str:
    """Return an expression that is exactly this column."""
    alias, dot, column = name.partition(".")
    return quoted(column, alias) if dot else quoted(name)
