"""Conformance scenarios through the real service: HTTP in, Spark, HTTP out.

Each scenario gets relations and queries of its own. Its inputs share one feed with one partition, so that the order is the
scenario's, whatever the batches; the steps are appended in random cuts, and each cut is read before the next one is sent.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from slackwater import Client, Json

from engine.definition.relations import TableDefinition
from tests.conformance.corpus import CORPORA, Scenario, read
from tests.conformance.queries import INTERNAL_AGGREGATES, Case, case_of

MOST_CUTS = 3
READ_SECONDS = 240
POLL_SECONDS = 0.3


def sample(chance: random.Random, of_each_kind: int) -> list[Scenario]:
    """Choose scenarios of every kind and variant that a user could type: no null stream values, no aggregate of the corpora's own."""
    by_variant: dict[str, list[Scenario]] = {}
    for scenario in read([CORPORA]):
        if _is_typable(scenario):
            op = scenario.op
            variant = f"{scenario.kind} {op.get('join')} {op.get('emit')} {op.get('agg')}"
            by_variant.setdefault(variant, []).append(scenario)
    return [each for _, found in sorted(by_variant.items()) for each in chance.sample(found, min(of_each_kind, len(found)))]


def _is_typable(scenario: Scenario) -> bool:
    op = scenario.op
    if scenario.is_rejected or op["kind"] in ("versioned_store", "merge_order"):
        return False
    if {op.get("agg"), op.get("then")} & set(INTERNAL_AGGREGATES) or op.get("when_full") == "shut_down":
        return False
    return not any(
        step.get("op") == "restart" or step["key"] is None or (step["in"] == "stream" and step["value"] is None)
        for step in scenario.steps
    )


@dataclass(frozen=True)
class Running:
    """A scenario at work in a service.

    Attributes:
        prefix: of every name that it has there.
        cuts: where its steps are cut into appends.
    """

    scenario: Scenario
    case: Case
    prefix: str
    cuts: list[int]

    @property
    def queries(self) -> list[str]:
        return [f"{self.prefix}_{query['name']}" for query in self.case.queries]


def start(client: Client, scenario: Scenario, prefix: str, chance: random.Random) -> Running:
    """Register the scenario's relations and queries."""
    case = case_of(scenario.op)
    for name, definition in case.sources.items():
        kind = "tables" if isinstance(definition, TableDefinition) else "streams"
        body = definition.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        body["columns"] = {**body["columns"], "side": "string", "at": "bigint"}
        body["connector"] = {"type": "log", "feed": prefix, "partitions": 1, "where": f"side = '{name}'"}
        client.relation(kind, f"{prefix}_{name}").register({**body, "event_time": "at"})
    for query in case.queries:
        client.queries.put(_renamed(query, prefix))
    places = range(1, len(scenario.steps))
    cuts = sorted(chance.sample(places, min(chance.randint(0, MOST_CUTS), len(places))))
    return Running(scenario, case, prefix, [*cuts, len(scenario.steps)])


def _renamed(query: Json, prefix: str) -> Json:
    def relation(part: Json) -> Json:
        kind = "stream" if "stream" in part else "table"
        return {**part, kind: f"{prefix}_{part[kind]}", "as": part[kind]}

    kind = "stream" if "stream" in query["into"] else "table"
    return {
        **query,
        "name": f"{prefix}_{query['name']}",
        "from": relation(query["from"]),
        "joins": [relation(join) for join in query.get("joins", ())],
        "into": {**query["into"], kind: f"{prefix}_{query['into'][kind]}"},
    }


def append(client: Client, running: Running, start: int, end: int) -> None:
    """Send the steps of one cut, one request for each run of records of one relation."""
    steps = [(running.case.sides[step["in"]], step) for step in running.scenario.steps[start:end]]
    for relation, found in groupby(steps, key=lambda item: item[0]):
        kind = "tables" if isinstance(running.case.sources[relation], TableDefinition) else "streams"
        records = [_record(running.case, relation, step) for _, step in found]
        client.relation(kind, f"{running.prefix}_{relation}").append("\n".join(map(json.dumps, records)).encode())


def _record(case: Case, relation: str, step: Json) -> Json:
    record = {**case.record(step["in"], step["key"], step["value"]), "side": relation, "at": step["ts"]}
    value = record.get("value", record.get("payload"))
    return {**record, "$op": "delete"} if step["value"] is None or value is None else record


def wait_until_read(client: Client, running: list[Running]) -> None:
    """Wait until every query has read everything that it reads."""
    deadline = time.monotonic() + READ_SECONDS
    for each in running:
        for query in each.queries:
            while not _is_read(client.query(query).status()):
                assert time.monotonic() < deadline, f"{query} did not read everything: {client.query(query).status()}"
                time.sleep(POLL_SECONDS)


def _is_read(status: Json) -> bool:
    assert status["state"] != "failed", status
    lags = [partition["lag"] for feed in status["progress"] for partition in feed["partitions"]]
    return bool(lags) and not any(lags)


def found(client: Client, running: Running) -> Any:
    """Read the result: a stream's values in order, a table's by key."""
    into = running.case.queries[-1]["into"]
    if "stream" in into:
        records = client.stream(f"{running.prefix}_{into['stream']}").records()
        return [(record["key"], record["value"]) for record in records]
    rows = list(client.table(f"{running.prefix}_{into['table']}").each_row())
    return {_key(row): row["value"] for row in rows}


def expected(running: Running) -> Any:
    """What the corpus says the result is."""
    outputs = [output for step in running.scenario.expected for output in step]
    if "stream" in running.case.queries[-1]["into"]:
        return [(output["key"], output["value"]) for output in outputs]
    if "versioned" in running.case.queries[-1]["into"]:
        # Such a table shows the latest by event time, a stable sort brings it last.
        outputs.sort(key=lambda output: output["ts"])
    folded: dict[Any, Any] = {}
    for output in outputs:
        key = tuple(output["key"].values()) if isinstance(output["key"], dict) else output["key"]
        folded.pop(key, None)
        if output["value"] is not None:
            folded[key] = output["value"]
    return folded


def _key(row: Json) -> Any:
    if "window_start" not in row:
        return row["key"]
    return (row["key"], _ms(row["window_start"]), _ms(row["window_end"]))


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
