"""SELECTs that read one relation as it is: pull queries (without EMIT), and push queries that look at each change by itself.

What a SELECT does beyond that, it does as a query of its own: joins, groups, windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from engine.definition.dialects import moment_of, standard
from engine.expressions.expressions import compile_tree, qualify
from engine.expressions.python_functions import known_functions, with_digests
from engine.expressions.syntax import parse
from engine.expressions.types.types import BIGINT, BOOLEAN, STRING, TIMESTAMP, ColumnType, Schema
from engine.expressions.values.operands import ExpressionInvalid
from engine.sql.statement_tree import Select, SelectItem
from engine.sql.statements.clauses import MAX_DIGITS
from engine.sql.tree import Column, Identifier, Node, Number, Star, Text
from engine.statements.context.faults import Faults, StatementRefused, StatementUnsupported
from engine.statements.context.naming import ROWTIME, WINDOW_BOUNDS_OF_SQL, Numbered, alias_of, folded
from engine.statements.context.properties import milliseconds
from engine.statements.context.scope import EVENT_TIME, OPERATORS, Source, Sources, Translator, relation_of
from engine.statements.context.session import WINDOW_BOUNDS, Session, SqlRelation
from engine.statements.queries.grouping import has_aggregates
from engine.statements.queries.items import Item, Naming, items_of
from engine.statements.queries.name_checks import name_faults

STATE: Final = "$state"
VALID_FROM: Final = "$valid_from_ms"
VALID_TO: Final = "$valid_to_ms"

_PSEUDO: Final = {"WINDOWSTATE": STATE, "VALIDFROM": VALID_FROM, "VALIDTO": VALID_TO}
"""What only reads of rows can say, and what rows call it."""


@dataclass(frozen=True, slots=True)
class OwnedRead:
    """A SELECT from one relation, without groups.

    Attributes:
        relation: what it reads.
        columns: of the result: name and expression, in the standard language over ``frame``.
        types: of the result.
        key: names of the result's columns that are the relation's key.
        where: the condition as it was written, with definitions' names; None: all.
        condition: the same in the standard language over ``frame``.
        frame: names and types of what the expressions may read: ``alias.COLUMN`` and pseudo-columns.
        alias: before each of those names.
        limit: how many rows at most; None: any number.
        as_of_ms: FOR SYSTEM_TIME AS OF; None: now.
        range_ms: FOR SYSTEM_TIME FROM ... TO ...: versions that were valid then; None: rows.
        position: WAIT FOR POSITION: what the table must include first, as JSON; None: nothing.
        wait_ms: UP TO: how long it may take; None: as long as reads wait.
    """

    relation: SqlRelation
    columns: tuple[tuple[str, str], ...]
    types: Schema
    key: tuple[str, ...]
    where: Node | None
    condition: str | None
    frame: Schema
    alias: str
    limit: int | None
    as_of_ms: int | None = None
    range_ms: tuple[int, int] | None = None
    position: str | None = None
    wait_ms: int | None = None

    @property
    def reads_state(self) -> bool:
        """Whether it asks how final windows are."""
        state = f'"{STATE}"'
        return any(state in text for text in (self.condition or "", *(text for _, text in self.columns)))


def is_owned_read(select: Select) -> bool:
    """Whether a SELECT looks at one relation alone, row by row."""
    grouped = select.group_by or select.having or has_aggregates(*(item.value for item in select.items))
    return not (select.joins or select.window or select.partition_by or grouped)


def read_of(select: Select, session: Session) -> OwnedRead:
    """Bind a SELECT from one relation.

    Raises:
        StatementFault: a name is unknown, an expression is wrong, or it does more than a read; with every fault.
    """
    if not is_owned_read(select):
        raise StatementUnsupported(
            "not_a_read",
            "a SELECT without EMIT reads the rows of one relation; for joins, groups and windows write EMIT CHANGES behind it, or CREATE "
            "TABLE … AS SELECT … and read that",
            select,
        )
    known_functions(session.functions)
    relation = relation_of(select.relation.name, session)
    alias = folded(select.relation.alias or select.relation.name)
    source = Source(alias, alias_of(alias, set(OPERATORS)), relation, select.relation)
    return _Binding(select, session, source).read()


@dataclass
class _Binding:
    """One SELECT while it is bound. Its faulty parts count as absent until all faults are raised.

    Attributes:
        source: what it reads.
        faults: so far.
    """

    select: Select
    session: Session
    source: Source
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        self._frame = _frame(self.source)
        self._translate = _Reader(Sources((self.source,)), self.session.types)

    def read(self) -> OwnedRead:
        """Return what it reads.

        Raises:
            StatementFault: with every fault.
        """
        select, items = self.select, self._items()
        compiled = [self._compiled(item) for item in items]
        where, condition = self._where()
        at_ms, until_ms = self._times()
        wait_ms = None
        with self.faults.part():
            wait_ms = None if select.wait_up_to is None else milliseconds(select.wait_up_to)
        self.faults.raise_all()
        return OwnedRead(
            self.source.relation,
            tuple((item.name, text) for item, (text, _) in zip(items, compiled, strict=True)),
            Schema(tuple((item.name, kind) for item, (_, kind) in zip(items, compiled, strict=True))),
            tuple(item.name for item in items if _is_key(item.tree, self.source)),
            where,
            condition,
            self._frame,
            self.source.name,
            None if select.limit is None else int(select.limit),
            at_ms if until_ms is None else None,
            None if at_ms is None or until_ms is None else (at_ms, until_ms),
            None if select.wait_for_position is None else select.wait_for_position.value,
            wait_ms,
        )

    def _items(self) -> list[Item]:
        """Return the columns of the result whose names mean something."""
        items = [each for each in _spelled_out(self.select, self.source.relation) if self._has_names(each.value)]
        sources = self._translate.sources
        with self.faults.part():
            return items_of(tuple(items), sources, self._translate, Naming(Numbered(sources.column_names)))
        return []

    def _has_names(self, expression: Node) -> bool:
        """Whether all names in an expression mean something."""
        found = name_faults(expression, self._translate, self.session)
        self.faults.listed.extend(found)
        return not found

    def _compiled(self, item: Item) -> tuple[str, ColumnType]:
        with self.faults.part():
            return _compiled(with_digests(item.tree, self.session.functions), self._frame, item.at)
        return "", STRING

    def _where(self) -> tuple[Node | None, str | None]:
        where = self.select.where
        if where is None or not self._has_names(where):
            return None, None
        with self.faults.part():
            tree = self._translate(where)
            return tree, _condition(with_digests(tree, self.session.functions), self._frame, where)
        return None, None

    def _times(self) -> tuple[int | None, int | None]:
        """Return FOR SYSTEM_TIME: as of when, or from when until when."""
        time = self.select.relation.time
        at_ms, until_ms = None, None
        if time is None:
            return None, None
        with self.faults.part():
            at_ms = _moment(time.at)
        with self.faults.part():
            until_ms = None if time.until is None else _moment(time.until)
        if at_ms is not None and until_ms is not None and at_ms > until_ms:
            self.faults.add(StatementRefused("invalid_value", "FROM … TO … ends before it begins", time))
        return at_ms, until_ms


def _moment(node: Node) -> int:
    """Return the milliseconds of a time that is written out."""
    match node.bare:
        case Number(text=text) if text.isdigit() and len(text) <= MAX_DIGITS:
            return int(text)
        case Text(value=value) if (moment := moment_of(value)) is not None:
            return moment
    raise StatementRefused(
        "invalid_value", "a time is written out here: '2013-01-01T12:00:00Z', or milliseconds since 1970", node
    )


class _Reader(Translator):
    """Knows the pseudo-columns of rows as well."""

    def _of(self, source: Source, name: str, at: Column) -> Node:
        if name in _PSEUDO and name not in source.relation.columns:
            return source.column(_PSEUDO[name], at)
        return super()._of(source, name, at)


def _spelled_out(select: Select, relation: SqlRelation) -> Iterator[SelectItem]:
    """Yield the items: the star of a windowed relation shows the bounds, and pseudo-columns keep their names."""
    for item in select.items:
        if isinstance(item.value, Star) and relation.window is not None:
            for name in (*relation.key, *WINDOW_BOUNDS_OF_SQL, *relation.values):
                quoted = Identifier(name, is_quoted=True)
                yield SelectItem(Column(quoted, span=item.span), quoted, span=item.span)
        elif isinstance(item.value, Column) and item.alias is None and folded(item.value.name) in (ROWTIME, *_PSEUDO):
            yield SelectItem(item.value, Identifier(folded(item.value.name), is_quoted=True), span=item.span)
        else:
            yield item


def _frame(source: Source) -> Schema:
    relation = source.relation
    columns: list[tuple[str, ColumnType]] = [(f"{source.name}.{name}", kind) for name, kind in relation.columns.items()]
    if relation.window is not None:
        columns += [(f"{source.name}.{name}", TIMESTAMP) for name in WINDOW_BOUNDS]
    pseudo = ((EVENT_TIME, BIGINT), (STATE, STRING), (VALID_FROM, BIGINT), (VALID_TO, BIGINT))
    return Schema((*columns, *((f"{source.name}.{name}", kind) for name, kind in pseudo)))


def _is_key(tree: Node, source: Source) -> bool:
    """Whether an item shows a column of the key, or a window's bound."""
    shown = [source.column(name) for name in source.relation.key]
    bounds = [source.bound(name) for name in WINDOW_BOUNDS_OF_SQL] if source.relation.window is not None else []
    return tree.bare in (*shown, *bounds)


def _compiled(tree: Node, frame: Schema, at: Node, *, is_condition: bool = False) -> tuple[str, ColumnType]:
    try:
        text = qualify(standard(tree, is_condition=is_condition), frame)
        return text, compile_tree(parse(text), frame).type
    except ExpressionInvalid as error:
        raise StatementRefused(error.code, error.detail, at) from error


def _condition(tree: Node, frame: Schema, at: Node) -> str:
    text, kind = _compiled(tree, frame, at, is_condition=True)
    if kind != BOOLEAN:
        raise StatementRefused("type_mismatch", f"WHERE needs a condition, and this is of type {kind}", at)
    return text


def beginning_of(session: Session) -> Literal["earliest", "latest"]:
    """Return where reading begins, as the session's properties say."""
    return "latest" if session.settings.values.get("auto.offset.reset", "earliest").lower() == "latest" else "earliest"


def followed_by(select: Select, session: Session) -> OwnedRead | None:
    """Return the read of a relation's single changes; None where more is asked.

    A table's WHERE needs the rows before, and records of a stream with parts have their order from a query that reads them all.

    Raises:
        StatementRefused: it is wrong.
    """
    if not is_owned_read(select) or (select.emit is not None and select.emit.mode != "changes"):
        return None
    read = read_of(select, session)
    needs_query = read.relation.kind == "table" and read.where is not None
    return None if needs_query or read.relation.entry.parts else read
