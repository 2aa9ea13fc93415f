"""SELECT as a definition: what a query reads, makes and identifies its rows by, whatever it writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from engine.expressions.syntax import render
from engine.sql.statement_tree import RelationKind, Select
from engine.sql.tree import Column, Identifier, Node, Null
from engine.statements.context.faults import Faults, StatementRefused, together
from engine.statements.context.naming import Numbered
from engine.statements.context.scope import Sources, Translator, core, sources_of
from engine.statements.context.session import WINDOW_BOUNDS, KeyWindow, Session, SqlRelation
from engine.statements.queries.clause_rules import check_clauses, is_grouped
from engine.statements.queries.emitting import key_window, suppress_body, window_body
from engine.statements.queries.grouping import Groups, check_items, group_trees, with_bounds
from engine.statements.queries.items import Item, Naming, items_of
from engine.statements.queries.joins import RowKey, joined
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

    Raises:
        StatementFault: it is wrong, or cannot be had here; with every fault.
    """
    faults = Faults()
    with faults.part():
        check_clauses(select)
    timing, notes = timing_of(select, session, faults)
    sources = None
    with faults.part():
        sources = sources_of(select, session)
    if sources is None:
        raise together(faults.listed)
    return _Binding(select, session, sink, sources, faults).bound(timing, notes)


def timing_of(
    select: Select, session: Session, faults: Faults, *, is_free: bool = False
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what EMIT and WINDOW say, as fields of the definition, and what WINDOW left open; ``is_free``: see ``window_body``."""
    body: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    with faults.part():
        body |= suppress_body(select.emit)
    if select.window is not None:
        with faults.part():
            body["window"], notes = window_body(select.window, select.emit, session.settings, is_free=is_free)
    return body, notes


class _Binding:
    """A query while it is bound. Its faulty parts count as absent until all faults are raised."""

    def __init__(self, select: Select, session: Session, sink: str, sources: Sources, faults: Faults) -> None:
        self._select, self._session, self._sink, self._faults = select, session, sink, faults
        with faults.part():
            check_names(select, sources, session)
        with faults.part():
            check_rules(select, sources)
        self._state = joined(sources, select.joins, Translator(sources, session.types), faults)
        self._found = Selected(sources, self._state.kind, places=dict(self._state.places))

    def bound(self, timing: dict[str, Any], notes: tuple[str, ...]) -> Selected:
        """Return the query.

        Raises:
            StatementFault: with every fault.
        """
        select, found, first = self._select, self._found, self._state.sources.first
        found.notes = notes
        found.body = {
            "dialect": "ksqldb",
            "from": {first.relation.kind: first.relation.definition_name, "as": first.name},
            "joins": self._state.body,
            **timing,
        }
        found.places["/from"] = select.relation
        if select.where is not None and not self._faults.is_within(select.where):
            with self._faults.part():
                found.body["where"] = render(self._state.translate(select.where))
                found.places["/where"] = select.where
        if is_grouped(select):
            self._group()
        else:
            self._project()
        self._faults.raise_all()
        return found

    def _group(self) -> None:
        select, found, state = self._select, self._found, self._state
        if state.key.bounds and state.kind == "table":
            detail = _windowed(state.sources.first.relation, self._session)
            self._faults.add(StatementRefused("windowed_group", detail, select.relation))
        translate = with_bounds(state.translate, is_windowed=select.window is not None)
        items = self._items(translate, Naming(Numbered(state.sources.column_names)))
        with self._faults.part():
            check_items(items)
        is_whole, groups = self._is_whole(), self._groups()
        if groups is None:
            return
        chosen = self._reduced(items, groups, translate)
        found.kind = "table"
        if is_whole:
            self._show_key(items, [(tree,) for tree in groups.trees], "grouping expression")
        if select.window is not None:
            found.window = key_window(select.window)
            found.places["/window"] = select.window
            chosen |= {name: render(_own(name)) for name in WINDOW_BOUNDS}
        found.body |= {"group_by": [render(tree) for tree in groups.trees], "aggregate": dict(groups.body), "select": chosen}
        found.places |= {f"/aggregate/{name}": at for name, at in groups.places.items()}
        found.places |= {f"/group_by/{number}": at for number, at in enumerate(select.group_by)}

    def _items(self, translate: Translator, naming: Naming) -> list[Item]:
        """Return the columns of the result that mean something."""
        meaningful = tuple(item for item in self._select.items if not self._faults.is_within(item))
        with self._faults.part():
            return items_of(meaningful, self._state.sources, translate, naming)
        return []

    def _is_whole(self) -> bool:
        """Whether nothing is wrong with the columns of the result."""
        return not any(map(self._faults.is_within, self._select.items))

    def _groups(self) -> Groups | None:
        """Return the groups; None where one of them is wrong, or there is none."""
        given = self._select.group_by
        with self._faults.part():
            trees = group_trees([each for each in given if not self._faults.is_within(each)], self._state.translate)
            return Groups.of(trees) if trees and len(trees) == len(given) else None
        return None

    def _reduced(self, items: list[Item], groups: Groups, translate: Translator) -> dict[str, str]:
        """Return the definition's ``select`` over the results of groups; takes HAVING."""
        having, found = self._select.having, self._found
        chosen: dict[str, str] = {}
        for item in items:
            with self._faults.part():
                chosen[item.name] = render(groups.reduced(item.tree, item.name, item.at))
            found.places[f"/select/{item.name}"] = item.at
        if having is not None and not self._faults.is_within(having):
            with self._faults.part():
                found.body["having"] = render(groups.reduced(translate(having), None, having))
                found.places["/having"] = having
        return chosen

    def _show_key(self, items: list[Item], choices: list[tuple[Node, ...]], what: str) -> None:
        """Find the columns of the result that are its key.

        Args:
            items: the columns.
            choices: of each part of the key the trees one of which is shown.
            what: the parts are, for messages.
        """
        with self._faults.part():
            self._found.key = _shown(items, choices, self._sink, what, self._select)
            _check_values(items, self._found.key, self._select)
        self._found.columns = tuple(item.name for item in items)

    def _project(self) -> None:
        select, found, state = self._select, self._found, self._state
        key = state.key if state.is_whole else None
        leading: tuple[tuple[str, Node], ...] = ()
        what = "join expression" if select.joins else "key column"
        if key is not None and key.synthetic is not None:
            leading = ((key.synthetic, key.trees[0]),)
        if select.partition_by:
            key, what = self._partitioned(), "partitioning expression"
            leading = () if key is None else tuple(_generated(key))
            found.is_rekeyed = True
        naming = Naming(Numbered(state.sources.column_names), leading, is_rekeyed=bool(select.partition_by))
        items = self._items(state.translate, naming)
        items = [item for item in items if not item.is_bound or select.joins]
        with self._faults.part():
            check_items(items)
        if key is None or not self._is_whole():
            return
        self._take(key, _keys_first(items, key) if select.partition_by else items, what)

    def _take(self, key: RowKey, items: list[Item], what: str) -> None:
        """Take the columns of a result without groups.

        Args:
            key: of its rows.
            items: its columns.
            what: the parts of the key are, for messages.
        """
        select, found, state = self._select, self._found, self._state
        choices: list[tuple[Node, ...]] = [columns or (tree,) for tree, columns in zip(key.trees, key.columns, strict=True)]
        is_keyless = self._session.settings.values.get(_KEYLESS, "").lower() == "true"
        if is_keyless and state.kind == "stream" and not all(_is_shown(items, trees) for trees in choices):
            choices = []
        self._show_key(items, choices, what)
        trees = {item.name: item.tree for item in items}
        if state.kind == "stream" and select.joins:
            trees |= dict(zip(found.key, key.trees, strict=False))
            found.is_rekeyed = True
        if key.bounds:
            found.window = state.sources.first.relation.window
            trees |= dict(zip(WINDOW_BOUNDS, key.bounds, strict=True))
        found.body["select"] = {name: render(tree) for name, tree in trees.items()}
        found.places |= {f"/select/{item.name}": item.at for item in items}

    def _partitioned(self) -> RowKey | None:
        """Return the key that PARTITION BY gives; None where it is wrong."""
        given, state, faults = self._select.partition_by, self._state, self._faults
        if state.kind == "table":
            detail = "a table's key says which row is meant, so PARTITION BY is for streams: use GROUP BY"
            faults.add(StatementRefused("partition_unfit", detail, given[0]))
        elif state.key.bounds:
            detail = "another key would lose the window: use PARTITION BY before windows are made"
            faults.add(StatementRefused("partition_unfit", detail, given[0]))
        if any(map(faults.is_within, given)):
            return None
        if any(isinstance(each.bare, Null) for each in given):
            return RowKey((), ())
        with faults.part():
            trees = tuple(state.translate(each) for each in given)
            return RowKey(trees, tuple(() for _ in trees))
        return None


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


def _shown(items: list[Item], choices: list[tuple[Node, ...]], sink: str, what: str, select: Select) -> tuple[str, ...]:
    """Return the columns that show the key's parts, each one once."""
    found: list[str] = []
    faults = Faults()
    written = (*select.group_by, *select.partition_by)
    for number, trees in enumerate(choices):
        shown = next((those for tree in trees if (those := [item for item in items if core(item.tree) == core(tree)])), [])
        if not shown:
            names = ", ".join(dict.fromkeys(_written(tree) for tree in trees))
            detail = f"the key of {sink} is not among the columns: add the {what} {names} to SELECT"
            at = written[number] if number < len(written) else select.items[0]
            faults.add(StatementRefused("key_missing_in_select", detail, at))
            continue
        if len(shown) > 1:
            names = " and ".join(f"`{item.name}`" for item in shown)
            detail = f"SELECT has the key twice, as {names}: keep one, and write AS_VALUE(…) around the other"
            faults.add(StatementRefused("duplicate_key", detail, shown[1].at))
        found.append(shown[0].name)
    faults.raise_all()
    return tuple(found)


def _is_shown(items: list[Item], trees: tuple[Node, ...]) -> bool:
    return any(core(item.tree) == core(tree) for item in items for tree in trees)


def _written(tree: Node) -> str:
    return render(core(tree)).replace('"', "")


def _check_values(items: list[Item], key: tuple[str, ...], select: Select) -> None:
    if not [item for item in items if item.name not in key]:
        raise StatementRefused("columns_missing", "SELECT has nothing besides the key: add a column", select.items[0])
