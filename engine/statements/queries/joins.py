"""Joins of a query: the definition's joins, and the key of the rows that they make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from engine.definition.queries import EAGER_GRACE
from engine.expressions.syntax import render
from engine.sql.statement_tree import JoinClause, RelationKind
from engine.sql.tree import Binary, Call, Chain, Column, Identifier, Node
from engine.statements.context.faults import Faults, StatementRefused
from engine.statements.context.properties import milliseconds
from engine.statements.context.scope import Source, Sources, Translator, core
from engine.statements.context.session import WINDOW_BOUNDS
from engine.statements.context.type_names import shown

ROWKEY: Final = "ROWKEY"


@dataclass(frozen=True, slots=True)
class RowKey:
    """What identifies the rows of a query, before a GROUP BY or PARTITION BY.

    Attributes:
        trees: of each part what it is, over the inputs' columns.
        columns: of each part the columns that show it: one of them must be selected.
        synthetic: what the only part is called, where no column shows it.
        bounds: columns of the windows' bounds, where the key ends with them.
    """

    trees: tuple[Node, ...]
    columns: tuple[tuple[Column, ...], ...]
    synthetic: str | None = None
    bounds: tuple[Node, ...] = ()


@dataclass
class Joined:
    """The joins as far as they have been read.

    Attributes:
        kind: of what they make.
        body: the definition's joins.
        key: of the rows.
        equal: expressions that equal the key.
        places: pointers of the definition → where the statement has it.
        is_whole: none of them is wrong: only then the key is that of all of them.
    """

    sources: Sources
    translate: Translator
    kind: RelationKind
    key: RowKey
    body: list[dict[str, Any]] = field(default_factory=list)
    equal: frozenset[Node] = frozenset()
    places: dict[str, Node] = field(default_factory=dict)
    is_whole: bool = True


def joined(sources: Sources, joins: tuple[JoinClause, ...], translate: Translator, faults: Faults) -> Joined:
    """Bind the joins of a query, one after the other.

    Args:
        sources: the inputs.
        joins: as the statement has them.
        translate: for what ON says; it learns what the key of the rows is called.
        faults: of the query so far. Relations that do not meet so are added; what depends on an earlier join that is wrong is not checked.
    """
    first = sources.first
    columns = tuple((first.column(name),) for name in first.relation.key)
    bounds = tuple(first.column(name) for name in WINDOW_BOUNDS) if first.relation.window is not None else ()
    key = RowKey(tuple(part for (part,) in columns), columns, bounds=bounds)
    state = Joined(sources, translate, first.relation.kind, key)
    for index, join in enumerate(joins):
        source = sources.listed[index + 1]
        _check_pair(state, join, source, faults)
        if join.on is None or not faults.is_within(join.on):
            with faults.part():
                equality = _equality(state, join, source)
                _check_types(sources, equality, join)
                if len(state.body) == index and not faults.is_within(join):
                    _add(state, join, source, equality)
    if len(state.body) < len(joins):
        state.is_whole = False
        translate.synthetic = {name: Column(Identifier(name, is_quoted=True)) for name in row_key_names(joins)}
    return state


def row_key_names(joins: tuple[JoinClause, ...]) -> list[str]:
    """Return what the key of a join may be called that no column shows."""
    return [ROWKEY, *(f"{ROWKEY}_{number}" for number in range(1, 10))] if joins else []


def _add(state: Joined, join: JoinClause, source: Source, equality: tuple[Node, Node]) -> None:
    left, right = equality
    is_met = core(left) in state.equal
    is_foreign = state.kind == "table" and not is_met and not _is_key(state, left)
    if is_met:
        left = state.key.trees[0]
    if is_foreign:
        _check_foreign(state, join, source)
    on = [Binary("=", left, right)]
    if source.relation.window is not None and state.key.bounds:
        pairs = zip(state.key.bounds, map(source.column, WINDOW_BOUNDS), strict=True)
        is_by_start = state.kind == "stream" and source.relation.window.type != "session"
        on += [Binary("=", mine, theirs) for mine, theirs in list(pairs)[: 1 if is_by_start else 2]]
    elif (source.relation.window is None) != (not state.key.bounds):
        _refuse_windowed(state, join, source)
    body = {
        source.relation.kind: source.relation.definition_name,
        "as": source.name,
        "type": join.type,
        "on": render(on[0] if len(on) == 1 else Chain("AND", tuple(on))),
        **_options(join, source, state.kind),
    }
    state.places[f"/joins/{len(state.body)}"] = join
    state.body.append(body)
    if not is_foreign:
        _take_key(state, join, left, right, is_met=is_met, source=source)


def _take_key(state: Joined, join: JoinClause, left: Node, right: Node, *, is_met: bool, source: Source) -> None:
    """Take over what the key of the joined rows is."""
    written_left = left if not is_met else state.key.trees[0]
    tree: Node = {"inner": written_left, "left": written_left, "right": right}.get(join.type) or _first(written_left, right)
    before = state.key.columns[0] if is_met and state.key.columns else ()
    viable: tuple[Column, ...] = ()
    if join.type == "outer":
        state.equal = frozenset()
    else:
        state.equal = frozenset({core(left), core(right)}) | (state.equal if is_met else frozenset())
        listed = [*before, left.bare, right.bare]
        viable = tuple(dict.fromkeys(each for each in (core(part) for part in listed) if isinstance(each, Column)))
    bounds = state.key.bounds
    if bounds and join.type in ("right", "outer"):
        theirs = tuple(source.column(name) for name in WINDOW_BOUNDS)
        pairs = zip(bounds, theirs, strict=True)
        bounds = theirs if join.type == "right" else tuple(_first(one, other) for one, other in pairs)
    synthetic = None if viable else _rowkey(state.sources)
    state.key = RowKey((tree,), (viable,), synthetic, bounds)
    if synthetic is not None:
        state.translate.synthetic = {synthetic: tree}


def _first(one: Node, other: Node) -> Node:
    before = one.arguments if isinstance(one, Call) and one.name.text == "coalesce" else (one,)
    return Call(Identifier("coalesce"), (*before, other))


def _rowkey(sources: Sources) -> str:
    taken = set(sources.column_names)
    number = 0
    while (name := ROWKEY if number == 0 else f"{ROWKEY}_{number}") in taken:
        number += 1
    return name


def _check_pair(state: Joined, join: JoinClause, source: Source, faults: Faults) -> None:
    """Add what is wrong with the kinds of the two sides."""
    theirs = source.relation.kind
    names = f"{state.sources.first.relation.name} {join.type.upper()} {source.relation.name}"
    if state.kind == "table" and theirs == "stream":
        detail = f"{names}: a stream looks up rows of a table, not the other way round; put the stream into FROM"
        faults.add(StatementRefused("unsupported_pair", detail, join))
    elif state.kind == theirs == "stream":
        if join.within is None:
            detail = "say how near in time the records of two streams are: … WITHIN 1 HOUR ON …"
            faults.add(StatementRefused("within_missing", detail, join))
    elif join.within is not None:
        detail = "WITHIN is for two streams, and one side is a table, which has one row at a time: leave it out"
        faults.add(StatementRefused("within_unfit", detail, join.within))
    if state.kind == "stream" and theirs == "table" and join.type in ("outer", "right"):
        detail = f"{names}: a row of the table alone makes no record; use JOIN or LEFT JOIN"
        faults.add(StatementRefused("unsupported_pair", detail, join))


def _equality(state: Joined, join: JoinClause, source: Source) -> tuple[Node, Node]:
    """Return (expression of what comes before, expression of the joined relation) that ON says are equal."""
    if join.on is None:
        raise StatementRefused("join_key_mismatch", "a join needs ON: what of both sides is equal", join)
    on = join.on.bare
    if not isinstance(on, Binary) or on.sign != "=":
        detail = "ON takes an equality, as in ON a.id = b.id; put other conditions into WHERE"
        raise StatementRefused("join_key_mismatch", detail, on)
    one, other = state.translate(on.left), state.translate(on.right)
    names_one, names_other = _inputs(one), _inputs(other)
    if names_one == {source.name} and source.name not in names_other:
        one, other, names_one, names_other = other, one, names_other, names_one
    earlier = {each.name for each in state.sources.listed[: state.sources.listed.index(source)]}
    if names_other != {source.name} or not names_one or not names_one <= earlier:
        detail = f"one side of = in ON takes columns of {source.alias} alone, the other one columns of what comes before it"
        raise StatementRefused("join_key_mismatch", detail, on)
    return one, other


def _inputs(tree: Node) -> set[str]:
    return {node.table.text for node in tree.walk() if isinstance(node, Column) and node.table is not None}


def _check_types(sources: Sources, equality: tuple[Node, Node], join: JoinClause) -> None:
    """Refuse columns of different types, as ksqlDB does: their keys are written differently."""
    types = {f"{source.name}.{name}": kind for source in sources for name, kind in source.relation.columns.items()}
    mine, theirs = map(core, equality)
    if not isinstance(mine, Column) or not isinstance(theirs, Column):
        return
    left, right = types.get(mine.full_name), types.get(theirs.full_name)
    if left is not None and right is not None and left != right:
        detail = (
            f"{mine.name.text} is {shown(left)} and {theirs.name.text} is {shown(right)}: CAST one of them to the other's type"
        )
        raise StatementRefused("type_mismatch", detail, join.on)


def _is_key(state: Joined, left: Node) -> bool:
    return len(state.key.trees) == 1 and any(core(left) == core(tree) for tree in (*state.key.trees, *state.key.columns[0]))


def _check_foreign(state: Joined, join: JoinClause, source: Source) -> None:
    if join.type in ("outer", "right"):
        raise StatementRefused(
            "unsupported_pair",
            f"{source.alias} is looked up by a column that is no key of the rows: use JOIN or LEFT JOIN",
            join,
        )
    if state.body:
        raise StatementRefused(
            "unsupported_pair",
            "only the first join can look up a table by a column that is no key: make a table of that join first, and join this",
            join,
        )
    if source.relation.window is not None or state.key.bounds:
        raise StatementRefused(
            "unsupported_pair", "tables with windows join on their whole keys: group one of them by the key of the other", join
        )


def _refuse_windowed(state: Joined, join: JoinClause, source: Source) -> None:
    windowed = source.relation if source.relation.window is not None else state.sources.first.relation
    raise StatementRefused(
        "unsupported_pair",
        f"{windowed.name} has windows and the other side has none, so their keys never meet: give both windows, or neither",
        join,
    )


def _options(join: JoinClause, source: Source, kind: RelationKind) -> dict[str, Any]:
    if kind == source.relation.kind == "stream" and join.within is not None:
        return {"within": _within(join)}
    return join_options(join)


def join_options(join: JoinClause) -> dict[str, Any]:
    """Return what a join of a stream and a table, or of two tables, says beside what is equal."""
    body: dict[str, Any] = {}
    if join.grace is not None:
        body["grace"] = f"{milliseconds(join.grace)}ms"
    said = {"late": join.late, "expired": join.expired, "history": join.history}
    body |= {name: value for name, value in said.items() if value is not None}
    if join.is_unversioned:
        body["unversioned_ok"] = True
    if join.hold is not None:
        hold = join.hold
        body["hold"] = {
            "until": hold.until,
            "at_most": f"{milliseconds(hold.at_most)}ms",
            **({} if hold.slack is None else {"slack": f"{milliseconds(hold.slack)}ms"}),
            **({} if hold.max_rows is None else {"max_rows": int(hold.max_rows)}),
        }
    return body


def _within(join: JoinClause) -> dict[str, Any]:
    """Return how near two streams' records must be; without GRACE PERIOD as ksqlDB: a day, and who meets nobody is shown at once."""
    if join.within is None:
        return {}
    grace = EAGER_GRACE if join.grace is None else f"{milliseconds(join.grace)}ms"
    is_eager = join.unmatched == "eager" or (join.unmatched is None and join.grace is None and join.type != "inner")
    return {
        "before": f"{milliseconds(join.within.before)}ms",
        "after": f"{milliseconds(join.within.after)}ms",
        "grace": grace,
        "unmatched": "eager" if is_eager else "when_closed",
    }
