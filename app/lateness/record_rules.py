"""Rules of stored late records: whether a record has certain values, and whether it can be replayed. Pure."""

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
    "window_closed": "its window is closed, and its result is final",
    "window_out_of_range": "its window would end later than the year 9999",
    "join_window_closed": "the records that could match it may be forgotten, or were shown without it",
    "table_history_expired": "the table's history of its time is not stored any more",
}

_PER_MS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}

LATE_REASONS: Final = frozenset(
    {
        "late_joined", "late_dropped", "late_diverted", "window_closed", "window_out_of_range", "join_window_closed",
        "table_history_expired",
    }
)  # fmt: skip
"""Counters of records that an operator found late (J3, V1, W1-W4), whatever became of them."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a late record cannot be replayed.

    Attributes:
        code: ``replay_not_possible``, or ``record_cut``.
    """

    code: str
    detail: str


def refusal_of(reason: str, operator: str, record: str, plan: Plan) -> Refusal | None:
    """Return why a late record cannot go through the query's current definition; None if it can.

    Only a join of a stream with a table accepts records again: it can still join them as of their own time.
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
    """Return whether a record's JSON has these values: at least one of them, and no other value for any of them.

    Args:
        record: a JSON object; a truncated one has no value.
        values: qualified or plain column → value. A record may use either form.
    """
    parsed = _object(record) or {}
    values_of_record = {name: parsed.get(name, parsed.get(name.rpartition(".")[2])) for name in values}
    known = {name: value for name, value in values_of_record.items() if value is not None}
    return bool(known) and all(is_same(value, values[name]) for name, value in known.items())


def has_all(record: str, values: Mapping[str, object]) -> bool:
    """Return whether a record's JSON has every one of these values; a missing column is null. Without values: False."""
    parsed = _object(record)
    if parsed is None or not values:
        return False
    return all(parsed.get(name) is None if value is None else is_same(parsed.get(name), value) for name, value in values.items())


def names_in(record: str) -> frozenset[str]:
    """Return the columns of a record's JSON; empty for a truncated one."""
    return frozenset(_object(record) or ())


def event_time_of(record: str, relation: RelationSchema, arrived: datetime) -> int | None:
    """Return the event time of a rejected record in ms; None if its stored text does not show it.

    Args:
        record: its JSON, perhaps truncated.
        relation: the relation that rejected it.
        arrived: time of arrival; the event time if the relation has no event-time column and the record no `$event_time_ms`.
    """
    parsed = _object(record)
    if parsed is None:
        return None
    if relation.event_time is None:
        explicit_ms = next((parsed[name] for name in ("$event_time_ms", "_ts") if isinstance(parsed.get(name), int)), None)
        return round(arrived.timestamp() * 1000) if explicit_ms is None else explicit_ms
    written = parsed.get(relation.event_time)
    if isinstance(written, int) and not isinstance(written, bool):
        return written * 1000 if relation.event_time_unit == "s" else written // _PER_MS[relation.event_time_unit]
    if not isinstance(written, str):
        return None
    try:
        pattern = relation.event_time_format
        moment = _instant(written) if pattern is None else _in_utc(datetime.strptime(written, pattern))  # noqa: DTZ007
    except ValueError:
        return None
    return None if moment is None else round(moment.timestamp() * 1000)


def _object(record: str) -> dict[str, Any] | None:
    """Return the JSON object of a record; None if it is truncated, or not an object."""
    try:
        parsed = json.loads(record)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def is_same(written: object, value: object) -> bool:
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
