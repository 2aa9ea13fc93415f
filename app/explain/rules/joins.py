"""Explains joins: late, waiting, which version is used (J2–J9, V4, TT, FK)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.catalog.queries import columns
from app.explain.rules.facts import Record, Step, Versions
from app.explain.rules.subject import Desk, Explanation, Subject, Waiting
from app.http.values import shown
from engine.expressions import python_functions
from engine.expressions.durations import format_duration
from engine.plan.model import Input
from engine.plan.operators.foreign_key_join import ForeignKeyLookup
from engine.plan.operators.stream_stream_join import StreamStreamJoin
from engine.plan.operators.stream_table_join import StreamTableJoin
from engine.plan.operators.table_table_join import TableTableJoin

_REPLAYED = " It was replayed since."
END_OF_TIME = 1 << 61


def explain_stream_table(desk: Desk, spec: StreamTableJoin, subject: Subject) -> Explanation:
    """Explain whether a record is late (J3), waits for the grace or the table (J3, J9), or which version it meets (V4)."""
    table = _input(subject, spec.table_index)
    key = _known(subject, spec.stream_key, spec.table_key)
    null = _null_key(desk, table, key, is_needed=spec.type == "inner")
    if null is not None:
        return Explanation([null])
    for step in (_late(desk, spec, subject), _waiting(desk, spec, subject), _pending_step(desk, spec, subject)):
        if step is not None and step.is_blocking:
            return Explanation([step])
    late = _late(desk, spec, subject)
    if len(key) < len(spec.table_key):
        step = _unknown_key(desk, table, _not_known(subject, spec.stream_key))
        return Explanation([step] if late is None else [late, step])
    step, version = _version(desk, spec, subject, table, key)
    new_values = {} if version is None else {f"{table.alias}.{name}": value for name, value in version.values.items()}
    return Explanation([step] if late is None else [late, step], new_values)


def _late(desk: Desk, spec: StreamTableJoin, subject: Subject) -> Step | None:
    fact = subject.late_at(spec.name, ("late_", "expired_"))
    if fact is not None:
        replayed = _REPLAYED if fact.is_replayed else ""
        policy = fact.reason.partition("_")[2]
        if fact.reason.startswith("expired_"):
            sentence = (
                f"When the record was joined, the history of {spec.name} at {shown(subject.at_ms)} had expired; the policy was: "
                f"{policy}.{replayed}"
            )
            return desk.step("expired", sentence, is_blocking=not fact.is_replayed, reason=fact.reason)
        behind = "" if fact.stream_time_ms is None else f" stream time was {shown(fact.stream_time_ms)},"
        sentence = (
            f"The record was late:{behind} more than the grace after {shown(subject.at_ms)}; the policy was: {policy}.{replayed}"
        )
        clock = Waiting("stream_time", fact.stream_time_ms, None)
        return desk.step("late", sentence, is_blocking=not fact.is_replayed, clock=clock, reason=fact.reason)
    now_ms = subject.clock(spec.name)
    if spec.grace_ms is None or subject.exists or now_ms is None or subject.at_ms >= now_ms - spec.grace_ms:
        return None
    what = {"join": "joined at once", "drop": "dropped", "divert": "diverted"}[spec.late]
    sentence = (
        f"A record of {shown(subject.at_ms)} would be late now: stream time is {shown(now_ms)}, the grace {format_duration(spec.grace_ms)}; "
        f"it would be {what}."
    )
    reason = {"join": "late_joined", "drop": "late_dropped", "divert": "late_diverted"}[spec.late]
    clock = Waiting("stream_time", now_ms, None)
    return desk.step("late", sentence, is_blocking=spec.late != "join", clock=clock, reason=reason)


def _waiting(desk: Desk, spec: StreamTableJoin, subject: Subject) -> Step | None:
    if spec.grace_ms is None:
        return None
    now_ms, until_ms = subject.clock(spec.name), subject.at_ms + spec.grace_ms
    if now_ms is not None and now_ms >= until_ms:
        return None
    verb = "waits" if subject.exists else "would wait"
    sentence = f"It {verb} for the grace {format_duration(spec.grace_ms)} until stream time reaches {shown(until_ms)}; it is at {shown(now_ms)}."
    return desk.step("buffered_until", sentence, is_blocking=True, clock=Waiting("stream_time", now_ms, until_ms), reason="grace")


def _pending_step(desk: Desk, spec: StreamTableJoin, subject: Subject) -> Step | None:
    if spec.hold is None or subject.results:
        return None
    table = _input(subject, spec.table_index)
    buffered = subject.facts.committed.buffered.get(spec.name, {})
    waiting = buffered.get(str(desk.task), 0) if desk.task is not None else sum(buffered.values())
    read_to_ms, until_ms = subject.facts.read_to_ms(table), subject.at_ms + spec.hold.slack_ms
    is_caught_up = spec.hold.until == "caught_up" and subject.facts.committed.lag(table.feed.name) == 0
    if (subject.exists and not waiting) or is_caught_up or (read_to_ms is not None and read_to_ms >= until_ms):
        return None
    sentence = (
        f"It is held until {table.relation.name} has been read up to {shown(until_ms)} in every partition, at most for "
        f"{format_duration(spec.hold.at_most_ms)}; it was read up to {shown(read_to_ms)}."
    )
    return desk.step(
        "buffered_until", sentence, is_blocking=True, clock=Waiting("table_time", read_to_ms, until_ms), reason="hold"
    )


def _version(
    desk: Desk, spec: StreamTableJoin, subject: Subject, table: Input, key: Mapping[str, object]
) -> tuple[Step, Record | None]:
    """Look up the version in the table as the join does, with all that has been read by now."""
    at_ms = subject.at_ms if spec.history_retention_ms is not None else END_OF_TIME
    versions = subject.facts.versions(table, _own(table, key), at_ms)
    name, is_inner = table.relation.name, spec.type == "inner"
    answer, is_expired = versions.latest if spec.history_retention_ms is None else versions.as_of, False
    if spec.history_retention_ms is not None:
        now_ms = subject.clock(f"{spec.name}.table")
        if now_ms is not None and at_ms < now_ms - spec.history_retention_ms:
            is_expired = versions.latest is not None and versions.latest.event_time_ms > at_ms
            answer = None if is_expired else versions.latest
    unread = _unread(versions)
    if is_expired and subject.exists:
        sentence = (
            f"The record was joined before the history of {name} at {shown(at_ms)} expired (it keeps "
            f"{format_duration(spec.history_retention_ms or 0)}): the version that it met is no longer known."
        )
        return desk.step("expired", sentence, reason="history_expired"), None
    if is_expired:
        sentence = f"{name} keeps {format_duration(spec.history_retention_ms or 0)} of history: its versions at {shown(at_ms)} have expired."
        return desk.step("expired", sentence, is_blocking=is_inner or spec.expired != "null", reason="history_expired"), None
    if answer is not None and not answer.is_delete:
        end_ms = None if versions.next is None else versions.next.event_time_ms
        valid = "still valid" if end_ms is None else f"valid until {shown(end_ms)}"
        sentence = f"It meets the version of {name} from {shown(answer.event_time_ms)}, {valid}.{_later(spec, answer, subject, table)}{unread}"
        return desk.step("joined_version", sentence, version=(answer.event_time_ms, end_ms), place=answer.place), answer
    if not versions.is_complete:
        return desk.step("unknown", f"Which version of {name} it meets is not known: its feed cannot be searched that far."), None
    row = "there is no row" if is_inner else "its columns are null"
    if answer is not None:
        sentence = f"{name} has no row for this key at {shown(subject.at_ms)}: it was deleted at {shown(answer.event_time_ms)}; {row}.{unread}"
        return desk.step("no_version", sentence, is_blocking=is_inner, reason="deleted", place=answer.place), None
    first = f" The first is from {shown(versions.next.event_time_ms)}.{_dated(table)}" if versions.next is not None else ""
    sentence = f"{name} has no version for this key at {shown(subject.at_ms)}; {row}.{first}{unread}"
    return desk.step("no_version", sentence, is_blocking=is_inner, reason="no_version"), None


def _later(spec: StreamTableJoin, answer: Record, subject: Subject, table: Input) -> str:
    """Return the sentence that the latest row of an unversioned table may have arrived after the record was joined."""
    if spec.history_retention_ms is not None or answer.event_time_ms <= subject.at_ms:
        return ""
    return f" That is after the record's time: a record that was read before this row met an older one, or none.{_dated(table)}"


def _dated(table: Input) -> str:
    """Return the sentence that a table's rows are valid from their arrival, if that is why there is no version."""
    relation = table.relation
    if table.feed.is_derived or relation.event_time is not None or relation.conflict == "latest_position":
        return ""
    return (
        f" {relation.name} names no `event_time` column, so its rows are valid from their arrival, or from the timestamps of its topic; "
        f"register it with an `event_time` column, or append its rows with `$event_time_ms`."
    )


def _unread(versions: Versions) -> str:
    if versions.unread is None:
        return ""
    return f" A version from {shown(versions.unread.event_time_ms)} is in the feed and not read yet."


def explain_table_table(desk: Desk, spec: TableTableJoin, subject: Subject) -> Explanation:
    """Explain whether the other side has a row (TT1)."""
    table = _input(subject, spec.table_index)
    key = {name: subject.values[name] for name in spec.right_key if name in subject.values}
    if len(key) < len(spec.right_key):
        return Explanation([_unknown_key(desk, table, _not_known(subject, spec.left_key))])
    return _latest(desk, subject, table, key, is_needed=spec.type in ("inner", "right"))


def explain_foreign_key(desk: Desk, spec: ForeignKeyLookup, subject: Subject) -> Explanation:
    """Explain whether the row of the foreign key exists (FK1, FK2)."""
    table, is_needed = _input(subject, spec.table_index), spec.type == "inner"
    texts = spec.foreign_key(operator for stage in subject.plan.stages for operator in stage.operators)
    key_texts = dict(zip(spec.right_key, texts, strict=True))
    key = columns.computed_values(subject.plan, key_texts, subject.values)
    null = _null_key(desk, table, key, is_needed=is_needed)
    if null is not None:
        return Explanation([null])
    if len(key) < len(key_texts):
        return Explanation([_unknown_key(desk, table, [text for name, text in key_texts.items() if name not in key])])
    return _latest(desk, subject, table, key, is_needed=is_needed)


def _latest(desk: Desk, subject: Subject, table: Input, key: Mapping[str, object], *, is_needed: bool) -> Explanation:
    name = table.relation.name
    versions = subject.facts.versions(table, _own(table, key), END_OF_TIME)
    latest = versions.latest
    if latest is not None and not latest.is_delete:
        sentence = f"It meets the row of {name} from {shown(latest.event_time_ms)}.{_unread(versions)}"
        step = desk.step("joined_version", sentence, version=(latest.event_time_ms, None), place=latest.place)
        return Explanation([step], {f"{table.alias}.{column}": value for column, value in latest.values.items()})
    if not versions.is_complete:
        return Explanation([desk.step("unknown", f"Whether {name} has the row is not known: its feed cannot be searched.")])
    what = "there is no row" if is_needed else "its columns are null"
    sentence = f"{name} has no row for this key; {what}.{_unread(versions)}"
    reason = "no_version" if latest is None else "deleted"
    return Explanation([desk.step("no_version", sentence, is_blocking=is_needed, reason=reason)])


def explain_stream_stream(desk: Desk, spec: StreamStreamJoin, subject: Subject) -> Explanation:
    """Explain whether a record of the left stream has met a partner, or until when one may arrive."""
    other, is_shown = _input(subject, spec.stream_index), spec.shown_alone[0]
    key = _known(subject, spec.left_key, spec.right_key)
    null = _null_key(desk, other, key, is_needed=not is_shown)
    if null is not None:
        return Explanation([null])
    now_ms = subject.clock(spec.name)
    until_ms = subject.at_ms + spec.after_ms + spec.grace_ms + 1
    clock = Waiting("stream_time", now_ms, until_ms)
    is_closed = now_ms is not None and now_ms >= until_ms
    fact = subject.late_at(spec.name, ("join_window_closed",))
    if fact is not None or (is_closed and not subject.exists):
        verb = "was late" if fact is not None else "would be late now"
        since = now_ms if fact is None else fact.stream_time_ms
        sentence = (
            f"A record of {shown(subject.at_ms)} {verb}: nothing joins it once stream time reaches {shown(until_ms)}; "
            f"it was {shown(since)}."
        )
        return Explanation([desk.step("late", sentence, is_blocking=True, clock=clock, reason="join_window_closed")])
    if len(key) < len(spec.right_key):
        return Explanation([_unknown_key(desk, other, _not_known(subject, spec.left_key))])
    if any(python_functions.CALL in each.text for each in other.computed):
        texts = ", ".join(columns.text_of(subject.plan, name) for name in spec.right_key)
        detail = (
            f"Whether {other.relation.name} has a partner is not known: it is met by {texts}, which calls a function in Python."
        )
        return Explanation([desk.step("unknown", detail)])
    partners = subject.facts.records(other, _own(other, key), subject.at_ms - spec.before_ms, subject.at_ms + spec.after_ms)
    partner = next((record for record in partners.records if record.is_read), None)
    name = other.relation.name
    if partner is not None:
        sentence = f"It meets the record of {name} from {shown(partner.event_time_ms)}."
        return Explanation([desk.step("joined_version", sentence, version=(partner.event_time_ms, None), place=partner.place)])
    if partners.records:
        unread = partners.records[0]
        sentence = f"Its partner in {name} from {shown(unread.event_time_ms)} is not read yet."
        return Explanation([desk.step("not_read_yet", sentence, is_blocking=True, place=unread.place)])
    if not is_closed and spec.is_eager and is_shown:
        sentence = (
            f"No record of {name} within reach has been read: it is shown without one, as preliminary; one may come until stream time reaches "
            f"{shown(until_ms)}; it is at {shown(now_ms)}."
        )
        return Explanation([desk.step("no_version", sentence, clock=clock, reason="no_partner")])
    if not is_closed:
        sentence = (
            f"No record of {name} within reach has been read; one may come until stream time reaches {shown(until_ms)}; "
            f"it is at {shown(now_ms)}."
        )
        return Explanation([desk.step("buffered_until", sentence, is_blocking=True, clock=clock, reason="partner")])
    if not partners.is_complete:
        return Explanation([desk.step("unknown", f"Whether {name} had a partner is not known: its feed cannot be searched.")])
    what = "its columns are null" if is_shown else "there is no row"
    step = desk.step("no_version", f"{name} had no record within reach; {what}.", is_blocking=not is_shown, reason="no_partner")
    return Explanation([step])


def _known(subject: Subject, left: Sequence[str], right: Sequence[str]) -> dict[str, object]:
    """Return the key of the other side, as far as the left side's is known."""
    return {name: subject.values[left_name] for left_name, name in zip(left, right, strict=True) if left_name in subject.values}


def _not_known(subject: Subject, key: Sequence[str]) -> list[str]:
    return [columns.text_of(subject.plan, name) for name in key if name not in subject.values]


def _unknown_key(desk: Desk, other: Input, texts: Sequence[str]) -> Step:
    what = ", ".join(texts)
    why = "only the query computes an expression that calls a function in Python" if python_functions.CALL in what else (
        "no record shows it, and it does not follow from the key"
    )  # fmt: skip
    return desk.step("unknown", f"The row of {other.relation.name} that it meets is not known: it depends on {what}; {why}.")


def _null_key(desk: Desk, other: Input, key: Mapping[str, object], *, is_needed: bool) -> Step | None:
    """Return the step for a key with a null: it meets nothing and waits for nothing (T6, J7, SS4, FK1)."""
    if None not in key.values():
        return None
    what = "there is no row" if is_needed else "its columns are null"
    sentence = f"The key by which it meets {other.relation.name} is null; {what}."
    return desk.step("no_version", sentence, is_blocking=is_needed, reason="null_key")


def _input(subject: Subject, index: int) -> Input:
    return next(item for item in subject.plan.inputs if item.index == index)


def _own(source: Input, values: Mapping[str, object]) -> dict[str, object]:
    """Return values under the relation's own names."""
    return {name.removeprefix(f"{source.alias}."): value for name, value in values.items()}
