"""GROUP BY: aggregates are taken out of expressions, groups get their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeGuard

from engine.expressions.aggregates.aggregates import AGGREGATE_NAMES, KSQLDB_AGGREGATES
from engine.expressions.syntax import render
from engine.sql.tree import Call, Column, Identifier, Node
from engine.statements.context.faults import Faults, StatementRefused
from engine.statements.context.naming import WINDOW_BOUNDS_OF_SQL, check_column_name
from engine.statements.context.scope import Translator, bound, core
from engine.statements.context.session import WINDOW_BOUNDS
from engine.statements.queries.items import Item

_AGGREGATES: Final = AGGREGATE_NAMES | {name.lower() for name in KSQLDB_AGGREGATES}


def is_aggregate(node: Node) -> bool:
    return isinstance(node, Call) and node.name.text.lower() in _AGGREGATES


def has_aggregates(*nodes: Node | None) -> bool:
    """Whether one is called somewhere in them."""
    return any(is_aggregate(part) for node in nodes if node is not None for part in node.walk())


def _is_plain(tree: Node) -> TypeGuard[Column]:
    """Whether a group is a column, which keeps its name; a pseudo-column does not."""
    return isinstance(tree, Column) and not tree.name.text.startswith("$")


@dataclass
class Groups:
    """The groups of a query.

    Attributes:
        trees: what it is grouped by, over the inputs' columns.
        aggregates: column → call.
        places: column → where the statement calls it.
    """

    trees: tuple[Node, ...]
    taken: set[str]
    aggregates: dict[str, Node] = field(default_factory=dict)
    places: dict[str, Node] = field(default_factory=dict)

    @staticmethod
    def of(trees: tuple[Node, ...]) -> Groups:
        """Return the groups of some expressions."""
        names = [tree.name.text for tree in map(core, trees) if _is_plain(tree)]
        return Groups(trees, {*names, *WINDOW_BOUNDS, *(f"group_{number + 1}" for number in range(len(trees)))})

    def reduced(self, tree: Node, name: str | None, at: Node) -> Node:
        """Return an expression over the group's results: aggregates and groups in it have become columns.

        Args:
            tree: over the inputs' columns.
            name: what the column of an aggregate may be called; None: no name is known.
            at: where the statement has it.

        Raises:
            StatementFault: it names columns that are not one for the whole group; with every fault.
        """
        whole, faults = core(tree), Faults()

        def change(part: Node) -> Node | None:
            meaning = core(part)
            for number, group in enumerate(self.trees):
                if meaning == core(group):
                    return self._group(number)
            if is_aggregate(part):
                return self._aggregate(part, name if meaning == whole else None)
            if isinstance(part, Column) and part.table is not None:
                detail = f"{part.name.text} may differ within a group: put it into GROUP BY, or into an aggregate"
                faults.add(StatementRefused("not_grouped", detail, at if part.span is None else part))
            return None

        reduced = tree.mapped(change)
        faults.raise_all()
        return reduced

    def _group(self, number: int) -> Node:
        tree = core(self.trees[number])
        return tree if _is_plain(tree) else Column(Identifier(f"group_{number + 1}", is_quoted=True))

    def _aggregate(self, call: Node, wanted: str | None) -> Node:
        found = next((name for name, each in self.aggregates.items() if core(each) == core(call)), None)
        if found is None:
            found = wanted if wanted is not None and wanted not in self.taken else self._free()
            self.taken.add(found)
            self.aggregates[found] = call
            self.places[found] = call
        return Column(Identifier(found, is_quoted=True))

    def _free(self) -> str:
        number = len(self.aggregates) + 1
        while (name := f"aggregate_{number}") in self.taken:
            number += 1
        return name

    @property
    def body(self) -> Mapping[str, str]:
        """The definition's aggregates."""
        return {name: render(call) for name, call in self.aggregates.items()}


def group_trees(groups: Sequence[Node], translate: Translator) -> tuple[Node, ...]:
    """Return what a query is grouped by.

    Raises:
        StatementFault: a group is wrong, or there twice; with every fault.
    """
    trees: list[Node] = []
    faults = Faults()
    for each in groups:
        with faults.part():
            tree = translate(each)
            if any(core(tree) == core(known) for known in trees):
                raise StatementRefused("duplicate_group", "GROUP BY has this twice: leave one out", each)
            trees.append(tree)
    faults.raise_all()
    return tuple(trees)


def with_bounds(translate: Translator, *, is_windowed: bool) -> Translator:
    """Return a translator that knows the bounds of the query's own windows."""
    if not is_windowed:
        return translate
    bounds: dict[str, Node] = {
        name: bound(Column(Identifier(own, is_quoted=True)))
        for name, own in zip(WINDOW_BOUNDS_OF_SQL, WINDOW_BOUNDS, strict=True)
    }
    return Translator(translate.sources, translate.types, {**translate.synthetic, **bounds})


def check_items(items: list[Item]) -> None:
    """Refuse results whose columns would be called like what the system has.

    Raises:
        StatementFault: with every fault.
    """
    faults = Faults()
    for item in items:
        with faults.part():
            if item.is_bound:
                detail = f"{item.name} is a name that every window has: rename it by AS, or leave it out"
                raise StatementRefused("reserved_column", detail, item.at)
            check_column_name(item.name, item.at)
    faults.raise_all()
