"""Checks joins: which pair of relations it is, whether its type and options fit that pair, what meets what."""

from __future__ import annotations

from typing import Any

from engine.definition.problems import Problems
from engine.definition.queries import Hold as HoldDefinition
from engine.definition.queries import Join
from engine.expressions.durations import format_duration
from engine.plan.building.join_keys import key_parts
from engine.plan.building.running import PlannedJoin, Running, key_behind
from engine.plan.building.scope import Scope, Side
from engine.plan.operators.stream_table_join import Hold

_TYPES: dict[str, tuple[str, ...]] = {
    "stream–table": ("inner", "left"),
    "stream–stream": ("inner", "left", "right", "outer"),
    "table–table": ("inner", "left", "right", "outer"),
    "foreign-key": ("inner", "left"),
}

_WHY_NOT = {
    "stream–table": "only the stream's records trigger output, so a row of the table alone never gives one",
    "foreign-key": "the result's key is the left table's, which a right row alone does not have",
}

_DEFAULTS: dict[str, Any] = {
    "grace": None, "late": "join", "expired": "null", "hold": None, "history": "latest", "unversioned_ok": False, "within": None,
}  # fmt: skip

_OPTIONS: dict[str, tuple[str, ...]] = {
    "stream–table": ("grace", "late", "expired", "hold", "unversioned_ok"),
    "stream–stream": ("within",),
    "table–table": ("history",),
    "foreign-key": (),
}

_BELONGS_TO = {
    "grace": "a stream that joins a table (two streams wait by `within.grace`; tables never wait)",
    "late": "a stream that joins a table",
    "expired": "a stream that joins a table",
    "hold": "a stream that joins a table",
    "unversioned_ok": "a stream that joins a table",
    "history": "two tables joined on their primary keys",
    "within": "two streams",
}


def plan_joins(scope: Scope) -> tuple[tuple[PlannedJoin, ...], Running] | None:
    """Check every join.

    Returns:
        The joins and the running relation behind them; None after adding problems.
    """
    planned: list[PlannedJoin] = []
    running = Running.of(scope.source)
    for index, side in enumerate(scope.joined):
        join = _plan(scope, index, side, running)
        if join is not None:
            planned.append(join)
            running.add(join)
    return (tuple(planned), running) if len(planned) == len(scope.joined) else None


def _plan(scope: Scope, index: int, side: Side, running: Running) -> PlannedJoin | None:
    join, problems = scope.definition.joins[index], scope.problems
    if running.kind == "table" and side.kind == "stream":
        problems.add(
            f"{side.pointer}/stream", "unsupported_pair",
            f"a table does not join a stream; start from the stream: 'from': {{'stream': '{side.name}'}}, "
            f"'joins': [{{'table': '{scope.source.name}'}}]",
        )  # fmt: skip
        return None
    before = len(problems.found)
    parts = key_parts(scope, index)
    met = None if parts is None or running.kind == "stream" else running.met_key(parts)
    is_foreign_key = running.kind == "table" and parts is not None and met is None
    form = "foreign-key" if is_foreign_key else f"{running.kind}–{side.kind}"
    _check_type(join, form, side.pointer, problems)
    _check_options(join, form, side.pointer, problems)
    if form == "stream–table":
        _check_grace(join, side, problems)
        _check_hold(join, side.pointer, problems)
    elif form == "stream–stream" and join.within is None:
        problems.add(f"{side.pointer}/within", "field_missing", "two streams meet in time: {'before': '5m', 'after': '5m'}")
    elif form == "stream–stream" and join.type == "inner" and join.within is not None and join.within.unmatched == "eager":
        problems.add(
            f"{side.pointer}/within/unmatched", "unsupported_option",
            "`eager` shows records without a partner at once, and an inner join shows none; make it another join, or leave it out",
        )  # fmt: skip
    elif form == "table–table":
        _check_history(join, side, running, problems)
    if parts is None or len(problems.found) > before:
        return None
    if met is None:
        return PlannedJoin(join, side, parts, is_foreign_key, running.retention_ms, running.key, running.key)
    return PlannedJoin(join, side, parts, is_foreign_key, running.retention_ms, met, key_behind(join, side, met, parts))


def _check_type(join: Join, form: str, pointer: str, problems: Problems) -> None:
    if join.type not in _TYPES[form]:
        allowed = " and ".join((", ".join(_TYPES[form][:-1]), _TYPES[form][-1]))
        detail = f"a {form} join is {allowed}, not {join.type}: {_WHY_NOT[form]}"
        problems.add(f"{pointer}/type", "unsupported_pair", detail)


def _check_options(join: Join, form: str, pointer: str, problems: Problems) -> None:
    for name, default in _DEFAULTS.items():
        if name not in _OPTIONS[form] and getattr(join, name) != default:
            problems.add(
                f"{pointer}/{name}", "unsupported_option", f"this is a {form} join; `{name}` belongs to {_BELONGS_TO[name]}"
            )


def _check_grace(join: Join, table: Side, problems: Problems) -> None:
    """J8: 0 ≤ grace ≤ history retention; a grace needs a versioned table unless ``unversioned_ok``."""
    pointer, retention_ms = table.pointer, table.entry.relation.history_retention_ms
    if join.expired != "null" and (join.type != "left" or retention_ms is None):
        problems.add(
            f"{pointer}/expired", "unsupported_option",
            "`expired` says what a left join does where a versioned table's history has expired; leave it out here",
        )  # fmt: skip
    if join.unversioned_ok and (join.grace is None or retention_ms is not None):
        reason = f"{table.name} is versioned" if retention_ms is not None else "this join has no grace"
        problems.add(
            f"{pointer}/unversioned_ok", "unsupported_option",
            f"`unversioned_ok` permits a grace on a table that is not versioned, and {reason}; leave it out",
        )  # fmt: skip
    if join.grace is None:
        if join.late != "join":
            problems.add(f"{pointer}/late", "late_without_grace", "`late` is judged only with a grace; give one (0s is enough)")
        return
    if retention_ms is not None:
        if join.grace > retention_ms:
            problems.add(
                f"{pointer}/grace", "grace_exceeds_history_retention",
                f"a grace of {format_duration(join.grace)} needs versions older than the {format_duration(retention_ms)} that "
                f"{table.name} keeps; lower the grace or give the table a larger history_retention",
            )  # fmt: skip
    elif not join.unversioned_ok:
        problems.add(
            f"{pointer}/grace", "grace_needs_versioned_table",
            f"{table.name} is not versioned, so waiting cannot find the value of the record's own time; make the "
            "table versioned ('versioned': {'history_retention': …}), or drop the grace, or say 'unversioned_ok': true to meet "
            "the latest value by arrival",
        )  # fmt: skip
    elif join.grace == 0:
        problems.add(
            f"{pointer}/grace", "grace_needs_versioned_table", "a grace of 0s needs a versioned table; leave the grace out"
        )


def _check_hold(join: Join, pointer: str, problems: Problems) -> None:
    """J9: what is held is what a grace has released."""
    if join.hold is None:
        return
    if join.grace is None:
        problems.add(
            f"{pointer}/hold", "hold_without_grace",
            "a hold makes records wait on after their grace; without one they are looked up on arrival. Give a `grace` "
            "(0s is enough on a versioned table)",
        )  # fmt: skip
    if join.hold.at_most == 0:
        problems.add(f"{pointer}/hold/at_most", "invalid_value", "`at_most` must be longer than 0s, or nothing is ever held")


def _check_history(join: Join, side: Side, running: Running, problems: Problems) -> None:
    """TT6: older results can only be corrected where both sides keep theirs."""
    if join.history != "complete" or (running.retention_ms is not None and side.entry.relation.history_retention_ms is not None):
        return
    if running.retention_ms is not None:
        lacking = f"{side.name} is not versioned"
    elif running.is_versionable:
        lacking = "the joins before keep no history: let them be `history: complete` too"
    else:
        lacking = "the left side is not versioned"
    problems.add(
        f"{side.pointer}/history", "history_needs_versioned_tables",
        f"`complete` corrects older results from the histories of both sides, and {lacking}; register tables with "
        "'versioned': {'history_retention': …}, or use `latest`",
    )  # fmt: skip


def hold_of(hold: HoldDefinition | None) -> Hold | None:
    """Return the plan's form of a hold."""
    return None if hold is None else Hold(hold.until, hold.slack, hold.at_most, hold.max_rows)
