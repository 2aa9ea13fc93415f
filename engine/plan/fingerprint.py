"""What of a plan kept state depends on: the rest may be edited in place."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from typing import Any

from engine.expressions.types.types import Schema
from engine.plan.model import Feed, Input, LateRecords, Output, Plan, Stage

_LATER_FIELDS = (
    "options", "computed", "part_of", "append_to", "functions", "change_rules", "lost_records", "time_key", "slowest_after_ms",
)  # fmt: skip
"""``AggregateColumn.options``, ``Input.computed``, ``Input.part_of``, ``Output.append_to``; ``functions``, which texts name by their digests;
``RelationSchema.change_rules`` and ``.lost_records``, and ``Plan.slowest_after_ms``, which are never kept."""


def state_fingerprint(plan: Plan) -> str:
    """Return a digest of what kept state depends on.

    Left out is what may be edited in place: how long a grace is (J11; not whether a join has one), policies for late and expired
    records, how long a hold waits, limits of suppression and how high its bounds are (not whether it has some: with them it works in one
    task, S4), how long silence may last and which partition makes time, what windows and a versioned result keep for reading (but see
    ``fits_stored_state``), how many late records are kept, the number of tasks (the next launch shares the state out among
    them: ``engine.operators.rescale``); and of the relations what concerns only their reading: columns that the query does not use, what
    happens to bad records, how many queries write it.
    """
    kept = replace(
        plan,
        tasks=0,
        inputs=tuple(map(_state_of_input, plan.whole_inputs)),
        stages=tuple(replace(stage, operators=tuple(each.state_part() for each in stage.operators)) for stage in plan.stages),
        output=_state_of_output(plan.output),
        late_records=LateRecords(0, 0),
        idle_after_ms=None,
        slowest_after_ms=None,
        release=0,
        hash_seed=0,
        functions=(),
    )
    values: dict[str, Any] = asdict(kept, dict_factory=_without_later_fields)
    for item, written in zip(kept.inputs, values["inputs"], strict=True):
        written["feed"] = _state_of_feed(item.feed)
    parts = {"plan": values, "operators": list(map(_operator_types, plan.stages))}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def fits_stored_state(before: Plan, after: Plan) -> bool:
    """Whether state and results that ``before`` made can be used by ``after``.

    Beside equal fingerprints, but for columns that the result gets in addition, that asks for no longer history of a versioned result: what a
    shorter one has dropped is gone, and an as-of read would take its absence for an answer.
    """
    kept_ms, wanted_ms = before.output.history_retention_ms, after.output.history_retention_ms
    is_history_there = kept_ms is None or wanted_ms is None or wanted_ms <= kept_ms
    return is_history_there and (state_fingerprint(before) == state_fingerprint(after) or adds_columns(before, after))


def adds_columns(before: Plan, after: Plan) -> bool:
    """Whether ``after`` does what ``before`` does, and gives its result further columns beside those it has.

    State knows nothing of the last ``select``, but of the columns that it is made of: where there is any, these must be read already.
    """
    had, has = before.output.columns, after.output.columns
    if len(has) <= len(had) or any(name not in has or has[name] != kind for name, kind in had.items()):
        return False
    shown, shows = (dict(plan.stages[-1].operators[-1].selected) for plan in (before, after))
    if any(shows.get(name) != text for name, text in shown.items()):
        return False
    is_kept = any(operator.name is not None for stage in after.stages for operator in stage.operators)
    return state_fingerprint(_unselected(before, is_kept=is_kept)) == state_fingerprint(_unselected(after, is_kept=is_kept))


def _unselected(plan: Plan, *, is_kept: bool) -> Plan:
    """Leave out the last ``select``; where nothing is kept, also which columns are read for it."""
    last = plan.stages[-1]
    stages = (*plan.stages[:-1], replace(last, operators=last.operators[:-1]))
    inputs = plan.inputs
    if not is_kept:
        stages = tuple(replace(stage, schema=Schema(), emitted=Schema()) for stage in stages)
        inputs = tuple(replace(item, columns=()) for item in inputs)
    return replace(plan, inputs=inputs, stages=stages, output=replace(plan.output, columns=Schema()))


def _without_later_fields(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Leave out fields that came later where they say nothing: digests of plans without them stay what they were."""
    return {name: value for name, value in pairs if value not in (None, ()) or name not in _LATER_FIELDS}


def _operator_types(stage: Stage) -> list[str]:
    """Name the operators: as bare fields two different ones may look alike."""
    return [type(operator).__name__ for operator in stage.operators]


def _state_of_input(source: Input) -> Input:
    relation = source.relation
    columns = relation.columns.select(source.columns)
    read = replace(
        relation, columns=columns, max_future_skew_ms=None, is_stop_on_bad_record=False, change_rules=None, lost_records=None
    )
    return replace(source, functions=(), time_key=(), relation=read)  # operators have the key


def _state_of_feed(feed: Feed) -> dict[str, object]:
    """Name a feed as digests have named it since before places stood for themselves."""
    own = {} if feed.place is None else feed.place.state_part()
    named = {"name": feed.name, "type": feed.type, "log_feed": feed.log_feed, "is_derived": feed.is_derived}
    return {**named, "path": None, "format": None, **own}


def _state_of_output(output: Output) -> Output:
    history_ms = None if output.history_retention_ms is None else 0
    return replace(output, retention_ms=None, history_retention_ms=history_ms, closes_after_ms=None, log_retention_ms=None)
