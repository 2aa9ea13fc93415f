"""Scenarios of SQL on a running service: scripts as POST /v1/statements takes them, and what must be there after each.

A scenario is a document of a YAML file in ``sql_scenarios/``: ``name``, perhaps ``sample: true``, and ``steps``. A step is a script, or an
object with one:

- ``sql``: the script. It begins when every query of the scenario is where it is meant to be and has read all there is.
- ``deletes``: table → deletes of its rows, appended before the script; a script may be missing then.
- ``parameters``, ``properties``: of the request.
- ``rows``: what the last statement answers, in order; ``columns`` names those of its columns that are compared.
- ``says``: what the message of the last statement begins with.
- ``pushed``: the rows of a SELECT with EMIT until its LIMIT, ``{deleted: row}`` for a delete. The script in ``meanwhile`` runs once the
  SELECT has begun.
- ``fails``: the code with which the script is refused.
- ``counted``: query → input → reason → how often.
- ``within_s``: the answer is asked for again until it fits, at most so long; only for results that wait for the wall clock.

Streams and tables are named by one scenario only, so that scenarios run beside each other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from slackwater import Client, Json, ServiceError, Status, Unreachable
from slackwater.errors import error_of

from app.testing.documents import find_files, read_documents

DIRECTORY: Final = Path(__file__).with_name("sql_scenarios")
PATH: Final = "/v1/statements"
PROPERTIES: Final = {"ksql.persistence.default.format.value": "JSON"}
"""Of every request, so that the scripts need not repeat it."""

PATIENCE_S: Final = 180.0
"""Until queries have read everything: the first one waits for Spark to start, on a machine where everything starts at once."""

POLL_S: Final = 0.3
"""Between looks: with a dozen scenarios beside each other, more of them cost the queries a third of the processors."""

REQUEST_S: Final = 60.0


class Unlike(Exception):
    """Something is not as the scenario says. The message tells the place, what was expected and what was found."""


@dataclass(frozen=True, slots=True)
class Step:
    """One script with what is expected of it; see the module."""

    place: str
    sql: str = ""
    deletes: dict[str, list[Json]] = field(default_factory=dict)
    parameters: list[Any] | Json = field(default_factory=list)
    properties: Json = field(default_factory=dict)
    rows: list[Any] | None = None
    columns: list[str] | None = None
    says: str | None = None
    pushed: list[Any] | None = None
    meanwhile: str | None = None
    fails: str | None = None
    counted: dict[str, dict[str, dict[str, int]]] | None = None
    within_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A document of a file.

    Attributes:
        is_sample: it is run with the ordinary tests.
    """

    name: str
    is_sample: bool
    steps: tuple[Step, ...]


def scenarios() -> list[Scenario]:
    """Read all scenarios, by file and place."""
    return [scenario for path in find_files([DIRECTORY]) for scenario in _read(path)]


def _read(path: Path) -> Iterator[Scenario]:
    for document in read_documents(path):
        steps = []
        for index, given in enumerate(document.value["steps"]):
            body = {"sql": given} if isinstance(given, str) else given
            steps.append(Step(**body, place=f"{path.name}:{document.line_of(f'/steps/{index}')}"))
        yield Scenario(document.value["name"], bool(document.value.get("sample")), tuple(steps))


class Running:
    """A scenario at work in a service.

    Args:
        client: of the service; several scenarios may share one.
    """

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url
        self._queries: list[str] = []
        self._relations: list[str] = []
        self._is_settled = True

    def run(self, scenario: Scenario) -> None:
        """Take every step.

        Raises:
            Unlike: something is not as expected.
            ServiceError, Unreachable: a script is refused that should not be, or the service does not answer.
        """
        for step in scenario.steps:
            try:
                self._settle()
                self._take(step)
            except (ServiceError, Unlike) as error:
                raise Unlike(f"{step.place}: {error}") from error

    def clean(self) -> None:
        """Delete what was made, readers first."""
        paths = [f"queries/{query}" for query in reversed(self._queries)]
        paths += [f"{kind}/{name}" for name in reversed(self._relations) for kind in ("streams", "tables")]
        for path in paths:
            with suppress(ServiceError, Unreachable):
                self._client.call("DELETE", f"/v1/{path}")

    def _take(self, step: Step) -> None:
        for table, rows in step.deletes.items():
            self._is_settled = False
            self._client.call("POST", f"/v1/tables/{table}/records", [{"$op": "delete", **row} for row in rows])
        if not step.sql:
            return
        if step.fails is not None:
            self._refused(step)
        elif step.pushed is not None:
            _compare(self._pushed(step), step.pushed)
        else:
            _eventually(step.within_s, lambda: self._answered(step))
        if step.counted is not None:
            self._settle()
            _compare(self._counted(step.counted), step.counted)

    def _answered(self, step: Step) -> None:
        result = self._send(step.sql, step)[-1]
        if step.says is not None:
            _compare(result["message"][: len(step.says)], step.says)
        if step.rows is None:
            return
        names = [column["name"] for column in result["columns"]]
        taken = [names.index(name) for name in step.columns or names]
        _compare([[row[at] for at in taken] for row in result["rows"]], step.rows)

    def _send(self, sql: str, step: Step) -> list[Json]:
        results: list[Json] = self._client.call("POST", PATH, self._body(sql, step))["results"]
        for each in results:
            _note(self._queries, each.get("query"))
            _note(self._relations, each.get("relation"))
            self._is_settled &= each["kind"] == "rows"
        return results

    def _body(self, sql: str, step: Step) -> Json:
        return {"sql": sql, "parameters": step.parameters, "properties": PROPERTIES | step.properties}

    def _refused(self, step: Step) -> None:
        try:
            self._send(step.sql, step)
        except ServiceError as error:
            _compare(error.problem.get("code"), step.fails)
            return
        raise Unlike(f"{step.fails} expected, and the script was carried out")

    def _pushed(self, step: Step) -> list[Any]:
        """Return the rows of a push query until its LIMIT; what is done meanwhile begins when it has begun."""
        found: list[Any] = []
        headers = {"accept": "application/x-ndjson"}
        body = self._body(step.sql, step)
        deadline = time.monotonic() + PATIENCE_S
        with httpx.stream("POST", self._url + PATH, json=body, headers=headers, timeout=REQUEST_S) as response:
            if response.is_error:
                response.read()
                raise error_of(response)
            for line in response.iter_lines():
                if time.monotonic() > deadline:
                    raise Unlike(f"the SELECT did not end; it gave {found}")
                if line:
                    self._pushed_line(json.loads(line), step, found)
        return found

    def _pushed_line(self, line: Json, step: Step, found: list[Any]) -> None:
        match line:
            case {"header": _} if step.meanwhile is not None:
                self._send(step.meanwhile, step)
            case {"row": {"op": "delete", "values": values}}:
                found.append({"deleted": values})
            case {"row": {"values": values}}:
                found.append(values)
            case {"error": error}:
                raise Unlike(f"the SELECT ended with {error}")

    def _counted(self, wanted: dict[str, dict[str, dict[str, int]]]) -> Json:
        found: Json = {}
        for query, inputs in wanted.items():
            counters = {(each["input"], each["reason"]): each["count"] for each in self._client.query(query).status()["counters"]}
            found[query] = {
                name: {reason: counters.get((name, reason), 0) for reason in reasons} for name, reasons in inputs.items()
            }
        return found

    def _settle(self) -> None:
        """Wait until every query is in the state that it is meant to be in, and those that run have read all there is."""
        if self._is_settled:
            return
        deadline = time.monotonic() + PATIENCE_S
        for query in list(self._queries):
            try:
                while not _is_settled(status := self._client.query(query).status()):
                    if time.monotonic() > deadline:
                        raise Unlike(f"{query} did not read everything: {json.dumps(status.raw)}")
                    time.sleep(POLL_S)
            except ServiceError as error:
                if error.status != httpx.codes.NOT_FOUND:
                    raise
                self._queries.remove(query)
        self._is_settled = True


def _is_settled(status: Status) -> bool:
    if status["state"] == "failed":
        raise Unlike(f"the query failed: {json.dumps(status['error'])}")
    if status["state"] != status["desired_state"] or status["observed_generation"] != status["generation"]:
        return False
    lags = [partition["lag"] for feed in status["progress"] for partition in feed["partitions"]]
    return status["state"] != "running" or (bool(lags) and not any(lags))


def _note(names: list[str], name: str | None) -> None:
    if name is not None and name not in names:
        names.append(name)


def _compare(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise Unlike(f"\n  expected {json.dumps(wanted, ensure_ascii=False)}\n  found    {json.dumps(found, ensure_ascii=False)}")


def _eventually(seconds: float, look: Callable[[], None]) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            look()
        except Unlike:
            if time.monotonic() >= deadline:
                raise
        else:
            return
        time.sleep(POLL_S)
