"""The items of a SELECT: stars written out, names given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.expressions.types.types import ColumnType
from engine.sql.statement_tree import SelectItem
from engine.sql.tree import AllFields, Column, Field, Identifier, Node, Star
from engine.statements.context.faults import Faults, StatementRefused, StatementUnsupported
from engine.statements.context.naming import ROWTIME, WINDOW_BOUNDS_OF_SQL, Numbered, folded
from engine.statements.context.scope import Source, Sources, Translator, core
from engine.statements.context.type_names import shown


@dataclass(frozen=True, slots=True)
class Item:
    """One column of the result.

    Attributes:
        name: as the result has it.
        tree: its expression, as definitions write it.
        at: where the statement has it.
        is_bound: a window's bound under its own name: no column, for every windowed relation has it.
        is_starred: a star stands for it.
    """

    name: str
    tree: Node
    at: Node
    is_bound: bool = False
    is_starred: bool = False


@dataclass(frozen=True, slots=True)
class Naming:
    """What names of items depend on.

    Attributes:
        numbered: names for expressions.
        leading: columns that ``*`` gives before those of the inputs: keys that the query makes.
        is_rekeyed: the rows get another key: the one that they had is among the values, behind the others.
    """

    numbered: Numbered
    leading: tuple[tuple[str, Node], ...] = ()
    is_rekeyed: bool = False


def items_of(items: tuple[SelectItem, ...], sources: Sources, translate: Translator, naming: Naming) -> list[Item]:
    """Return the columns of a SELECT.

    Raises:
        StatementRefused: names are unknown, or given twice.
    """
    found: list[Item] = []
    faults = Faults()
    for item in items:
        with faults.part():
            found.extend(_of(item, sources, translate, naming))
    taken: set[str] = set()
    for each in found:
        if each.name in taken:
            detail = f"two columns of the SELECT are called {each.name}: rename one by AS"
            faults.add(StatementRefused("duplicate_column", detail, each.at))
        taken.add(each.name)
    faults.raise_all()
    return found


def _of(item: SelectItem, sources: Sources, translate: Translator, naming: Naming) -> Iterator[Item]:
    value = item.value
    match value:
        case Star(table=None):
            yield from (Item(name, tree, item, is_starred=True) for name, tree in naming.leading)
            for source in sources:
                yield from _all_of(source, sources, item, naming)
        case Star(table=Identifier() as alias):
            yield from _all_of(sources.find(alias), sources, item, naming)
        case AllFields(operand=operand):
            yield from _fields(translate(operand), sources, item)
        case _:
            yield _single(item, sources, translate, naming)


def _all_of(source: Source, sources: Sources, item: SelectItem, naming: Naming) -> Iterator[Item]:
    relation = source.relation
    prefix = f"{source.alias}_" if sources.is_join else ""
    keys = [Item(prefix + name, source.column(name), item, is_starred=True) for name in relation.key]
    if not naming.is_rekeyed:
        yield from keys
    if relation.window is not None and sources.is_join:
        for name in WINDOW_BOUNDS_OF_SQL:
            yield Item(prefix + name, source.bound(name), item, is_starred=True)
    yield from (Item(prefix + name, source.column(name), item, is_starred=True) for name in relation.values)
    if naming.is_rekeyed:
        yield from keys


def _single(item: SelectItem, sources: Sources, translate: Translator, naming: Naming) -> Item:
    tree = translate(item.value)
    bare = item.value.bare
    if item.alias is not None:
        return Item(folded(item.alias), tree, item)
    if isinstance(bare, Column):
        name = folded(bare.name)
        if len(sources.having(name)) > 1 and bare.table is not None:
            return Item(f"{folded(bare.table)}_{name}", tree, item)
        if name == ROWTIME:
            raise StatementRefused(
                "reserved_column", f"{name} is a name that every record has: rename it by AS, or leave it out", item
            )
        return Item(name, tree, item, is_bound=name in WINDOW_BOUNDS_OF_SQL)
    if isinstance(bare, Field):
        return Item(naming.numbered.field(folded(bare.name)), tree, item)
    return Item(naming.numbered.column(), tree, item)


def _fields(operand: Node, sources: Sources, item: SelectItem) -> Iterator[Item]:
    """Write out ``s->*``."""
    kind = _type_of(core(operand), sources)
    if kind is None:
        raise StatementUnsupported("fields_of_expression", "->* needs a column, or a field of one, in front of it", item)
    if kind.kind != "struct":
        raise StatementRefused(
            "type_mismatch", f"->* writes out the fields of a STRUCT, and this is {shown(kind)}: leave ->* out", item
        )
    for name, _ in kind.fields:
        yield Item(name, Field(operand, Identifier(name, is_quoted=True)), item)


def _type_of(node: Node, sources: Sources) -> ColumnType | None:
    match node:
        case Column(name=name, table=Identifier(text=alias)):
            source = next((each for each in sources if each.name == alias), None)
            return None if source is None else source.relation.columns[name.text]
        case Field(operand=operand, name=name):
            outer = _type_of(operand, sources)
            return None if outer is None else dict(outer.fields).get(name.text)
    return None
