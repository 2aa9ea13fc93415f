"""What a test expects of results and sources: read against their columns, compared with what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from app.testing.comparing.difference import Line, align, unified
from app.testing.comparing.rows import ExpectedRows, Row, equal, expected_rows, milliseconds
from engine.definition.problems import Problems, pointer_of
from engine.expressions.types.types import Schema
from engine.plan.model import Plan

REJECT_COLUMNS = ("reason", "detail")


@dataclass(frozen=True, slots=True)
class Subject:
    """What an expectation can be about: a result, or a source.

    Attributes:
        query: what makes the result; None for a source.
        key: of a result; of a stream it may be empty.
        history_retention_ms: of a versioned table, else None.
        is_ordered: the test decides the order across keys: nothing that it comes from has several partitions.
        has_one_task: one task makes it, so that late records have an order, too.
    """

    name: str
    kind: Literal["stream", "table"]
    query: str | None = None
    columns: Schema = field(default_factory=Schema)
    key: tuple[str, ...] = ()
    history_retention_ms: int | None = None
    is_ordered: bool = True
    has_one_task: bool = True

    @staticmethod
    def of(plan: Plan, *, is_ordered: bool) -> Subject:
        output = plan.output
        retention_ms = output.history_retention_ms
        return Subject(
            output.name, output.kind, plan.query, output.columns, output.key, retention_ms, is_ordered, plan.tasks == 1
        )


Counts = Mapping[tuple[str, str], int]
"""(input or operator, reason) → how many."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is expected of one subject at one place of a test. Parts that are None are not looked at.

    Attributes:
        pointer: where it stands in the file.
        changes: what came since the last time its changes were looked at, in order; see ``arrangement.py``.
        rows: a table as it is now.
        late: late records since the last time; of a row, its time is the event time.
        rejects: records of a source that were refused since the last time.
        counters: totals; those that are not named are not looked at.
        failure: code of the error that stopped the query.
    """

    pointer: str
    subject: Subject
    changes: ExpectedRows | None = None
    rows: ExpectedRows | None = None
    late: ExpectedRows | None = None
    rejects: ExpectedRows | None = None
    counters: Counts | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What there was; see ``Expectation``. Only the parts that were asked for are filled in."""

    changes: Sequence[Row] = ()
    rows: Sequence[Row] = ()
    late: Sequence[Row] = ()
    rejects: Sequence[Row] = ()
    counters: Counts = field(default_factory=dict)
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """One expectation that was not met.

    Attributes:
        pointer: of the expectation; empty for what nobody expected.
    """

    pointer: str
    title: str
    lines: tuple[Line, ...] = ()


def read_expectation(pointer: str, subject: Subject, given: Any, problems: Problems) -> Expectation:
    """Read what is expected of one subject: a list is its changes, an object names the parts."""
    if isinstance(given, list):
        given, places = {"changes": given}, {"changes": pointer}
    else:
        places = {name: pointer + pointer_of((name,)) for name in given} if isinstance(given, dict) else {}
    allowed = ("rejects",) if subject.query is None else _PARTS if subject.kind == "table" else _STREAM_PARTS
    if not isinstance(given, dict) or not given:
        problems.add(pointer, "wrong_type", f"write what is expected: {', '.join(allowed)}, or a list of changes")
        return Expectation(pointer, subject)
    if subject.query is None and "changes" in given:
        problems.add(pointer, "unknown_field", f"{subject.name} is a source, of which only `rejects` can be expected")
        return Expectation(pointer, subject)
    read: dict[str, Any] = {}
    for name, value in given.items():
        if name in allowed:
            read[name] = _READERS[name](places[name], subject, value, problems)
        else:
            problems.add(places[name], "unknown_field", f"of {subject.name} can be expected: {', '.join(allowed)}")
    return Expectation(pointer, subject, **read)


def compare(wanted: Expectation, found: Outcome) -> list[Failure]:
    name = wanted.subject.name
    failures = [
        _compared(wanted, part, f"{part} of {name}", getattr(wanted, part), getattr(found, part))
        for part in ("changes", "late", "rejects")
        if getattr(wanted, part) is not None
    ]
    if wanted.rows is not None:
        place = _by_key(wanted.subject.key)
        ordered = ExpectedRows(wanted.rows.columns, tuple(sorted(wanted.rows.rows, key=place)), wanted.rows.has_ts)
        failures.append(_compared(wanted, "rows", f"rows of {name}", ordered, sorted(found.rows, key=place)))
    if wanted.counters is not None:
        counts = {each: found.counters.get(each, 0) for each in wanted.counters}
        failures.append(_compared_counts(wanted.pointer, name, wanted.counters, counts))
    if wanted.failure is not None and wanted.failure != found.failure:
        lines = (Line("-", f"failure: {wanted.failure}"), Line("+", f"failure: {found.failure or 'none'}"))
        failures.append(Failure(f"{wanted.pointer}/failure", f"failure of {wanted.subject.query}", lines))
    return [failure for failure in failures if failure is not None]


def _compared(wanted: Expectation, part: str, title: str, expected: ExpectedRows, found: Sequence[Row]) -> Failure | None:
    expected, found = _arranged(wanted.subject, part, expected, found)
    pairs = align(expected.rows, found, expected.matches)
    if all(pair.wanted is not None and pair.found is not None for pair in pairs):
        return None
    columns = _shown(expected, found, wanted.subject, part)
    has_ts = expected.has_ts or not expected.rows
    texts = [[row.text(columns, has_ts=has_ts) for row in rows] for rows in (expected.rows, found)]
    return Failure(wanted.pointer, title, tuple(unified(pairs, *texts)))


def _arranged(subject: Subject, part: str, expected: ExpectedRows, found: Sequence[Row]) -> tuple[ExpectedRows, Sequence[Row]]:
    """Bring what has no order that a test could know into one."""
    if part == "changes" and not subject.is_ordered:
        return by_key(expected, found, subject.key)
    if part == "late" and not (subject.is_ordered and subject.has_one_task):
        return expected, as_expected(expected, found)
    return expected, found


def _shown(expected: ExpectedRows, found: Sequence[Row], subject: Subject, part: str) -> tuple[str, ...]:
    """Return the columns to write: those compared; where nothing was expected, all there are."""
    if expected.columns:
        return expected.columns
    if part in ("changes", "rows"):
        return subject.columns.names
    return tuple(dict.fromkeys(name for row in found for name in row.values))


def _by_key(key: tuple[str, ...]) -> Callable[[Row], list[str]]:
    def place(row: Row) -> list[str]:
        return [_sortable(row.values.get(name)) for name in (key or sorted(row.values))]

    return place


def _sortable(value: Any) -> str:
    """Order numbers by size and everything else by its text."""
    return f"{value:+040.9f}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _compared_counts(pointer: str, name: str, wanted: Counts, found: Counts) -> Failure | None:
    if wanted == found:
        return None
    lines: list[Line] = []
    for (operator, reason), count in wanted.items():
        text = f"{operator}: {{{reason}: "
        other = found[operator, reason]
        lines += (
            [Line(" ", f"{text}{count}}}")] if count == other else [Line("-", f"{text}{count}}}"), Line("+", f"{text}{other}}}")]
        )
    return Failure(f"{pointer}/counters", f"counters of {name}", tuple(lines))


def _rows(pointer: str, subject: Subject, given: Any, problems: Problems) -> ExpectedRows:
    rows, faults = expected_rows(given, subject.columns)
    for place, detail in faults:
        problems.add(pointer + place, "invalid_value", detail)
    return rows


def _late(pointer: str, _: Subject, given: Any, problems: Problems) -> ExpectedRows:
    """Read late records: reason, input, ``$ts`` (the event time), ``stream_time_ms``, and columns of the record by their full names."""
    return _free_rows(pointer, given, problems)


def _rejects(pointer: str, _: Subject, given: Any, problems: Problems) -> ExpectedRows:
    rows = _free_rows(pointer, given, problems)
    for name in rows.columns:
        if name not in REJECT_COLUMNS:
            problems.add(pointer, "unknown_field", f"a reject has {' and '.join(REJECT_COLUMNS)}, not {name}")
    return rows


def _free_rows(pointer: str, given: Any, problems: Problems) -> ExpectedRows:
    """Read rows whose columns are not known beforehand; each says as much as it wants to."""
    if not isinstance(given, list) or not all(isinstance(row, dict) for row in given):
        problems.add(pointer, "wrong_type", "write a list of objects, [] for none")
        return ExpectedRows((), ())
    times = [None if row.get("$ts") is None else milliseconds(row["$ts"]) for row in given]
    for index, (row, ts) in enumerate(zip(given, times, strict=True)):
        if row.get("$ts") is not None and ts is None:
            problems.add(f"{pointer}/{index}/$ts", "invalid_value", "$ts is a time, or milliseconds since 1970")
    columns = tuple(dict.fromkeys(name for row in given for name in row if name != "$ts"))
    rows = tuple(
        Row({name: value for name, value in row.items() if name != "$ts"}, ts=ts) for row, ts in zip(given, times, strict=True)
    )
    return ExpectedRows(columns, rows, any(ts is not None for ts in times))


def _counters(pointer: str, _: Subject, given: Any, problems: Problems) -> Counts:
    counts: dict[tuple[str, str], int] = {}
    for operator, reasons in given.items() if isinstance(given, dict) else ():
        for reason, count in reasons.items() if isinstance(reasons, dict) else ():
            if type(count) is int and count >= 0:
                counts[operator, reason] = count
    if not isinstance(given, dict) or len(counts) != sum(len(each) if isinstance(each, dict) else 1 for each in given.values()):
        problems.add(pointer, "wrong_type", "write counters as {operator: {reason: count}}, such as {p: {late_joined: 1}}")
    return counts


def _failure(pointer: str, _: Subject, given: Any, problems: Problems) -> str:
    if not isinstance(given, str):
        problems.add(pointer, "wrong_type", "write the code of the error, such as suppress_buffer_full")
    return str(given)


_READERS: dict[str, Callable[[str, Subject, Any, Problems], Any]] = {
    "changes": _rows,
    "rows": _rows,
    "late": _late,
    "rejects": _rejects,
    "counters": _counters,
    "failure": _failure,
}
_PARTS = ("changes", "rows", "late", "counters", "failure")
_STREAM_PARTS = ("changes", "late", "counters", "failure")


def by_key(expected: ExpectedRows, found: Sequence[Row], key: Sequence[str]) -> tuple[ExpectedRows, list[Row]]:
    """Bring expected and found rows into one order of keys, the order within each key kept.

    Keys are distinguished by the columns that the expected rows name; if they name none, order does not count.
    """
    named = [name for name in key if name in expected.columns]
    if not named:
        return expected, as_expected(expected, found)
    known: list[list[Any]] = []

    def place(row: Row) -> int:
        values = [row.values.get(name) for name in named]
        found_at = next((index for index, each in enumerate(known) if equal(each, values)), None)
        if found_at is None:
            known.append(values)
        return len(known) - 1 if found_at is None else found_at

    rows = tuple(sorted(expected.rows, key=place))
    return replace(expected, rows=rows), sorted(found, key=place)


def as_expected(expected: ExpectedRows, found: Sequence[Row]) -> list[Row]:
    """Bring found rows into the order of the expected ones that they match, those that match none behind.

    Rows that say more choose first, so that one that says less does not take what another one needs.
    """
    left = dict(enumerate(found))
    chosen: dict[int, Row] = {}
    for place in sorted(range(len(expected.rows)), key=lambda place: -_said(expected.rows[place])):
        match = next((index for index, row in left.items() if expected.matches(expected.rows[place], row)), None)
        if match is not None:
            chosen[place] = left.pop(match)
    return [*(chosen[place] for place in sorted(chosen)), *left.values()]


def _said(row: Row) -> int:
    return len(row.values) + (row.ts is not None)
