"""Compares what a service shows over HTTP with what an oracle says: missing, duplicate, wrong, out of order, wrongly late. All must be none."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from slackwater import Client, Json

from tests.faults.audited import FINALS, LATE, QUERIES, Group, Oracle, kind_of

FAULTS = ("missing", "duplicate", "wrong value", "wrong version", "wrong class", "out of order", "wrong count")
UNCUT = "exact_path"
"""Counts how records were computed, not what came of them: it depends on how the input was cut into batches."""

EXAMPLES = 5
PAGE = 1_000


@dataclass(slots=True)
class Audit:
    """What was compared and what is wrong with it.

    Attributes:
        compared: query → how many rows, records, changes and late records.
        faults: query and kind of fault → what is wrong, one text each.
    """

    compared: Counter[str] = field(default_factory=Counter)
    faults: defaultdict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_clean(self) -> bool:
        return not self.faults

    def note(self, query: str, kind: str, what: Iterable[object]) -> None:
        assert kind in FAULTS
        if found := [str(each) for each in what]:
            self.faults[query, kind] += found

    def __str__(self) -> str:
        lines = [f"{'query':10}{'compared':>10}" + "".join(f"{kind:>15}" for kind in FAULTS)]
        for query in self.compared:
            numbers = "".join(f"{len(self.faults.get((query, kind), ())):>15}" for kind in FAULTS)
            lines.append(f"{query:10}{self.compared[query]:>10}{numbers}")
        lines += [f"{query}, {kind}: {'; '.join(what[:EXAMPLES])}" for (query, kind), what in self.faults.items()]
        return "\n".join(lines)


def audit(client: Client, oracle: Oracle, queries: Iterable[str] = QUERIES) -> Audit:
    """Read every result, its change feed, its late records and its counters."""
    made = Audit()
    for query in queries:
        match kind_of(query):
            case "joined":
                _joined(made, client, oracle, query)
            case "copies":
                _copies(made, client, oracle, query)
            case "totals":
                _totals(made, client, oracle, query)
            case _:
                _finals(made, client, oracle, query)
        _late(made, client, oracle, query)
    return made


def _joined(made: Audit, client: Client, oracle: Oracle, query: str) -> None:
    expected = oracle.joined()
    records = list(_records(made, client, query))
    _compare(made, query, {record["id"]: record["version"] for _, record in records}, expected, "wrong version")
    _unique(made, query, (record["id"] for _, record in records))
    # Released by event time, then arrival (J3), per task; a task has all orders of its items.
    _rising(made, query, records, lambda partition, record: ((partition, record["item"]), (record["at"],)), is_strict=False)
    _rising(made, query, records, lambda _, record: ((record["key"], record["item"]), (record["at"], record["id"])))


def _copies(made: Audit, client: Client, oracle: Oracle, query: str) -> None:
    records = list(_records(made, client, query))
    _compare(
        made, query, {record["id"]: record["at"] for _, record in records}, {n: oracle.orders[n].at for n in oracle.copies()}
    )
    _unique(made, query, (record["id"] for _, record in records))
    _rising(made, query, records, lambda _, record: (record["key"], (record["id"],)))


def _totals(made: Audit, client: Client, oracle: Oracle, query: str) -> None:
    expected = oracle.totals()
    rows = list(client.table(query).each_row())
    changes = list(_changes(made, client, query))
    _compare(made, query, {row["key"]: (row["n"], row["total"]) for row in rows}, expected)
    _unique(made, query, (row["key"] for row in rows))
    _rising(made, query, changes, lambda _, change: (change["row"]["key"], (change["row"]["n"],)))
    folded = {change["row"]["key"]: (change["row"]["n"], change["row"]["total"]) for _, change in changes}
    made.note(query, "wrong value", [f"change feed: {item}" for item in folded.items() ^ expected.items()])


def _finals(made: Audit, client: Client, oracle: Oracle, query: str) -> None:
    expected = oracle.finals(kind_of(query))
    rows = list(client.table(query).each_row())
    changes = list(_changes(made, client, query))
    _compare(made, query, {_group(query, row): (row["n"], row["total"]) for row in rows}, expected)
    _unique(made, query, (_group(query, row) for row in rows))
    # Each window exactly once (W6), in the change feed too, and by the ends of windows per key.
    _unique(made, query, (_group(query, change["row"]) for _, change in changes))
    told = {_group(query, change["row"]): (change["row"]["n"], change["row"]["total"]) for _, change in changes}
    made.note(query, "wrong value", [f"change feed: {item}" for item in told.items() ^ expected.items()])
    _rising(
        made, query, changes, lambda _, change: (change["row"][FINALS[kind_of(query)]], (_ms(change["row"]["window_start"]),))
    )


def _late(made: Audit, client: Client, oracle: Oracle, query: str) -> None:
    """Everything late is kept and counted once, with its reason; nothing else is."""
    kind = kind_of(query)
    orders = [oracle.orders[number] for number in oracle.late()] if kind in LATE else []
    found = list(_pages(client, f"/v1/queries/{query}/late-records", {"order": "asc"}))
    made.compared[query] += len(found)
    expected = Counter((*LATE[kind], order.key, order.at) for order in orders)
    kept = Counter((each["input"], each["reason"], each["record"]["orders.key"], each["event_time_ms"]) for each in found)
    for fault, wrong in (("wrong class", kept - expected), ("missing", expected - kept)):
        made.note(query, fault, wrong.elements())
    wanted = {LATE[kind]: len(orders)} if orders else {}
    if LATE.get(kind, ("", ""))[1] == "late_diverted" and oracle.nameless():
        wanted[LATE[kind][0], "null_key"] = oracle.nameless()
    counters = {
        (each["input"], each["reason"]): each["count"]
        for each in client.query(query).status()["counters"]
        if each["reason"] != UNCUT
    }
    made.note(query, "wrong count", [f"{counters} instead of {wanted}"] if counters != wanted else [])
    read = client.query(query).status()["read_rows"]
    inputs = len(oracle.orders) + (oracle.changes if "joins" in QUERIES[kind] else 0)
    made.note(query, "wrong count", [f"{read} records read instead of {inputs}"] if read != inputs else [])


def _compare(
    made: Audit, query: str, found: Mapping[Any, object], expected: Mapping[Any, object], kind: str = "wrong value"
) -> None:
    made.note(query, "missing", expected.keys() - found.keys())
    made.note(query, "wrong class", found.keys() - expected.keys())
    differing = (key for key in expected.keys() & found.keys() if expected[key] != found[key])
    made.note(query, kind, (f"{key}: {found[key]} instead of {expected[key]}" for key in differing))


def _unique(made: Audit, query: str, keys: Iterable[Hashable]) -> None:
    made.note(query, "duplicate", (key for key, number in Counter(keys).items() if number > 1))


def _rising(
    made: Audit,
    query: str,
    found: Iterable[tuple[int, Json]],
    place: Callable[[int, Json], tuple[Hashable, tuple[int, ...]]],
    *,
    is_strict: bool = True,
) -> None:
    """Note where what belongs to one key does not rise."""
    last: dict[Hashable, tuple[int, ...]] = {}
    wrong = []
    for partition, each in found:
        key, now = place(partition, each)
        before = last.get(key)
        if before is not None and (now < before or (is_strict and now == before)):
            wrong.append(f"{key}: {now} behind {before}")
        last[key] = now
    made.note(query, "out of order", wrong)


def _records(made: Audit, client: Client, stream: str) -> Iterator[tuple[int, Json]]:
    """Yield the records of all partitions; their offsets are without a gap."""
    for part in client.call("GET", f"/v1/streams/{stream}")["partitions"]:
        offset = 0
        for record in client.stream(stream).records(partition=part["partition"]):
            made.note(stream, "missing", [f"offset {offset} of {part}"] if record["$offset"] != offset else [])
            offset = record["$offset"] + 1
            made.compared[stream] += 1
            yield part["partition"], record


def _changes(made: Audit, client: Client, table: str) -> Iterator[tuple[int, Json]]:
    for number, change in enumerate(_change_pages(client, table)):
        made.note(table, "missing", [f"change {number}"] if change["sequence"] != number else [])
        made.compared[table] += 1
        yield 0, change


def _change_pages(client: Client, table: str) -> Iterator[Json]:
    params: dict[str, str | int] = {"from": "earliest", "limit": PAGE}
    while True:
        page = client.call("GET", f"/v1/tables/{table}/changes", params=params)
        yield from page["changes"]
        if page["caught_up"]:
            return
        params = {"cursor": page["next"], "limit": PAGE}


def _pages(client: Client, path: str, params: Mapping[str, str | int]) -> Iterator[Json]:
    params = {"limit": PAGE, **params}
    while True:
        page = client.call("GET", path, params=params)
        yield from page["items"]
        if page["next"] is None:
            return
        params = {**params, "cursor": page["next"]}


def _group(query: str, row: Json) -> Group:
    return row[FINALS[kind_of(query)]], _ms(row["window_start"])


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
