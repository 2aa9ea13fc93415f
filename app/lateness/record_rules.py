"""Kept late records: whether one has certain values, and whether it can go through its query again. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from engine.operators.tasks.replay import REPLAYABLE
from engine.plan.model import Plan, RelationSchema

_WHY_NOT = {
    "window_closed": "its window is closed: what was told as final cannot change",
    "window_out_of_range": "its window would end later than the year 9999",
    "join_window_closed": "the records that it could have met may be forgotten, or were shown without it",
    "table_history_expired": "the table's history at its time is not kept any more",
}

_PER_MS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}

LATE_REASONS: Final = frozenset(
    {
        "late_joined", "late_dropped", "late_diverted", "window_closed", "window_out_of_range", "join_window_closed",
        "table_history_expired",
    }
)  # fmt: skip
"""Counters of records that their operator's test found late (J3, V1, W1-W4), whatever became of them."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a late record cannot be replayed.

    Attributes:
        code: ``replay_not_possible``, or ``record_cut``.
    """

    code: str
    detail: str


def refusal_of(reason: str, operator: str, record: str, plan: Plan) -> Refusal | None:
    """Say why a late record cannot go through the query as it is defined now; None where it can.

    Only a join of a stream with a table takes records in again: it can still join them as of their own time.
    """
    if reason not in REPLAYABLE:
        why = _WHY_NOT.get(reason, "only late records of a join of a stream with a table can be joined again")
        return Refusal("replay_not_possible", f"a record with the reason {reason} cannot be replayed: {why}")
    joins = [each.name for stage in plan.stages for each in stage.operators if each.takes_replays]
    if operator not in joins:
        return Refusal("replay_not_possible", f"the definition has no join '{operator}' with a table any more")
    try:
        json.loads(record)
    except ValueError:
        return Refusal("record_cut", "the record was too long to be kept whole")
    return None


def matches(record: str, values: Mapping[str, object]) -> bool:
    """Say whether a record's JSON has these values: at least one of them, and no other value for any.

    Args:
        record: a JSON object; one that was cut off has none.
        values: qualified or plain column → value. A record names its columns either way.
    """
    parsed = _object(record) or {}
    own = {name: parsed.get(name, parsed.get(name.rpartition(".")[2])) for name in values}
    known = {name: value for name, value in own.items() if value is not None}
    return bool(known) and all(is_same(value, values[name]) for name, value in known.items())


def has_all(record: str, values: Mapping[str, object]) -> bool:
    """Say whether a record's JSON has every one of these values; a column that it leaves out is null. Nothing has no values at all."""
    parsed = _object(record)
    if parsed is None or not values:
        return False
    return all(parsed.get(name) is None if value is None else is_same(parsed.get(name), value) for name, value in values.items())


def names_in(record: str) -> frozenset[str]:
    """Return the columns that a record's JSON has; of one that was cut off none is known."""
    return frozenset(_object(record) or ())


def event_time_of(record: str, relation: RelationSchema, arrived: datetime) -> int | None:
    """Return the event time of a refused record in ms, None where what was kept of it does not tell.

    Args:
        record: its JSON, perhaps cut off.
        relation: which refused it.
        arrived: when; the event time of a relation without a column for it, where the record brings none.
    """
    parsed = _object(record)
    if parsed is None:
        return None
    if relation.event_time is None:
        own = next((parsed[name] for name in ("$event_time_ms", "_ts") if isinstance(parsed.get(name), int)), None)
        return round(arrived.timestamp() * 1000) if own is None else own
    written = parsed.get(relation.event_time)
    if isinstance(written, int) and not isinstance(written, bool):
        return written * 1000 if relation.event_time_unit == "s" else written // _PER_MS[relation.event_time_unit]
    if not isinstance(written, str):
        return None
    try:
        form = relation.event_time_format
        moment = _instant(written) if form is None else _in_utc(datetime.strptime(written, form))  # noqa: DTZ007
    except ValueError:
        return None
    return None if moment is None else round(moment.timestamp() * 1000)


def _object(record: str) -> dict[str, Any] | None:
    """Return the JSON object of a record; None where it was cut off, or is no object."""
    try:
        parsed = json.loads(record)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def is_same(written: object, value: object) -> bool:
    """Say whether a JSON value stands for a column's value."""
    if isinstance(value, bool) or isinstance(written, bool):
        return written is value
    if isinstance(value, int | float | Decimal):
        return _number(written) == _number(value)
    if isinstance(value, datetime):
        return _instant(written) == value
    return written == (value if isinstance(value, str) else str(value))


def _number(value: object) -> Decimal | None:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None


def _instant(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return _in_utc(moment)


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
