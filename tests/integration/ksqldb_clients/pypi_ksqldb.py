"""The package ``ksqldb`` of PyPI: HTTP/1.1 for statements, HTTP/2 without asking for queries and inserts."""

import asyncio
import sys

from ksqldb import KSQLdbClient

client = KSQLdbClient(sys.argv[1])
assert client.ksql("SHOW TABLES;")[0]["tables"][0]["name"] == "TOTALS"
assert isinstance(client.get_properties(), list)
rows = [{"ID": "1", "AMOUNT": 1.5}, {"ID": "2", "AMOUNT": -2}]
assert [ack["status"] for ack in client.inserts_stream("ORDERS", rows)] == ["ok", "ok"]
head, row = client.query_sync("SELECT item, n FROM totals WHERE item = 'mug';", timeout=60)
assert (head["columnNames"], row) == (["ITEM", "N"], ["mug", 2])


async def pushed():
    query = "SELECT id, amount FROM orders EMIT CHANGES LIMIT 2;"
    return [line async for line in client.query_async(query, {"auto.offset.reset": "earliest"}, timeout=60)]


assert asyncio.run(pushed())[1:] == [["1", 1.5], ["2", -2.0]]
assert client.close_query("nothing") is False
