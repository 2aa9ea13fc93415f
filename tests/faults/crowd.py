"""Forty queries in one driver: light ones that are audited, some heavy, and one whose single record takes more memory than a worker may have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from slackwater import Client, Json

from tests.faults.audited import LOG, QUERIES, Script
from tests.faults.service import Body

COPIES = 6
LIGHT = [f"{kind}_{number}" for kind in QUERIES for number in range(COPIES)]
HEAVY = ["bulky_0", "bulky_1", "bulky_2"]
POISONOUS = "poisonous"
BULK_RECORDS = 20_000
BULK_KEYS = 1_000
BULK_EVERY = 8
"""A large body between so many small ones: more than a shared slot reads of a query at once."""

PARTNERS, LETTERS = 600, 460
"""The one record that the poisonous query reads finds so many partners, and makes twelve texts of LETTERS * 1,000 bytes of each: 3.3 GB."""

WORKER_MEMORY = "1g"

_COLUMNS: Json = {"k": "string", "n": "bigint", "at": "bigint"}
_TEXTS: Json = {"k": "string", "n": "bigint", "t": "string", "at": "bigint"}
_TEXTS_MADE = {
    f"t{letter}": f"replace(replace(replace(r.t, 'a', 'aaaaaaaaaa'), 'a', 'aaaaaaaaaa'), 'a', 'aaaaaaaaa{letter}')"
    for letter in "bcdefghijklm"
}


def register_others(client: Client) -> None:
    """Register what the heavy and the poisonous queries read, and start them."""
    client.stream("bulk").register({"key": ["k"], "columns": _COLUMNS, "event_time": "at", "connector": LOG})
    for name in HEAVY:
        client.queries.put({
                "name": name, "from": {"stream": "bulk"}, "group_by": ["k"], "tasks": 2,
                "aggregate": {"n": "count(*)", "total": "sum(n)"}, "into": {"table": name},
            })  # fmt: skip
    for side in ("asked", "answers"):
        client.stream(side).register({"key": ["k"], "columns": _TEXTS, "event_time": "at", "connector": LOG})
    near: Json = {"before": "1h", "after": "1h", "grace": "1h"}
    join: Json = {"stream": "answers", "as": "r", "type": "inner", "on": "l.k = r.k", "within": near}
    client.queries.put({
            "name": POISONOUS, "from": {"stream": "asked", "as": "l"}, "joins": [join],
            "select": {"k": "l.k", "n": "r.n", **_TEXTS_MADE}, "into": {"stream": POISONOUS},
        })  # fmt: skip


def poison() -> list[Body]:
    """Return what the poisonous query takes, and then the record that it cannot."""
    partners = "\n".join(f'{{"k":"a","n":{n},"t":"{"a" * LETTERS}","at":{n}}}' for n in range(PARTNERS))
    return [("streams", "answers", partners.encode()), ("streams", "asked", b'{"k":"a","n":0,"t":"","at":1000}')]


@dataclass(slots=True)
class Bulk:
    """The records of the heavy queries.

    Attributes:
        made: how many.
        totals: key → number and sum of its records.
    """

    made: int = 0
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)

    def body(self) -> Body:
        lines = []
        for number in range(self.made, self.made + BULK_RECORDS):
            key = f"k{number % BULK_KEYS}"
            n, total = self.totals.get(key, (0, 0))
            self.totals[key] = n + 1, total + number
            lines.append(f'{{"k":"{key}","n":{number},"at":{number}}}')
        self.made += BULK_RECORDS
        return "streams", "bulk", "\n".join(lines).encode()


def bodies(script: Script, bulk: Bulk) -> Iterator[Body]:
    """Yield the requests of the audited workload, with a large one among them again and again."""
    small = script.bodies()
    while some := list(islice(small, BULK_EVERY)):
        yield from some
        yield bulk.body()
