"""A test's queries run by the engine in this process: no Spark, no database, an own clock.

Queries read while the records of one source come, each at its own pace (``slicing``). Where the sources have partitions, all of them
read everything before records of another source come: so the file's order across sources is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import polars as pl

from app.testing.case import Append, Case, Restart, Slicing, Wait
from app.testing.comparing.rows import Row, rows_of
from app.testing.expectations import Counts, Expectation, Outcome, Subject
from app.testing.machines.workbench import Workbench
from app.testing.running import Reject
from app.testing.sources import SHARED_FEED
from engine.errors import EngineError, InvariantBroken
from engine.expressions.expressions import compile_scalar
from engine.formats.json.json_records import parse_array
from engine.frames.frames import OFFSET, OP, TS
from engine.log.storage import route
from engine.plan.model import RelationSchema
from engine.records.canonical import LOGGED, POSTED, canonicalise


class EngineMachine:
    """Runs a case; see ``running.Machine``."""

    def __init__(self, case: Case, slicing: Slicing) -> None:
        self._case = case
        self._bench = Workbench(case.sources, has_partitions=True)
        for plan in case.plans:
            self._bench.add_plan(plan)
        self._now_ms = case.now_ms
        self._slicing = slicing
        self._turns = {plan.query: slicing.turns(case.name, plan.query) for plan in case.plans}
        self._members = {name: _member(entry.relation) for name, entry in self._bench.catalog.items()}
        self._ends: dict[tuple[str, int], int] = {}
        self._last_relation: str | None = None
        self._shown: dict[tuple[str, str], int] = {}
        self.rejects: list[Reject] = []

    @property
    def failed(self) -> Mapping[str, str]:
        outcomes = {plan.query: self._bench.outcome(plan.query) for plan in self._case.plans}
        return {query: f"{_code(each.failure)}: {each.failure}" for query, each in outcomes.items() if each.failure is not None}

    def append(self, step: Append) -> None:
        """See ``Machine``; batches are cut here."""
        if self._case.has_partitions and self._last_relation not in (None, step.relation):
            self._run_until_idle()
        self._last_relation = step.relation
        relation = self._bench.catalog[step.relation].relation
        raw, malformed = parse_array(json.dumps(list(step.records)).encode(), relation)
        accepted, refused = canonicalise(raw, relation, self._now_ms, POSTED)
        rejects = pl.concat([malformed, refused]).sort("offset", maintain_order=True)
        for index, reason, detail in rejects.select("offset", "reason", "detail").iter_rows():
            self.rejects.append(Reject(step.pointer_of(index), step.relation, reason, detail))
        for record in accepted.iter_slices(1):
            self._log(step, record)
            self._read_on()

    def wait(self, step: Wait) -> None:
        """See ``Machine``: everything that is due on the way happens at its own time."""
        self._run_until_idle()
        while (wakes_at_ms := self._bench.wakes_at_ms) is not None and wakes_at_ms <= step.until_ms:
            self._now_ms = max(self._now_ms, wakes_at_ms)
            self._run_until_idle()
            if self._bench.wakes_at_ms == wakes_at_ms:
                raise InvariantBroken(f"what was due at {wakes_at_ms} is still due after it")
        self._now_ms = step.until_ms

    def restart(self, step: Restart) -> None:  # noqa: ARG002 - the same wherever it stands
        self._run_until_idle()
        self._bench.restart()

    def outcome(self, wanted: Expectation) -> Outcome:
        self._run_until_idle()
        subject = wanted.subject
        return Outcome(
            changes=() if wanted.changes is None else self._new(subject, "changes", self._changes(subject)),
            rows=() if wanted.rows is None else self.rows(subject),
            late=() if wanted.late is None else self._new(subject, "late", self._late(subject)),
            rejects=() if wanted.rejects is None else self._new(subject, "rejects", self._rejected(subject)),
            counters={} if wanted.counters is None else self._counters(subject),
            failure=None if subject.query is None else _code(self._bench.outcome(subject.query).failure),
        )

    def rows(self, subject: Subject) -> list[Row]:
        """Return a table as its changes leave it: the last one of each key, of a versioned table the last by time (V2)."""
        latest: dict[str, Row] = {}
        for row in self._changes(subject):
            key = repr([row.values[name] for name in subject.key])
            known = latest.get(key)
            is_older = subject.history_retention_ms is not None and known is not None and (row.ts or 0) < (known.ts or 0)
            if not is_older:
                latest[key] = row
        return [row for row in latest.values() if not row.is_delete]

    def _run_until_idle(self) -> None:
        self._bench.run_until_idle(self._now_ms)

    def _read_on(self) -> None:
        """Let queries read after a record came, as the slicing has it."""
        if self._slicing.mode == "record":
            self._run_until_idle()
        if self._slicing.mode != "random":
            return
        for query, turns in self._turns.items():
            turn = next(turns)
            if turn is not None:
                if turn.is_restarted:
                    self._bench.restart_query(query)
                self._bench.read(query, self._now_ms, turn.max_rows)

    def _log(self, step: Append, record: pl.DataFrame) -> None:
        """Put a record at the end of its partition, where every relation finds it that reads the feed by a name of its own."""
        entry = self._bench.catalog[step.relation]
        ((partition, _),) = route(record, entry.relation.key, self._bench.partitions(step.relation))
        offset = self._ends.get((entry.feed.name, partition), 0)
        self._ends[entry.feed.name, partition] = offset + 1
        record = record.with_columns(pl.Series(OFFSET, [offset], pl.Int64))
        for name in self._readers(step.relation):
            relation = self._bench.catalog[name].relation
            known = [each for each in (TS, OFFSET, OP, *relation.columns.names) if each in record.columns]
            read, refused = canonicalise(record.select(known), relation, self._now_ms, LOGGED, self._members[name])
            for reason, detail in refused.select("reason", "detail").iter_rows():
                self.rejects.append(Reject(step.pointer, name, reason, detail))
            if read.height:
                self._bench.append({name: read}, partition)

    def _readers(self, relation: str) -> list[str]:
        """Return the relations that find this one's records: all of its feed, but of the feed that only orders a test, it alone."""
        feed = self._bench.catalog[relation].feed
        if not self._case.has_partitions and feed.log_feed == SHARED_FEED:
            return [relation]
        return [name for name in self._case.sources if self._bench.catalog[name].feed == feed]

    def _new(self, subject: Subject, part: str, rows: list[Row]) -> list[Row]:
        first = self._shown.get((subject.name, part), 0)
        self._shown[subject.name, part] = len(rows)
        return rows[first:]

    def _changes(self, subject: Subject) -> list[Row]:
        frames = self._bench.outcome(subject.query or "").changes
        return [row for frame in frames for row in rows_of(frame, subject.columns)]

    def _late(self, subject: Subject) -> list[Row]:
        late = self._bench.outcome(subject.query or "").late
        return [late_row(row) for row in late.iter_rows(named=True)]

    def _rejected(self, subject: Subject) -> list[Row]:
        return [Row({"reason": each.reason, "detail": each.detail}) for each in self.rejects if each.relation == subject.name]

    def _counters(self, subject: Subject) -> Counts:
        return self._bench.outcome(subject.query or "").counters


def late_row(late: Mapping[str, object]) -> Row:
    """Return a late record as tests compare it: its own columns beside what is said of it."""
    record, ts = late["record"], late["event_time_ms"]
    own = json.loads(record) if isinstance(record, str) else record
    said = {name: late[name] for name in ("input", "reason", "stream_time_ms")}
    return Row({**said, **(own if isinstance(own, dict) else {})}, ts=ts if isinstance(ts, int) else None)


def _member(relation: RelationSchema) -> pl.Expr | None:
    return None if relation.where is None else compile_scalar(relation.where, relation.columns).expr


def _code(failure: Exception | None) -> str | None:
    return failure.code if isinstance(failure, EngineError) else None if failure is None else type(failure).__name__
