"""What is known of the running relation while joins are added to it: its key, which columns equal which, what history it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.definition.queries import Join
from engine.expressions.syntax import parse
from engine.expressions.types.types import ColumnType
from engine.plan.building.join_keys import KeyPart, result_key, wider
from engine.plan.building.scope import Side
from engine.sql.tree import Call, Column


@dataclass(frozen=True, slots=True)
class PlannedJoin:
    """A join that fits.

    Attributes:
        join: as the user gave it.
        parts: what meets: for a table its key columns in order.
        is_foreign_key: the tables do not meet on both primary keys.
        left_retention_ms: R of the running table before the join, None for a stream and where it is unversioned.
        left_key: key columns of the running relation before the join; of a table-table join in the order of ``parts``.
        key: the same behind it.
    """

    join: Join
    side: Side
    parts: tuple[KeyPart, ...]
    is_foreign_key: bool = False
    left_retention_ms: int | None = None
    left_key: tuple[str, ...] = ()
    key: tuple[str, ...] = ()


@dataclass(slots=True)
class Running:
    """What is known of the running relation while joins are added to it.

    Attributes:
        key: a table's key columns, never null; a stream's that tell its records apart; may be empty for a stream.
        retention_ms: how far back changes out of order correct older results; None where arrival decides alone.
        is_versionable: TT5: whether every change has its place in event time, so that the result can be a versioned table.
        types: of the relations' columns, and of the key columns that joins made.
        has_null_keys: an outer join of streams made rows without a key.
    """

    kind: Literal["stream", "table"]
    key: tuple[str, ...]
    retention_ms: int | None
    is_versionable: bool
    types: dict[str, ColumnType]
    has_null_keys: bool = False
    _same: dict[str, str] = field(default_factory=dict)
    _stands_for: dict[str, str] = field(default_factory=dict)
    _united: dict[str, frozenset[str]] = field(default_factory=dict)

    @staticmethod
    def of(source: Side) -> Running:
        """Return the running relation before any join."""
        retention_ms = source.entry.relation.history_retention_ms
        is_versionable = source.kind == "table" and retention_ms is not None
        return Running(source.kind, source.key(), retention_ms, is_versionable, dict(source.schema().items()))

    def original(self, column: str) -> str:
        """Return the column that this one always equals, the first of its name's history; itself where there is none.

        A column of a side that may be absent equals no other one: it may be null.
        """
        return self._same.get(column, column)

    def key_column(self, text: str) -> str | None:
        """Return the key column that an expression always equals, None where there is none.

        Args:
            text: canonical. It is one for a column, and for a ``coalesce`` of key columns, one of which is always there.
        """
        tree = parse(text).bare
        parts = [part.bare for part in tree.arguments] if isinstance(tree, Call) and tree.name.text == "coalesce" else [tree]
        columns = [part for part in parts if isinstance(part, Column)]
        if len(columns) < len(parts):
            return None
        names = {self.original(column.full_name) for column in columns}
        return next((key for key in self.key if self._is_key(key, names)), None)

    def _is_key(self, key: str, columns: set[str]) -> bool:
        """Whether the first of the columns that is not null always equals the key column."""
        is_of_key = all(column == key or self.stood_for(column) == key for column in columns)
        return is_of_key and (key in columns or self._united.get(key, {key}) <= columns)

    def stood_for(self, column: str) -> str | None:
        """Return the key column that this one equals wherever it is not null, None where there is none."""
        return self._stands_for.get(column)

    def met_key(self, parts: tuple[KeyPart, ...]) -> tuple[str, ...] | None:
        """Return the key columns that the parts equate, in their order; None where that is not the whole key, each column once."""
        met = [self.key_column(part.left.text) for part in parts]
        found = tuple(column for column in met if column is not None)
        return found if len(found) == len(met) == len(set(found)) and set(found) == set(self.key) else None

    def add(self, join: PlannedJoin) -> None:
        """Go on behind a join."""
        retention_ms = join.side.entry.relation.history_retention_ms
        self.types |= dict(join.side.schema().items())
        if self.kind == "stream":
            if join.join.type == "inner":
                self._same |= {
                    join.side.qualified(part.right): self.original(part.left.column)
                    for part in join.parts
                    if part.left.column is not None
                }
            if join.join.type == "right":  # every row has a record of the right stream, and its key
                self.key, self.has_null_keys = join.side.key(), False
            self.has_null_keys |= join.join.type == "outer"
            return
        if not join.is_foreign_key:
            self._add_key(join)
        self.is_versionable &= retention_ms is not None and not join.is_foreign_key
        is_complete = join.join.history == "complete" and not join.is_foreign_key
        known = [ms for ms in (self.retention_ms, retention_ms) if ms is not None]
        # With `latest` the results of a key come in the order of arrival; only `complete` corrects older ones.
        self.retention_ms = min(known) if is_complete and len(known) == 2 else None

    def _add_key(self, join: PlannedJoin) -> None:
        """Take over the key of a table-table join's rows, and what equals or stands for it."""
        for part, left, key in zip(join.parts, join.left_key, join.key, strict=True):
            right = join.side.qualified(part.right)
            if join.join.type == "inner":
                self._same[right] = left
            elif join.join.type == "outer":
                self._united[key] = self._united.get(left, frozenset({left})) | {right}
                self.types[key] = wider(self.types[left], self.types[right])
            stand_ins = [column for column, of in self._stands_for.items() if of == left]
            self._stands_for |= dict.fromkeys((*stand_ins, left, right), key)
        after = dict(zip(join.left_key, join.key, strict=True))
        self.key = tuple(after[column] for column in self.key)


def key_behind(join: Join, side: Side, left_key: tuple[str, ...], parts: tuple[KeyPart, ...]) -> tuple[str, ...]:
    """Return the key columns behind a table-table join, in the order of ``parts``."""
    return result_key(join.type, side.alias, left_key, tuple(side.qualified(part.right) for part in parts))
