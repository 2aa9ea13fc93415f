"""The filter over a table's changes."""

from __future__ import annotations

from dataclasses import dataclass

from engine.plan.operators.operator import StatefulOperator


@dataclass(frozen=True, slots=True)
class TableFilter(StatefulOperator):
    """F1: a filter over a table's changes. A row that fails becomes a delete, where the result had one.

    Attributes:
        condition: over qualified columns.
        key: the table's qualified key columns.
        history_retention_ms: R of a versioned table, or of an unversioned one's versioned result, else None.
        is_result_versioned: False: the result of a versioned table is unversioned: V1 is judged, then the latest by arrival counts.
        tells_every_delete: another operator follows: deletes go on also where the result had no row, for a row that comes later with
            an earlier time ends there.
    """

    keeps_offset = True

    condition: str
    key: tuple[str, ...]
    history_retention_ms: int | None
    is_result_versioned: bool = True
    tells_every_delete: bool = False
