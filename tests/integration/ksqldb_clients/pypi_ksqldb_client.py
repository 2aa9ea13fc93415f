"""The package ``ksqldb-client`` of PyPI, which checks every answer against models of its own."""

import sys
import warnings

from ksqldb_client import KSqlDBClient

warnings.simplefilter("ignore")
client = KSqlDBClient(sys.argv[1], timeout_in_seconds=60)
assert client.info().ksql_server_info.server_status == "RUNNING"
assert client.ksql("SHOW STREAMS;")[0].streams[0].name == "ORDERS"
assert client.ksql("SHOW QUERIES;")[0].queries[0].id == "TOTALS"
done = client.ksql("CREATE STREAM two AS SELECT id, item FROM orders;")[0]
assert client.status(done.command_id).status == "SUCCESS"
head, row, *_ = client.query("SELECT item, n FROM totals WHERE item = 'mug';")
assert (head.header.schema_, row.row.columns) == ("`ITEM` STRING KEY, `N` BIGINT", ("mug", 2))
