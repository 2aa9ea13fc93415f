"""SELECT as a definition: what a query reads, makes and identifies its rows by, whatever it writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from engine.expressions.syntax import render
from engine.sql.statement_tree import RelationKind, Select
from engine.sql.tree import Column, Identifier, Node, Null
from engine.statements.context.faults import StatementRefused, StatementUnsupported
from engine.statements.context.naming import Numbered, check_column_name
from engine.statements.context.scope import Sources, Translator, core, sources_of
from engine.statements.context.session import WINDOW_BOUNDS, KeyWindow, Session, SqlRelation
from engine.statements.queries.emitting import key_window, suppress_body, window_body
from engine.statements.queries.grouping import Groups, check_items, group_trees, has_aggregates, with_bounds
from engine.statements.queries.items import Item, Naming, items_of
from engine.statements.queries.joins import Joined, RowKey, joined
from engine.statements.queries.ksqldb_rules import check_rules
from engine.statements.queries.name_checks import check_names

_KEYLESS: Final = "ksql.new.query.planner.enabled"
"""Of ksqlDB: a stream whose SELECT does not show the key has none, instead of being refused."""


@dataclass
class Selected:
    """A query without what it writes.

    Attributes:
        body: the definition's fields.
        kind: what it makes.
        key: names of the result's columns that are its key.
        columns: names of the result's columns, without the bounds of windows.
        window: of a windowed key.
        places: pointers of the definition → where the statement has it.
        notes: what the statement left open.
        is_rekeyed: PARTITION BY, or a join, gives the rows another key than the input's.
        is_free: ksqlDB's rules do not bind it; key, columns and window are those of its plan.
        key_given: ``into.key`` of such a query.
    """

    sources: Sources
    kind: RelationKind
    body: dict[str, Any] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    window: KeyWindow | None = None
    places: dict[str, Node] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_rekeyed: bool = False
    is_free: bool = False
    key_given: list[str] | None = None


def select_of(select: Select, session: Session, sink: str) -> Selected:
    """Bind a query.

    Args:
        select: the query.
        session: with the relations.
        sink: what it writes, for messages.

    Raises:
        StatementRefused: it is wrong.
        StatementUnsupported: it cannot be had here.
    """
    sources = sources_of(select, session)
    check_names(select, sources, session)
    check_rules(select, sources)
    translate = Translator(sources, session.types)
    state = joined(sources, select.joins, translate)
    first = sources.first
    found = Selected(sources, state.kind, places=dict(state.places))
    found.body = {
        "dialect": "ksqldb",
        "from": {first.relation.kind: first.relation.definition_name, "as": first.name},
        "joins": state.body,
    }
    found.places["/from"] = select.relation
    if select.where is not None:
        if has_aggregates(select.where):
            raise StatementRefused(
                "aggregate_in_where", "WHERE judges single rows; a condition over aggregates belongs into HAVING", select.where
            )
        found.body["where"] = render(translate(select.where))
        found.places["/where"] = select.where
    found.body |= suppress_body(select.emit)
    if select.limit is not None:
        raise StatementUnsupported(
            "limit_not_supported", "LIMIT belongs to a SELECT that is read at once, not to a query that goes on", select
        )
    if select.group_by or has_aggregates(*(item.value for item in select.items), select.having):
        _group(select, session, state, found, sink)
    else:
        is_keyless = session.settings.values.get(_KEYLESS, "").lower() == "true"
        _project(select, state, found, sink, is_keyless=is_keyless)
    return found


def _group(select: Select, session: Session, state: Joined, found: Selected, sink: str) -> None:
    if not select.group_by:
        raise StatementRefused("group_missing", "an aggregate needs groups: write GROUP BY", select)
    if select.partition_by:
        raise StatementRefused(
            "partition_unfit", "PARTITION BY does not go with GROUP BY, which gives the rows their key", select.partition_by[0]
        )
    if state.key.bounds and state.kind == "table":
        raise StatementRefused("windowed_group", _windowed(state.sources.first.relation, session), select.relation)
    translate = with_bounds(state.translate, is_windowed=select.window is not None)
    groups = Groups.of(group_trees(select, state.translate))
    items = items_of(select.items, state.sources, translate, Naming(Numbered(state.sources.column_names)))
    check_items(items)
    chosen: dict[str, str] = {}
    for item in items:
        check_column_name(item.name, item.at)
        chosen[item.name] = render(groups.reduced(item.tree, item.name, item.at))
        found.places[f"/select/{item.name}"] = item.at
    if select.having is not None:
        found.body["having"] = render(groups.reduced(translate(select.having), None, select.having))
        found.places["/having"] = select.having
    if not groups.aggregates:
        raise StatementRefused(
            "group_without_aggregate",
            "groups are for aggregates, and there is none: add one, such as COUNT(*), or leave GROUP BY out",
            select.group_by[0],
        )
    found.kind = "table"
    found.key = _shown(items, [(tree,) for tree in groups.trees], sink, "grouping expression", select, written=[*select.group_by])
    _check_values(items, found.key, select)
    found.columns = tuple(item.name for item in items)
    if select.window is not None:
        found.body["window"], found.notes = window_body(select.window, select.emit, session.settings)
        found.window = key_window(select.window)
        found.places["/window"] = select.window
        chosen |= {name: render(_own(name)) for name in WINDOW_BOUNDS}
    elif select.emit is not None and select.emit.mode == "final":
        raise StatementRefused(
            "emit_unfit", "only a window comes to an end: write EMIT CHANGES, or WINDOW … GROUP BY", select.emit
        )
    found.body |= {"group_by": [render(tree) for tree in groups.trees], "aggregate": dict(groups.body), "select": chosen}
    found.places |= {f"/aggregate/{name}": at for name, at in groups.places.items()}
    found.places |= {f"/group_by/{number}": at for number, at in enumerate(select.group_by)}


def _windowed(relation: SqlRelation, session: Session) -> str:
    """Say why a table with windows is not grouped, and what can be grouped in its place."""
    by_name = {each.definition_name: each for each in session.relations.values()}
    stream = by_name.get(min(relation.entry.reads, default=""))
    while stream is not None and stream.kind == "table" and stream.entry.reads:
        stream = by_name.get(min(stream.entry.reads))
    named = "the stream that it is made of" if stream is None else f"{stream.name}, which it is made of"
    return (
        f"each row of {relation.name} is of one window, and ksqlDB does not group such a table: group {named}, or write "
        "WITH (DIALECT='KSQLDB'), which groups the rows of all windows as they are now"
    )


def _own(name: str) -> Node:
    return Column(Identifier(name, is_quoted=True))


def _project(select: Select, state: Joined, found: Selected, sink: str, *, is_keyless: bool) -> None:
    _check_plain(select)
    naming = Numbered(state.sources.column_names)
    key, what = state.key, "key column"
    leading: tuple[tuple[str, Node], ...] = ()
    if select.joins:
        what = "join expression"
        leading = () if key.synthetic is None else ((key.synthetic, key.trees[0]),)
    if select.partition_by:
        key, what = _partitioned(select, state), "partitioning expression"
        leading = tuple(_generated(key))
        found.is_rekeyed = True
    items = items_of(select.items, state.sources, state.translate, Naming(naming, leading, is_rekeyed=bool(select.partition_by)))
    if select.partition_by:
        items = _keys_first(items, key)
    choices: list[tuple[Node, ...]] = [columns or (tree,) for tree, columns in zip(key.trees, key.columns, strict=True)]
    if is_keyless and state.kind == "stream" and not all(_is_shown(items, trees) for trees in choices):
        choices = []
    found.key = _shown(items, choices, sink, what, select, written=[*select.partition_by])
    bounds = [item for item in items if item.is_bound and not select.joins]
    items = [item for item in items if item not in bounds]
    for item in items:
        check_column_name(item.name, item.at)
    _check_values(items, found.key, select)
    found.columns = tuple(item.name for item in items)
    trees = {item.name: item.tree for item in items}
    if state.kind == "stream" and select.joins:
        trees |= dict(zip(found.key, key.trees, strict=True)) if found.key else {}
        found.is_rekeyed = True
    if key.bounds:
        found.window = state.sources.first.relation.window
        trees |= dict(zip(WINDOW_BOUNDS, key.bounds, strict=True))
    found.body["select"] = {name: render(tree) for name, tree in trees.items()}
    found.places |= {f"/select/{item.name}": item.at for item in items}


def _check_plain(select: Select) -> None:
    if select.window is not None:
        raise StatementRefused(
            "window_without_group",
            "WINDOW divides groups, and there is no GROUP BY: write one, or leave WINDOW out",
            select.window,
        )
    if select.having is not None:
        raise StatementRefused(
            "having_without_group", "HAVING filters groups, and there is no GROUP BY; use WHERE", select.having
        )
    if select.emit is not None and select.emit.mode in ("final", "window_end"):
        raise StatementRefused(
            "emit_unfit", "only a window comes to an end: write EMIT CHANGES, or WINDOW … GROUP BY", select.emit
        )


def _partitioned(select: Select, state: Joined) -> RowKey:
    """Return the key that PARTITION BY gives."""
    first = select.partition_by[0]
    if state.kind == "table":
        raise StatementRefused(
            "partition_unfit", "a table's key says which row is meant, so PARTITION BY is for streams: use GROUP BY", first
        )
    if state.key.bounds:
        raise StatementRefused(
            "partition_unfit",
            "another key would lose the window: use PARTITION BY before windows are made",
            first,
        )
    if any(isinstance(each.bare, Null) for each in select.partition_by):
        if len(select.partition_by) > 1:
            raise StatementRefused(
                "partition_unfit",
                "NULL stands alone in PARTITION BY, where it takes the key away: leave it or the others out",
                first,
            )
        return RowKey((), ())
    for each in select.partition_by:
        if has_aggregates(each):
            raise StatementRefused(
                "aggregate_in_partition", "PARTITION BY looks at single records, and this is an aggregate: use GROUP BY", each
            )
    trees = tuple(state.translate(each) for each in select.partition_by)
    return RowKey(trees, tuple(() for _ in trees))


def _keys_first(items: list[Item], key: RowKey) -> list[Item]:
    """Put what a star gives of the new key in front, as every star begins with the key."""
    meanings = [core(tree) for tree in key.trees]
    starred = [item for item in items if item.is_starred and core(item.tree) in meanings]
    starred.sort(key=lambda item: meanings.index(core(item.tree)))
    return [*starred, *(item for item in items if item not in starred)] if starred else items


def _generated(key: RowKey) -> list[tuple[str, Node]]:
    found = []
    for number, tree in enumerate(each for each in key.trees if not isinstance(core(each), Column)):
        found.append((f"KSQL_COL_{number}", tree))
    return found


def _shown(
    items: list[Item], choices: list[tuple[Node, ...]], sink: str, what: str, select: Select, written: list[Node]
) -> tuple[str, ...]:
    """Return the columns that show the key's parts, each one once."""
    found: list[str] = []
    for number, trees in enumerate(choices):
        shown = next((those for tree in trees if (those := [item for item in items if core(item.tree) == core(tree)])), [])
        if not shown:
            names = ", ".join(dict.fromkeys(_written(tree) for tree in trees))
            raise StatementRefused(
                "key_missing_in_select",
                f"the key of {sink} is not among the columns: add the {what} {names} to SELECT",
                written[number] if number < len(written) else select.items[0],
            )
        if len(shown) > 1:
            names = " and ".join(f"`{item.name}`" for item in shown)
            raise StatementRefused(
                "duplicate_key",
                f"SELECT has the key twice, as {names}: keep one, and write AS_VALUE(…) around the other",
                shown[1].at,
            )
        found.append(shown[0].name)
    return tuple(found)


def _is_shown(items: list[Item], trees: tuple[Node, ...]) -> bool:
    return any(core(item.tree) == core(tree) for item in items for tree in trees)


def _written(tree: Node) -> str:
    return render(core(tree)).replace('"', "")


def _check_values(items: list[Item], key: tuple[str, ...], select: Select) -> None:
    if not [item for item in items if item.name not in key]:
        raise StatementRefused("columns_missing", "SELECT has nothing besides the key: add a column", select.items[0])
