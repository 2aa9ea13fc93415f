"""`python -m examples.flights [--full] [--once]`: start the service, feed it, show what came out, keep serving."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from slackwater import Client, Json, NotReached, QueryFailed, Status

from app.settings.effective_settings import load_settings
from app.settings.settings import Settings
from examples.flights.compare import compare_join, compare_windows
from examples.flights.data import Chunk, Kind, load, sent_before
from examples.flights.queries import JOIN, RELATIONS, WINDOWS
from examples.flights.service import ServiceDidNotStart, running_service
from examples.flights.show import invitations, joined_table, verdict, windows_table

SETTLE_SECONDS = 300.0  # until both queries have read everything; seconds in practice
PLAIN_WIDTH = 130  # columns, where the output is no terminal
KSQL_PORT = 8088  # what clients of ksqlDB expect
MONTHS = {"january": 1, "full": 12}


def main() -> int:
    """Run the demo.

    Returns:
        0, or 1 where the service did not start or an answer differs from the batch computation.
    """
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights", description="Real flights, real weather, late records, right answers."
    )
    parser.add_argument("--full", action="store_true", help="feed all of 2013 (336,776 flights) instead of January")
    parser.add_argument("--once", action="store_true", help="stop after the comparison instead of serving until Ctrl-C")
    options = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    settings = load_settings()
    base_url = f"http://{settings.host}:{settings.port}"
    log = Path(settings.data_dir) / "serve.log"
    console.print(f"[bold]Slackwater demo[/]: New York's flights of 2013 and the weather they left in. The service's log: {log}")
    try:
        with console.status("Starting the service (Postgres, then Spark) ..."):
            ksql_port = _ksql_port(settings)
            context = running_service(base_url, {} if ksql_port is None else {"SLACKWATER_KSQL_PORT": str(ksql_port)}, log)
            process = context.__enter__()
    except ServiceDidNotStart as error:
        console.print(str(error), style="red", highlight=False, markup=False)
        return 1
    try:
        with Client(base_url) as client:
            is_agreed = _tell(console, client, MONTHS["full" if options.full else "january"], base_url)
        if not options.once:
            _serve_until_interrupted(console, base_url, ksql_port, is_ours=process is not None)
    except KeyboardInterrupt:
        console.print("\nStopping ...")
        return 0
    finally:
        context.__exit__(None, None, None)
    return 0 if is_agreed else 1


def _tell(console: Console, client: Client, months: int, base_url: str) -> bool:
    """Register, feed, wait, compare, print."""
    data = load(months)
    for (kind, name), definition in RELATIONS.items():
        client.relation(kind, name).register(definition)
    for query in (JOIN, WINDOWS):
        client.queries.put(query)
    console.print(f"Registered departures and weather, posted the queries {JOIN['name']} and {WINDOWS['name']}.")
    chunks = data.chunks()
    others = _feed(console, client, chunks)
    with console.status("Waiting until both queries have read everything ..."):
        states = {query["name"]: _settled(client, query["name"]) for query in (JOIN, WINDOWS)}
    rejected = sum(client.stream("departures").reject_counts().values())
    waiting = sum(states[JOIN["name"]].buffered.values())
    join = compare_join(client, data, waiting)
    windows, late = compare_windows(client, data)
    console.print(windows_table(_last(list(client.table(WINDOWS["name"]).each_row()), 8)))
    end = _end(client, "streams", JOIN["name"])
    console.print(joined_table(list(client.stream(JOIN["name"]).records(offset=max(0, end - 8)))))
    console.print("[bold]Compared with a batch computation in Polars over the same data[/]")
    is_agreed = verdict(console, [join, windows], others)
    counted = _count(states[WINDOWS["name"]], "window_closed")
    console.print(
        f"  {waiting:,} departures wait for their grace period; {counted:,} came after their hour was final (batch: {late:,}); "
        f"{rejected:,} records were rejected: cancelled flights have no departure time"
    )
    invitations(console, base_url)
    return is_agreed and (counted == late or any(others.values()))


def _feed(console: Console, client: Client, chunks: list[Chunk]) -> dict[str, int]:
    """Send what the service does not have yet; an earlier run's part is recognised by the next offset.

    Returns:
        Of each relation, how many records somebody else has appended.
    """
    have = {name: _end(client, kind, name) for kind, name in RELATIONS}
    sent = {name: sent_before(chunks, name, have[name]) for name in have}
    others = {name: have[name] - sent[name] for name in have}
    todo = [chunk for chunk in chunks if chunk.accepted_before >= sent[chunk.relation]]
    if not todo:
        console.print("The data of an earlier run is here already.")
        return others
    total = sum(len(chunk.frame) for chunk in todo)
    columns = (
        TextColumn("Feeding"), BarColumn(), MofNCompleteColumn(), TextColumn("records  until {task.fields[until]}  "),
        TextColumn("joined {task.fields[joined]:,}  final hours {task.fields[windows]:,}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("feed", total=total, until="", joined=0, windows=0)
        looked_at = 0.0
        for chunk in todo:
            _send(client, chunk)
            progress.update(task, advance=len(chunk.frame), until=chunk.until)
            if time.monotonic() - looked_at > 1.0:
                looked_at = time.monotonic()
                counts = {name: client.query(name).status().emitted_rows for name in (JOIN["name"], WINDOWS["name"])}
                progress.update(task, joined=counts[JOIN["name"]], windows=counts[WINDOWS["name"]])
    console.print(f"Sent {total:,} records in {len(todo)} requests.")
    return others


def _send(client: Client, chunk: Chunk) -> None:
    key = f"demo-{chunk.relation}-{chunk.accepted_before}-{len(chunk.frame)}"
    client.relation(chunk.kind, chunk.relation).append(chunk.ndjson, idempotency_key=key, batch_rows=len(chunk.frame))


def _end(client: Client, kind: Kind, name: str) -> int:
    return sum(partition.next_offset for partition in client.relation(kind, name).info().partitions or ())


def _settled(client: Client, query: str) -> Status:
    """Wait until the query has read its inputs to their ends; return its status."""
    try:
        return client.query(query).wait_until("caught_up", timeout=SETTLE_SECONDS)
    except (QueryFailed, NotReached) as error:
        raise SystemExit(f"{query} did not finish: {error}") from error


def _count(status: Status, reason: str) -> int:
    return sum(counter.count for counter in status.counters if counter.reason == reason)


def _last(rows: list[Json], count: int) -> list[Json]:
    return sorted(rows, key=lambda row: (row["window_start"], row["origin"]))[-count:]


def _ksql_port(settings: Settings) -> int | None:
    """Return where ksqlDB's clients are answered: as the settings say, else at the port that they expect, if it is free."""
    if settings.ksql_port is not None:
        return settings.ksql_port
    with socket.socket() as probe:
        return KSQL_PORT if probe.connect_ex((settings.host, KSQL_PORT)) else None


def _serve_until_interrupted(console: Console, base_url: str, ksql_port: int | None, *, is_ours: bool) -> None:
    if not is_ours:
        console.print(f"The service at {base_url} was running before and goes on.")
        return
    console.print(f"\nServing at {base_url} until Ctrl-C.")
    if ksql_port is not None:
        console.print(
            f"Clients of ksqlDB: port {ksql_port}. SQL: POST {base_url}/v1/statements ({base_url}/guide/reference/sql/)."
        )
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    while not stop.wait(1.0):
        pass


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
