"""The state of all queries, from the service's metrics: one request for a thousand queries. Knows no screen."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from slackwater.blocking.client import Client
from slackwater.cli.options.naming import is_internal
from slackwater.errors import Forbidden, NotFound
from slackwater.rows.statuses import Status

MOST_STATUSES: Final = 200
"""Limit of queries to ask for one by one, for a key with a scope, which may not read metrics."""

_SAMPLE: Final = re.compile(r"^(slackwater_query_\w+)\{(.*)\} (\S+)$")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Row:
    """One query.

    Attributes:
        read_rows: records read since it began with its state.
        emitted_rows: rows written in the same time.
        waiting: records that wait in its operators.
        counted: late, dropped, expired and rejected records.
        batch_s: duration of its last batch.
        commit_age_s: time since its last commit.
        stream_time_ms: of its result.
    """

    name: str
    state: str
    read_rows: float = 0.0
    emitted_rows: float = 0.0
    lag: float | None = None
    waiting: float = 0.0
    counted: float = 0.0
    batch_s: float | None = None
    commit_age_s: float | None = None
    stream_time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All queries at one moment.

    Attributes:
        at_s: by a monotonic clock.
        left_out: number of queries not asked for.
    """

    at_s: float
    rows: Mapping[str, Row] = field(default_factory=dict)
    left_out: int = 0


def read(client: Client) -> Snapshot:
    """Return a snapshot of all queries."""
    try:
        text = client.system.metrics()
    except Forbidden:
        return _by_status(client)
    return Snapshot(time.monotonic(), {row.name: row for row in rows_of(text)})


def rows_of(text: str) -> Iterator[Row]:
    """Yield the queries in Prometheus' text form."""
    samples: dict[str, dict[str, list[tuple[Mapping[str, str], float]]]] = defaultdict(lambda: defaultdict(list))
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is not None:
            labels = {name: _unescaped(value) for name, value in _LABEL.findall(match[2])}
            samples[labels.get("query", "")][match[1].removeprefix("slackwater_query_")].append((labels, float(match[3])))
    for name, of in sorted(samples.items()):
        states = [labels["state"] for labels, value in of.get("state", ()) if value == 1.0]
        if states and not is_internal(name):
            yield _row(name, states[0], of)


def _row(name: str, state: str, of: Mapping[str, list[tuple[Mapping[str, str], float]]]) -> Row:
    def total(metric: str) -> float | None:
        return sum(value for _, value in of[metric]) if metric in of else None

    clock = total("stream_time_seconds")
    phases = {labels.get("phase"): value for labels, value in of.get("batch_seconds", ())}
    own = [phases[phase] for phase in ("process", "sink") if phase in phases]
    return Row(
        name,
        state,
        total("read_records_total") or 0.0,
        total("emitted_records_total") or 0.0,
        total("lag_records"),
        total("buffered_rows") or 0.0,
        total("counted_records_total") or 0.0,
        sum(own) if own else None,
        total("commit_age_seconds"),
        None if clock is None else int(clock * 1000),
    )


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def _by_status(client: Client) -> Snapshot:
    names = [each.name for each in client.queries.list() if not each.internal]
    rows = {}
    for name in islice(names, MOST_STATUSES):
        try:
            rows[name] = _row_of(client.query(name).status())
        except NotFound:
            continue  # deleted meanwhile
    return Snapshot(time.monotonic(), rows, max(0, len(names) - MOST_STATUSES))


def _row_of(status: Status) -> Row:
    counted = sum(each.count for each in status.counters)
    lag = None if status.lag is None else float(status.lag)
    waiting = float(sum(status.buffered.values()))
    return Row(
        status.name, status.state, float(status.read_rows), float(status.emitted_rows), lag, waiting, float(counted),
        stream_time_ms=status.stream_time_ms,
    )  # fmt: skip
