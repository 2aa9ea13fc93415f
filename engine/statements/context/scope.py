"""The inputs of a query, and what names in its expressions mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.expressions.suggestions import hint
from engine.expressions.types.types import ColumnType
from engine.sql.statement_tree import Relation, Select
from engine.sql.tree import Binary, Call, Cast, Column, Field, FieldValue, Identifier, Lambda, Node, Null, Paren, StructOf, Text
from engine.statements.context.faults import Faults, StatementFault, StatementRefused, StatementUnsupported
from engine.statements.context.naming import ROWTIME, WINDOWSTART, alias_of, folded
from engine.statements.context.session import WINDOW_BOUNDS, Session, SqlRelation
from engine.statements.context.type_names import type_name, type_of

EVENT_TIME: Final = "$event_time_ms"
"""What definitions call the event time of a record."""

OPERATORS: Final = frozenset({"window", "aggregate", "suppress", "filter"})
"""What no alias of a definition may be: operators are called so in counters."""

_ARITHMETIC: Final = frozenset("+-*/%")
_UNITS: Final = frozenset({"MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS"})


@dataclass(frozen=True, slots=True)
class Source:
    """One input.

    Attributes:
        alias: in the statement.
        name: the same in the definition.
        relation: what it reads.
        at: where the statement names it.
    """

    alias: str
    name: str
    relation: SqlRelation
    at: Relation

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns that definitions know, the bounds of windows among them."""
        return self.relation.entry.relation.columns.names

    def column(self, name: str, at: Node | None = None) -> Column:
        """Return a reference to one of its columns, as definitions write it."""
        span = None if at is None else at.span
        return Column(Identifier(name, is_quoted=True), Identifier(self.name, is_quoted=True), span=span)

    def bound(self, name: str, at: Node | None = None) -> Node:
        """Return a bound of its windows as statements see it: milliseconds."""
        return bound(self.column(WINDOW_BOUNDS[name != WINDOWSTART], at))


def bound(column: Column) -> Call:
    """Return the milliseconds of a window's bound."""
    return Call(Identifier("epoch_ms"), (column,), span=column.span)


@dataclass(frozen=True, slots=True)
class Sources:
    """All inputs, in the order of the statement."""

    listed: tuple[Source, ...]

    @property
    def first(self) -> Source:
        """The one in FROM."""
        return self.listed[0]

    @property
    def is_join(self) -> bool:
        """Whether there are several."""
        return len(self.listed) > 1

    @property
    def column_names(self) -> list[str]:
        """Every column's name, as often as there are columns of it."""
        return [name for source in self.listed for name in source.relation.columns]

    def having(self, name: str) -> list[Source]:
        """Return the inputs that have a column."""
        is_bound = name in ("WINDOWSTART", "WINDOWEND")
        return [
            source
            for source in self.listed
            if name in source.relation.columns or (is_bound and source.relation.window is not None) or name == ROWTIME
        ]

    def find(self, alias: Identifier) -> Source:
        """Return an input by its alias.

        Raises:
            StatementRefused: there is none.
        """
        name = folded(alias)
        found = next((source for source in self.listed if source.alias == name), None)
        if found is None:
            known = [source.alias for source in self.listed]
            raise StatementRefused("unknown_relation", f"no relation of this query is called {name}{hint(name, known)}", alias)
        return found

    def __iter__(self) -> Iterator[Source]:
        return iter(self.listed)


def sources_of(select: Select, session: Session, *, is_free: bool = False) -> Sources:
    """Find the inputs of a query.

    Args:
        select: the query.
        session: with the relations.
        is_free: the input in FROM keeps its alias, as in definitions, also where an operator is called so.

    Raises:
        StatementFault: a relation does not exist, or an alias is taken twice; with every fault.
    """
    found: list[Source] = []
    faults = Faults()
    aliases: set[str] = set()
    for at in (select.relation, *(join.relation for join in select.joins)):
        alias = folded(at.alias or at.name)
        with faults.part():
            taken = {source.name for source in found} | (set() if is_free and not found else OPERATORS)
            found.append(Source(alias, alias_of(alias, taken), relation_of(at.name, session), at))
        if alias in aliases:
            detail = f"two relations of the query are called {alias}: give one another name by AS"
            faults.add(StatementRefused("name_clash", detail, at))
        aliases.add(alias)
        if at.time is not None:
            detail = "FOR SYSTEM_TIME reads rows as of a time; it belongs to a SELECT without EMIT"
            faults.add(StatementUnsupported("time_travel", detail, at.time))
    faults.raise_all()
    return Sources(tuple(found))


def relation_of(name: Identifier, session: Session) -> SqlRelation:
    """Return a relation of the catalog.

    Raises:
        StatementRefused: there is none.
    """
    relation = session.relation(folded(name))
    if relation is None:
        detail = f"there is no stream or table {folded(name)}{hint(folded(name), session.relations)}"
        raise StatementRefused("unknown_relation", detail, name)
    return relation


@dataclass
class Translator:
    """From an expression of a statement to one of a definition: names are folded and found, named types written out.

    Attributes:
        sources: the inputs.
        types: named types.
        synthetic: what names that no input has stand for (``ROWKEY``).
        is_free: ksqlDB's rules do not bind the query. Types are written as definitions write them, and a name means what it means in
            a definition: a parameter hides a column, and a column hides the names of ksqlDB (ROWTIME, WINDOWSTART).
        faults: where faults are gathered instead of raised; what is wrong then stays as it is written.
    """

    sources: Sources
    types: Mapping[str, ColumnType]
    synthetic: dict[str, Node] = field(default_factory=dict)
    is_free: bool = False
    faults: list[StatementFault] | None = None

    def __call__(self, node: Node) -> Node:
        """Return the definition's tree of an expression; every column in it names its input.

        Raises:
            StatementRefused: a name is unknown or has several meanings.
        """
        return self._changed(node, frozenset())

    def _changed(self, node: Node, bound_names: frozenset[str]) -> Node:
        def change(part: Node) -> Node | None:
            try:
                return self._change(part, bound_names)
            except StatementFault as fault:
                if self.faults is None:
                    raise
                self.faults.append(fault)
                return part

        return node.mapped(change)

    def _change(self, part: Node, bound_names: frozenset[str]) -> Node | None:
        """Return what a part becomes; None: what is in it is looked at."""
        match part:
            case Column():
                return self._column(part, bound_names)
            case Lambda(parameters=parameters, body=body):
                names = self._parameters(parameters, bound_names)
                declared = tuple(Identifier(folded(each), is_quoted=True) for each in parameters)
                return Lambda(declared, self._changed(body, names), span=part.span)
            case Field(operand=operand, name=name):
                return Field(self._changed(operand, bound_names), Identifier(folded(name), is_quoted=True), span=part.span)
            case StructOf(fields=fields):
                return StructOf(
                    tuple(
                        FieldValue(Identifier(folded(each.name), is_quoted=True), self._changed(each.value, bound_names))
                        for each in fields
                    ),
                    span=part.span,
                )
            case Binary(sign=sign, left=left, right=right) if not self.is_free and not sign.startswith("IS"):
                _refuse_null(sign, part, left, right)
            case Cast(type=kind) if self.is_free and kind.name.upper() not in self.types:
                return None
            case Cast(operand=operand, type=kind):
                return Cast(self._changed(operand, bound_names), type_name(type_of(kind, self.types), kind), span=part.span)
            case Call(arguments=arguments) if any(map(self._is_unit, arguments)):
                own = tuple(self._unit(each) or self._changed(each, bound_names) for each in arguments)
                return Call(part.name, own, part.is_distinct, span=part.span)
        return None

    def _is_unit(self, node: Node) -> bool:
        return self._unit(node) is not None

    def _unit(self, node: Node) -> Text | None:
        """Return an argument that is a unit of time and no column (``TIMESTAMPADD(DAYS, 1, T)``); names in quotes are columns."""
        if not isinstance(node, Column) or node.table is not None or node.name.is_quoted:
            return None
        name = folded(node.name)
        return None if name not in _UNITS or self.sources.having(name) else Text(name, span=node.span)

    def _parameters(self, parameters: tuple[Identifier, ...], bound_names: frozenset[str]) -> frozenset[str]:
        names = [folded(each) for each in parameters]
        if self.is_free:
            return bound_names | set(names)
        for name, each in zip(names, parameters, strict=True):
            if self.sources.having(name):
                raise StatementRefused("lambda_malformed", f"{name} is a column: call the parameter something else", each)
            if name in bound_names or names.count(name) > 1:
                raise StatementRefused("lambda_malformed", f"{name} is a parameter already: call this one something else", each)
        return bound_names | set(names)

    def _column(self, column: Column, bound_names: frozenset[str]) -> Node:
        name = folded(column.name)
        if column.table is None and name in bound_names:
            return Column(Identifier(name, is_quoted=True), span=column.span)
        if column.table is None and name in self.synthetic:
            found = self.synthetic[name]
            return found if isinstance(found, Column) else Paren(found, span=column.span)
        if self.is_free and (own := self._as_defined(name, column)) is not None:
            return own
        if name.startswith("$"):
            alias = None if column.table is None else self.sources.find(column.table).name
            return Column(
                Identifier(name, is_quoted=True), None if alias is None else Identifier(alias, is_quoted=True), span=column.span
            )
        if column.table is not None:
            return self._of(self.sources.find(column.table), name, column)
        if not self.sources.listed:
            raise StatementRefused("unknown_column", f"{name}: there are no columns here, only values written out", column)
        those = self.sources.having(name)
        if len(those) > 1:
            names = " or ".join(f"{source.alias}.{name}" for source in those)
            raise StatementRefused("ambiguous_column", f"several relations have a column {name}: write {names}", column)
        return self._of(those[0] if those else self.sources.first, name, column)

    def _as_defined(self, name: str, column: Column) -> Column | None:
        """Return a column under the name that definitions give it, a bound of windows included; None where no input has it."""
        inputs = self.sources.listed if column.table is None else (self.sources.find(column.table),)
        found = [source for source in inputs if name in source.own_columns]
        if not found:
            return None
        return (
            found[0].column(name, column)
            if column.table is not None
            else Column(Identifier(name, is_quoted=True), span=column.span)
        )

    def _of(self, source: Source, name: str, at: Column) -> Node:
        if name == ROWTIME:
            return source.column(EVENT_TIME, at)
        if name in ("WINDOWSTART", "WINDOWEND") and source.relation.window is not None:
            return source.bound(name, at)
        if name in ("ROWPARTITION", "ROWOFFSET"):
            raise StatementUnsupported(
                "pseudo_column", f"{name}: places of records are not kept; RECORD_COLUMNS of a topic makes columns of them", at
            )
        if name not in source.relation.columns:
            known = self._known(None if at.table is None else source)
            written = name if at.table is None else f"{source.alias}.{name}"
            raise StatementRefused("unknown_column", f"there is no column {written}{hint(name, known)}", at)
        return source.column(name, at)

    def _known(self, source: Source | None) -> list[str]:
        """Return the columns that may be named, of one input or of all."""
        inputs = self.sources.listed if source is None else (source,)
        return [name for each in inputs for name in (each.own_columns if self.is_free else each.relation.columns.names)]


def _refuse_null(sign: str, at: Node, *operands: Node) -> None:
    if any(isinstance(each.bare, Null) for each in operands):
        detail = "a comparison with NULL is never true: write IS NULL or IS NOT NULL"
        if sign in _ARITHMETIC:
            detail = "NULL has no type to compute with: say which it has, as in CAST(NULL AS INT)"
        raise StatementRefused("type_mismatch", detail, at)


def core(node: Node) -> Node:
    """Return a tree without brackets: what it means."""
    return node.mapped(lambda part: core(part.inner) if isinstance(part, Paren) else None)
