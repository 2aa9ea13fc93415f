"""A test's queries run by a service, with Spark, through its HTTP interface alone.

Sources have feeds of their own here. So that the file's order across sources is kept, a run of records of one source is appended only
when every query has read the one before, as the engine's machine has it. A twin run by the engine says what a table must look like where
the file lists its changes.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Literal, Self

from slackwater import Client, RecordsRejected, ServiceError, Status, Unreachable

from app.testing.case import Append, Case, Restart, Slicing, Wait
from app.testing.comparing.rows import ExpectedRows, Row, rows_of_json
from app.testing.documents import FileInvalid, FileProblem
from app.testing.expectations import Expectation, Failure, Outcome, Subject
from app.testing.machines.engine_machine import EngineMachine, late_row
from app.testing.running import Reject, run_case
from app.testing.sources import Json, in_one_partition, logged
from engine.definition.relations import TableDefinition
from engine.plan.model import needs_ticks

RUNNING_S: Final = 120
"""A first query waits for Spark itself to start, which takes half a minute on a busy machine."""

READ_S: Final = 120
FAILED_S: Final = 30
POLL_S: Final = 0.1
PAGE: Final = 10_000


class ServiceTests:
    """Runs tests on one service. Use as a context manager."""

    def __init__(self, url: str) -> None:
        self._client = Client(url)
        self._prefix = f"test_{secrets.token_hex(3)}"
        self._tests = 0

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._client.__exit__(kind, error, trace)

    def run(self, case: Case) -> list[Failure]:
        """Run a test by the engine and, when it passed, on the service; what it makes there is deleted again.

        Raises:
            FileInvalid: it asks for what a service cannot do, or the service refuses a definition.
            ServiceError, TimeoutError, Unreachable: the service does not answer, or a query does not get on.
        """
        _refuse_what_cannot_be(case)
        by_engine = run_case(case, EngineMachine(case, case.slicing))
        if by_engine:
            return by_engine
        self._tests += 1
        machine = ServiceMachine(self._client, case, f"{self._prefix}_{self._tests}_")
        try:
            machine.start()
            return run_case(machine.case, machine)
        finally:
            machine.clean()


def _refuse_what_cannot_be(case: Case) -> None:
    """Refuse a clock of the test's own where anything looks at the clock (T5); elsewhere it does not matter."""
    if not any(needs_ticks(plan) for plan in case.plans) and all(each.event_time for each in case.sources.values()):
        return
    problems = [
        FileProblem(
            step.pointer,
            "a service has the real wall clock, and a query here depends on it; run this test without --spark and --url",
            case.document.line_of(step.pointer),
        )
        for step in case.steps
        if isinstance(step, Wait)
    ]
    if problems:
        raise FileInvalid(case.document.path, problems)


class ServiceMachine:
    """Runs a case; see ``running.Machine``.

    Args:
        prefix: of every name that the test has there.
    """

    def __init__(self, client: Client, case: Case, prefix: str) -> None:
        self._client = client
        self.case = case
        self._prefix = prefix
        self._twin = EngineMachine(case, Slicing())
        self._made: list[str] = []
        self._shown: dict[tuple[str, str], int] = {}
        self._last_relation: str | None = None
        self.rejects: list[Reject] = []
        self.failed: Mapping[str, str] = {}
        self._codes: dict[str, str] = {}

    def start(self) -> None:
        """Register the sources, post the queries and wait until they run.

        Raises:
            FileInvalid: the service refuses a definition.
        """
        for name, body in self.case.given.items():
            kind = self._kind(name)
            self._make(f"/{kind}/{name}", "PUT", f"/v1/{kind}/{self._prefix}{name}", self._source(body))
        for index, body in enumerate(self.case.queries):
            query = self._query(body)
            self._make(f"/queries/{index}", "PUT", f"/v1/queries/{query['name']}", query)
        for plan in self.case.plans:
            self._wait_running(plan.query, above=0)

    def clean(self) -> None:
        """Delete what was made, readers first, as far as the service still does."""
        for path in reversed(self._made):
            with suppress(ServiceError, Unreachable):
                self._client.call("DELETE", path)

    def append(self, step: Append) -> None:
        """See ``Machine``: one request for a run of records, once everything before has been read."""
        self._twin.append(step)
        if self._last_relation not in (None, step.relation):
            self._wait_read()
        self._last_relation = step.relation
        relation = self._client.relation(self._kind(step.relation), self._prefix + step.relation)
        try:
            appended = relation.append(step.records, batch_rows=len(step.records))
        except RecordsRejected as error:
            appended = error.appended
        except ServiceError as error:
            raise self._invalid(step.pointer, error) from error
        self.rejects += [Reject(step.pointer_of(each.index), step.relation, each.code, each.detail) for each in appended.rejected]

    def wait(self, step: Wait) -> None:
        """See ``Machine``. Nothing looks at the clock here: such tests are refused."""
        self._twin.wait(step)

    def restart(self, step: Restart) -> None:
        """See ``Machine``: every query is launched again with the state it has."""
        self._twin.restart(step)
        self._wait_read()
        for plan in self.case.plans:
            epoch = self._client.query(self._prefix + plan.query).status()["epoch"]
            self._client.query(self._prefix + plan.query).restart()
            self._wait_running(plan.query, above=epoch)

    def outcome(self, wanted: Expectation) -> Outcome:
        self._wait_read()
        subject, query = wanted.subject, wanted.subject.query
        if wanted.failure is not None and query is not None and query not in self._codes:
            self._wait_failed(query)
        return Outcome(
            changes=() if wanted.changes is None else self._changes(subject, wanted.changes),
            rows=() if wanted.rows is None else self._rows(subject),
            late=() if wanted.late is None else self._new(subject, "late", self._late(query or "")),
            rejects=() if wanted.rejects is None else self._new(subject, "rejects", self._rejected(subject)),
            counters={} if wanted.counters is None else self._counters(query or ""),
            failure=self._codes.get(query or ""),
        )

    def _changes(self, subject: Subject, wanted: ExpectedRows) -> list[Row]:
        """Return a stream's new records. Of a table, the changes as expected where its rows are those that the changes leave."""
        if subject.kind == "stream":
            records = list(self._client.stream(self._prefix + subject.name).records())
            return self._new(subject, "changes", rows_of_json(records, subject.columns))
        rows = self._rows(subject)
        left = ExpectedRows(subject.columns.names, tuple(Row(row.values) for row in self._twin.rows(subject)))
        unmatched = list(rows)
        for row in left.rows:
            match = next((each for each in unmatched if left.matches(row, each)), None)
            if match is None:
                return rows
            unmatched.remove(match)
        return rows if unmatched else list(wanted.rows)

    def _rows(self, subject: Subject) -> list[Row]:
        return rows_of_json(list(self._client.table(self._prefix + subject.name).each_row()), subject.columns)

    def _late(self, query: str) -> list[Row]:
        page = self._client.call("GET", f"/v1/queries/{self._prefix}{query}/late-records", params={"limit": PAGE})
        return [late_row(each) for each in reversed(page["items"])]

    def _rejected(self, subject: Subject) -> list[Row]:
        return [Row({"reason": each.reason, "detail": each.detail}) for each in self.rejects if each.relation == subject.name]

    def _counters(self, query: str) -> dict[tuple[str, str], int]:
        counters = self._client.query(self._prefix + query).status()["counters"]
        return {(each["input"], each["reason"]): each["count"] for each in counters}

    def _new(self, subject: Subject, part: str, rows: list[Row]) -> list[Row]:
        first = self._shown.get((subject.name, part), 0)
        self._shown[subject.name, part] = len(rows)
        return rows[first:]

    def _wait_read(self) -> None:
        """Wait until every query has read everything, what the ones before it wrote included, or has failed."""
        deadline = time.monotonic() + READ_S
        for plan in self.case.plans:
            while True:
                status = self._client.query(self._prefix + plan.query).status()
                lags = [partition["lag"] for feed in status["progress"] for partition in feed["partitions"]]
                if status["state"] == "failed":
                    self._note_failure(plan.query, status)
                elif any(lags) or not lags:
                    self._check_deadline(deadline, f"{plan.query} did not read everything within {READ_S} s", status)
                    time.sleep(POLL_S)
                    continue
                break

    def _wait_running(self, query: str, above: int) -> None:
        """Wait until a launch later than ``above`` runs."""
        deadline = time.monotonic() + RUNNING_S
        while True:
            status = self._client.query(self._prefix + query).status(wait_for="running")
            if status["state"] == "failed":
                self._note_failure(query, status)
                return
            if status["state"] == "running" and status["epoch"] > above:
                return
            self._check_deadline(deadline, f"{query} did not run within {RUNNING_S} s", status)
            time.sleep(POLL_S)

    def _wait_failed(self, query: str) -> None:
        """Wait for a failure that is expected: what came before it is committed first."""
        status = self._client.query(self._prefix + query).status(wait_for="failed", timeout=FAILED_S)
        if status["state"] == "failed":
            self._note_failure(query, status)

    def _note_failure(self, query: str, status: Status) -> None:
        error = status["error"] or {}
        self._codes[query] = str(error.get("code"))
        self.failed = {**self.failed, query: f"{error.get('code')}: {error.get('detail')}"}

    def _check_deadline(self, deadline: float, what: str, status: Status) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}; its status: {json.dumps(status.raw)}")

    def _make(self, pointer: str, method: str, path: str, body: Json) -> None:
        try:
            self._client.call(method, path, body)
        except ServiceError as error:
            raise self._invalid(pointer, error) from error
        self._made.append(path)

    def _invalid(self, pointer: str, error: ServiceError) -> FileInvalid:
        faults = [(fault.pointer, fault.detail) for fault in error.errors] or [("", error.detail or str(error))]
        document = self.case.document
        problems = [
            FileProblem(
                pointer + place,
                f"the service refuses it: {detail}",
                document.line_of(pointer + place),
            )
            for place, detail in faults
        ]
        return FileInvalid(document.path, problems)

    def _kind(self, relation: str) -> Literal["streams", "tables"]:
        return "tables" if isinstance(self.case.sources[relation], TableDefinition) else "streams"

    def _source(self, body: Json) -> Json:
        """Return a source's definition: the log in place of files, a feed with a name of the test's own."""
        body = logged(body) if self.case.has_partitions else in_one_partition(logged(body), None)
        body = {name: value for name, value in body.items() if name != "read_only"}  # the test is who fills it
        connector = body.get("connector", {})
        if connector.get("feed") is not None:
            return {**body, "connector": {**connector, "feed": self._prefix + connector["feed"]}}
        return body

    def _query(self, body: Json) -> Json:
        """Return a query's definition with the names of this test; aliases keep its expressions as they are."""
        return {
            **body,
            "name": self._prefix + body["name"],
            "from": self._renamed(body["from"], is_aliased=True),
            "joins": [self._renamed(join, is_aliased=True) for join in body.get("joins", ())],
            "into": self._renamed(body["into"], is_aliased=False),
        }

    def _renamed(self, part: Json, *, is_aliased: bool) -> Json:
        kind = "stream" if part.get("stream") is not None else "table"
        renamed: dict[str, Any] = {**part, kind: self._prefix + part[kind]}
        return {**renamed, "as": part.get("as", part[kind])} if is_aliased else renamed
