"""``python -P -m tests.stored.tour DSN DIRECTORY make:NAME look:NAME``: what users and drivers do with a version's own code, on any schema.

It is stored with the code of its version (``tests.stored.code``), so it imports only what is stored there as well.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
from pydantic import SecretStr

from app.db.database import migrate
from app.main.main import create_app
from app.settings.settings import Settings
from tests.api.change_writer import ChangeWriter
from tests.integration.driver_tools import driver, fast_settings

AT: Final = "2025-06-01T12:00:00Z"
AT_MS: Final = 1_748_779_200_000
STREAM: Final = {
    "key": ["item"],
    "columns": {"item": "string", "n": "int", "at": "timestamp"},
    "event_time": "at",
    "connector": {"partitions": 1},
}
PRICES: Final = {
    "key": ["item"], "columns": {"item": "string", "price": "double", "at": "timestamp"}, "event_time": "at",
    "versioned": {"history_retention": "2d"}, "materialize": True,
}  # fmt: skip
RUNNING_S: Final = 30
STUB_TABLE: Final = """
    CREATE TABLE IF NOT EXISTS stub_commit (id bigint GENERATED ALWAYS AS IDENTITY, query_id uuid, epoch bigint, generation int, number int,
        at timestamptz DEFAULT clock_timestamp())
"""


def totals(name: str) -> dict[str, Any]:
    return {
        "name": f"{name}_totals", "from": {"stream": f"{name}_orders"}, "tasks": 2, "group_by": ["item"],
        "aggregate": {"n": "sum(n)"}, "into": {"table": f"{name}_totals"},
    }  # fmt: skip


class Tour:
    """One version's service, and its driver for a while."""

    def __init__(self, dsn: str, directory: Path, http: httpx.AsyncClient) -> None:
        self._dsn = dsn
        self._directory = directory
        self._http = http

    async def make(self, name: str) -> None:
        """Register, append, start, edit, pause, and write results as a driver does."""
        await self._ask("PUT", f"/v1/streams/{name}_orders", 201, json=STREAM)
        await self._ask("PUT", f"/v1/tables/{name}_prices", 201, json=PRICES)
        order = {"item": "tea", "n": 2, "at": AT}
        for _ in range(2):
            await self._ask(
                "POST", f"/v1/streams/{name}_orders/records", 200, json=[order, {"n": "x"}], headers={"idempotency-key": name}
            )
        await self._ask("POST", f"/v1/tables/{name}_prices/records", 200, json={"item": "tea", "price": 3.5, "at": AT})
        await self._ask("POST", "/v1/queries", 201, json=totals(name))
        await self._drive(name)
        await self._ask("PUT", f"/v1/queries/{name}_totals", 200, json={**totals(name), "tasks": 3})
        with ChangeWriter(self._dsn, f"{name}_totals", tasks=3) as writer:
            writer.commit([("put", {"item": "tea", "n": 2}, AT_MS), ("put", {"item": "rum", "n": 1}, AT_MS)])
            writer.commit([("delete", {"item": "rum"}, AT_MS)])
        await self._ask(
            "POST", "/v1/queries", 201, json={**totals(name), "name": f"{name}_more", "into": {"table": f"{name}_more"}}
        )
        await self._ask("DELETE", f"/v1/queries/{name}_more", 204)

    async def look(self, name: str) -> None:
        """Read what a version has made, by everything that is kept in tables of ours."""
        page = await self._ask("GET", f"/v1/streams/{name}_orders/records", 200)
        assert [record["n"] for record in page["records"]] == [2], page
        rejects = await self._ask("GET", f"/v1/streams/{name}_orders/rejects", 200)
        assert len(rejects["items"]) == 1, rejects
        rows = await self._ask("GET", f"/v1/tables/{name}_totals/rows", 200)
        assert [(row["item"], row["n"]) for row in rows["rows"]] == [("tea", 2)], rows
        changes = await self._ask("GET", f"/v1/tables/{name}_totals/changes?from=earliest", 200)
        assert len(changes["changes"]) == 3, changes
        status = await self._ask("GET", f"/v1/queries/{name}_totals/status", 200)
        assert (status["state"], status["epoch"] > 0) == ("paused", True), status
        for path in ("", "/events", "/runs", "/lateness", "/late-records", "/explain?key=tea&at=" + AT):
            await self._ask("GET", f"/v1/queries/{name}_totals{path}", 200)
        await self._ask("GET", f"/v1/streams/{name}_orders/lineage", 200)
        for path in ("/readyz", "/v1/streams", "/v1/tables", "/v1/queries", "/v1/api-keys"):
            await self._ask("GET", path, 200)
        await self._ask("POST", f"/v1/streams/{name}_orders/records", 200, json=[])
        await self._ask("POST", "/v1/validations", 200, json={**totals(name), "tasks": 4})

    async def _drive(self, name: str) -> None:
        """Run this version's driver, with an engine that needs no Spark, until the query was running and is paused again."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(STUB_TABLE)
        with driver(self._dsn, fast_settings(self._directory)) as running:
            await self._ask("GET", f"/v1/queries/{name}_totals/status?wait_for=running&timeout={RUNNING_S}", 200, state="running")
            await self._ask("PUT", f"/v1/queries/{name}_totals/desired-state", 202, json={"state": "paused"})
            await self._ask("GET", f"/v1/queries/{name}_totals/status?wait_for=paused&timeout={RUNNING_S}", 200, state="paused")
            assert await asyncio.to_thread(running.terminate) == 0, running.log.read_text()

    async def _ask(self, method: str, path: str, expected: int, state: str | None = None, **how: Any) -> Any:
        response = await self._http.request(method, path, **how)
        assert response.status_code == expected, f"{method} {path}: {response.status_code} {response.text}"
        answer = response.json() if response.content else None
        assert state is None or answer["state"] == state, f"{method} {path}: {answer}"
        return answer


@asynccontextmanager
async def tour(dsn: str, directory: Path) -> AsyncIterator[Tour]:
    """Start the service of the version whose code this is, as ``slackwater serve`` does."""
    migrate(dsn)
    app = create_app(Settings(database_url=SecretStr(dsn), data_dir=directory))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http,
    ):
        yield Tour(dsn, directory, http)


async def main(dsn: str, directory: Path, acts: list[str]) -> None:
    async with tour(dsn, directory) as guide:
        for act, name in (text.split(":") for text in acts):
            await (guide.make(name) if act == "make" else guide.look(name))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
