"""Rows, statuses, explanations and validations as HTML tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from slackwater.displays.style import FONT, LAND, LATE, WATER, moment_text, range_text, shown

if TYPE_CHECKING:
    from slackwater.answers.answer_list import ExplainAnswer, StatusAnswer, ValidationAnswer

SHOWN_ROWS = 20
_CELL = "padding:2px 10px 2px 0;text-align:left;border-bottom:1px solid rgba(127,127,127,.3);vertical-align:top"
_COLOURS = {"running": LAND, "failed": LATE, "backoff": LATE}


def table(head: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], total: int | None = None) -> str:
    """Return a table.

    Args:
        head: a line above the table; empty: none.
        columns: their names.
        rows: values in the order of the columns.
        total: number of all rows, if these are only the first ones; None: these are all.
    """
    body = ["<tr>" + "".join(f'<td style="{_CELL}">{shown(value)}</td>' for value in row) + "</tr>" for row in rows]
    names = "".join(f'<th style="{_CELL};font-weight:600">{escape(name)}</th>' for name in columns)
    more = "" if total is None or total <= len(body) else f"<div>… {total - len(body):,} more rows</div>"
    grid = f'<table style="border-collapse:collapse"><thead><tr>{names}</tr></thead><tbody>{"".join(body)}</tbody></table>'
    above = f"<div><b>{escape(head)}</b></div>" if head else ""
    return f'<div style="{FONT}">{above}{grid if columns else ""}{more}</div>'


class RowsShown(Protocol):
    """Rows of a table to show."""

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Each row by its columns."""
        ...

    table: str
    stream_time_ms: int | None
    stale: bool
    has_more: bool

    def __len__(self) -> int: ...


def row_table(rows: RowsShown) -> str:
    """Show rows of a table, and its stream time."""
    columns = list(dict.fromkeys(name for row in rows.rows[:SHOWN_ROWS] for name in row))
    head = f"{rows.table}: {len(rows):,} rows{' and more' if rows.has_more else ''}"
    if rows.stream_time_ms is not None:
        head += f", stream time {moment_text(rows.stream_time_ms)}"
    values = [[row.get(name) for name in columns] for row in rows.rows[:SHOWN_ROWS]]
    return table(head + (", stale: its query does not run" if rows.stale else ""), columns, values, len(rows))


def status_table(status: StatusAnswer, lag: int | None) -> str:
    """Show a query's state, progress, waiting records and counters. ``lag``: unread records; None: unknown."""
    colour = _COLOURS.get(status.state, WATER)
    waiting = ", ".join(f"{count:,} in {operator}" for operator, count in status.buffered.items() if count) or "nothing"
    facts = [
        ("stream time", None if status.stream_time_ms is None else moment_text(status.stream_time_ms)),
        ("behind", "not known" if lag is None else f"{lag:,} records"),
        ("read, emitted", f"{status.read_rows:,}, {status.emitted_rows:,}"),
        ("waiting", waiting),
        ("limited by", status.limited_by),
        *((f"{counter.input}: {counter.reason}", counter.count) for counter in status.counters),
    ]
    if status.reason is not None:
        facts.insert(0, (status.reason.code, status.reason.detail))
    dot = f'<span style="color:{colour}">●</span>'
    head = f'<div style="{FONT}">{dot} <b>{escape(status.name)}</b> {escape(status.state)}{_in_brackets(status.phase)}</div>'
    return head + table("", ("", ""), facts)


def explanation_table(sentence: str, explanation: ExplainAnswer) -> str:
    """Show the answer and the steps to it."""
    steps = [(step.operator or step.kind, step.code, step.sentence) for step in explanation.steps]
    return table(sentence, ("where", "code", ""), steps)


def validation_table(validation: ValidationAnswer) -> str:
    """Show faults, warnings, and the effects of an edit."""
    rows: list[tuple[str, str, str]] = [(fault.pointer, fault.code, fault.detail) for fault in validation.problems]
    rows += [(warned.pointer, f"warning: {warned.code}", f"{warned.detail} {warned.cure}") for warned in validation.warnings]
    head = "valid" if validation.valid else "not valid"
    if validation.edit is not None:
        head += f"; an edit: {validation.edit.kind}"
        rows += [(change.pointer, change.kind, change.reason) for change in validation.edit.changes]
        rows += [
            (effect.pointer, effect.effect, range_text(effect.at_least, effect.at_most)) for effect in validation.edit.effects
        ]
    statement = "" if validation.sql is None else f"<pre>{escape(validation.sql)}</pre>"
    return table(head, ("where", "what", "") if rows else (), rows) + statement


def _in_brackets(text: str | None) -> str:
    return "" if text is None else f" ({escape(text)})"
