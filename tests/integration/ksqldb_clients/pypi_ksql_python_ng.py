"""The package ``ksql-python-ng`` of PyPI."""

import json
import sys

from ksql import KSQLAPI
from ksql.errors import KSQLError

client = KSQLAPI(sys.argv[1])
assert client.get_ksql_version() >= "6"
assert client.ksql("SHOW STREAMS;")[0]["streams"][0]["name"] == "ORDERS"
assert isinstance(client.get_properties(), list)
rows = [{"ID": "1", "AMOUNT": 1.5}, {"ID": "2", "AMOUNT": -2}]
assert [ack["status"] for ack in client.inserts_stream("ORDERS", rows)] == ["ok", "ok"]
query = "SELECT id, amount FROM orders EMIT CHANGES LIMIT 2"
earliest = {"ksql.streams.auto.offset.reset": "earliest"}
lines = json.loads("".join(client.query(query, stream_properties=earliest)))
assert [line["row"]["columns"] for line in lines if "row" in line] == [["1", 1.5], ["2", -2.0]]
text = "".join(client.query(query, stream_properties=earliest, use_http2=True))
assert [json.loads(line) for line in text.splitlines()][1:] == [["1", 1.5], ["2", -2.0]]
try:
    client.ksql("DROP TABLE nothing;")
except KSQLError:
    pass
else:
    raise AssertionError("a wrong statement is refused")
