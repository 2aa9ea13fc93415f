"""Late records: ``late`` shows them, and what other graces would have done; ``replay`` lets them go through the query again."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Final

import typer

from slackwater.answers.answer_list import SettingAdvice
from slackwater.blocking.queries import LateRecords
from slackwater.cli.commands.looking import key_of
from slackwater.cli.options.invocation import Command, Invocation, invocation_of
from slackwater.cli.options.naming import complete_query
from slackwater.cli.options.output import event_time, length, shown
from slackwater.cli.options.pairs import confirmed, exclude
from slackwater.parameters import json_text

SHOWN: Final = 20
"""So many late records are shown where nobody says how many."""

COUNTED: Final = 1_000
"""The most late records that are counted before the question whether to replay them."""

Query = Annotated[str, typer.Argument(help="The query.", show_default=False, autocompletion=complete_query)]
Reason = Annotated[str | None, typer.Option(help="Why they are here, such as late_diverted.")]
Input = Annotated[str | None, typer.Option("--input", help="The operator that found them late.")]
Begin = Annotated[str | None, typer.Option("--from", help="First event time: 2025-01-01T12:00:00Z.")]
End = Annotated[str | None, typer.Option("--to", help="Up to, not including, this event time.")]
Key = Annotated[list[str] | None, typer.Option("--key-column", help="column=value of the record; can be repeated.")]


def add_to(cli: typer.Typer) -> None:
    """Add the commands of this module."""
    cli.command(cls=Command, rich_help_panel="Looking")(late)
    cli.command(cls=Command, rich_help_panel="Steering queries")(replay)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Which late records."""

    query: str
    reason: str | None
    input: str | None
    begin: str | None
    end: str | None
    key: list[str] | None

    def refuse_beside(self, option: str, why: str, **more: Any) -> None:
        """Refuse what was chosen beside an option that is about other records.

        Raises:
            UsageError: something was chosen.
        """
        chosen = {
            "--reason": self.reason,
            "--input": self.input,
            "--from": self.begin,
            "--to": self.end,
            "--key-column": self.key,
        }
        exclude(option, {**chosen, **more}, why)

    def records(self, here: Invocation, order: Any = None) -> LateRecords:
        """Return them."""
        key = key_of(self.key) if self.key else None
        return here.client.query(self.query).late_records(
            reason=self.reason, input=self.input, from_=self.begin, to=self.end, key=key, order=order
        )


def late(
    context: typer.Context,
    query: Query,
    reason: Reason = None,
    at: Input = None,
    begin: Begin = None,
    end: End = None,
    key: Key = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, help=f"How many at most, the newest first; without it {SHOWN}."),
    ] = None,
    graces: Annotated[
        bool, typer.Option("--graces", help="Instead: what other graces would have done to the records so far.")
    ] = False,
) -> None:
    """Show what came too late for a query, or with --graces how a grace would have to be."""
    here = invocation_of(context)
    chosen = _Chosen(query, reason, at, begin, end, key)
    if graces:
        chosen.refuse_beside("--graces", "it is about all records so far, late or not", **{"--limit": limit})
        _show_graces(here, query)
        return
    found = list(islice(chosen.records(here, "desc"), limit or SHOWN))
    if here.output.as_json:
        here.output.json(found)
        return
    rows = [
        (each.id, each.reason, each.input, event_time(each.event_time_ms), _behind(each.event_time_ms, each.stream_time_ms),
         "yes" if each.replayed_at else "", json_text(each.record))
        for each in found
    ]  # fmt: skip
    head = ("ID", "REASON", "AT", "EVENT TIME", "BEHIND", "REPLAYED", "RECORD")
    here.output.table(head, rows, empty="none are kept: nothing was late, or it does not fit what was asked for")
    counters = here.client.query(query).status().counters
    if counters:
        here.output.note("counted: " + ", ".join(f"{each.count:,} {each.reason} at {each.input}" for each in counters))


def _behind(event_time_ms: int, stream_time_ms: int | None) -> str:
    return "-" if stream_time_ms is None else length(max(0, stream_time_ms - event_time_ms))


def _show_graces(here: Invocation, query: str) -> None:
    found = here.client.query(query).lateness()
    if here.output.as_json:
        here.output.json(found)
        return
    for setting in found.settings:
        where = f"{setting.relation}{setting.pointer}" if setting.relation else setting.pointer
        here.output.say(f"{where} ({setting.rule}): {setting.count:,} records measured", "bold")
        here.output.table(("", "VALUE", "LATE", "SHARE", "WAITS LONGER"), _advice(setting))
        here.output.say("")
    if not found.settings:
        here.output.note("the query has no grace and no history retention to choose")


def _advice(setting: SettingAdvice) -> list[tuple[Any, ...]]:
    """Return the values that change something: of those that find equally many late the smallest, and the one in force."""
    rows: list[tuple[Any, ...]] = []
    before: int | None = None
    for each in setting.advice:
        if each.late_count != before or each.current:
            bound = "" if each.exact else "≤ "
            late = (f"{bound}{each.late_count:,}", f"{bound}{each.late_share:.2%}")
            rows.append(("→" if each.current else "", length(each.value_ms), *late, length(each.added_wait_ms)))
        before = each.late_count
    return rows


def _question(here: Invocation, chosen: _Chosen, ids: list[int] | None, *, again: bool) -> str:
    """Return what somebody is asked, with how many records are meant; ends the command where there are none."""
    fitting = (each for each in chosen.records(here) if again or each.replayed_at is None)
    count = len(ids) if ids else sum(1 for _ in islice(fitting, COUNTED + 1))
    if not count:
        here.output.note("no late record fits what was asked for, or each was replayed before (--again)")
        raise typer.Exit
    many = f"more than {COUNTED:,}" if count > COUNTED else f"{count:,}"
    return f"Replay {many} late record{'' if count == 1 else 's'} of {chosen.query}?"


def replay(
    context: typer.Context,
    query: Query,
    reason: Reason = None,
    at: Input = None,
    begin: Begin = None,
    end: End = None,
    key: Key = None,
    ids: Annotated[list[int] | None, typer.Option("--id", help="One of them by its id; can be repeated.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also those that were replayed before.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Send late records through the query again: each is joined now, as of its own event time."""
    here = invocation_of(context)
    chosen = _Chosen(query, reason, at, begin, end, key)
    if ids:
        chosen.refuse_beside("--id", "it names the records one by one")
    if not confirmed(f"Replay late records of {query}?", yes=yes, counted=lambda: _question(here, chosen, ids, again=again)):
        raise typer.Exit(1)
    answers = chosen.records(here).replay(ids=ids, again=again)
    if here.output.as_json:
        here.output.json(answers)
        return
    accepted, before = sum(each.accepted for each in answers), sum(each.already_replayed for each in answers)
    here.output.say(f"{accepted:,} go through the query again" + (f"; {before:,} were replayed before" if before else ""))
    refused = [(each.id, each.code, each.detail) for answer in answers for each in answer.refused]
    if refused:
        here.output.table(("ID", "REFUSED", "WHY"), refused)
    if any(each.more for each in answers):
        here.output.note(f"there are more; repeat the command. {shown(len(answers))} requests were made")
