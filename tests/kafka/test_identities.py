"""A broker that knows who asks by tokens or by certificates: read and written by a whole service, and refused with the cure."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from slackwater import Client

from tests.faults.service import service, until
from tests.kafka.broker import why_not
from tests.kafka.identities import CLIENT, TOKEN_S, Identities, identities
from tests.kafka.test_delivery import taken
from tests.kafka.test_secured import dsn_of
from tests.kafka.test_service import PATIENT
from tests.kafka.topics import Sent
from tests.secrets_seen import check_unseen, look

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]

SECRET = "cs-Zx81MARKERsecret"
WRONG = "cs-Zx81MARKERwrong"
KEY = "key-Zx81MARKERk1-0123456789abcdef"
WAYS = {"tokens": "certificates", "certificates": "tokens"}
"""How a source is read → how its results are written."""

OF_OUTPUTS = (("GROUP", "READ"), ("TRANSACTIONAL_ID", "WRITE"), ("TRANSACTIONAL_ID", "DESCRIBE"))


@pytest.fixture
def broker() -> Iterator[Identities]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with identities(SECRET) as found:
        yield found


def records(start: int, end: int) -> list[Sent]:
    return [Sent(b'{"v": %d}' % number, timestamp_ms=1_700_000_000_000 + number) for number in range(start, end)]


def copying(source: str, into: str, way: str) -> dict[str, Any]:
    return {
        "name": f"copy_{source}", "from": {"stream": source},
        "into": {"stream": f"copy_{source}", "connector": {"type": "kafka", "connection": way, "topic": into}},
    }  # fmt: skip


def is_delivered(client: Client, name: str, rows: int) -> bool:
    found = client.query(name).status()["delivery"]
    assert found["state"] != "stopped", found
    return bool(found["position"] >= rows and found["lag_rows"] == 0)


def test_who_asks_by_token_or_by_certificate_reads_and_writes(broker: Identities) -> None:
    topics = {way: (broker.cluster.topic(), broker.cluster.topic()) for way in WAYS}
    for way, (source, into) in topics.items():
        broker.allow(way, "TOPIC", source, "READ")
        broker.allow(WAYS[way], "TOPIC", into, "WRITE", "READ")
        for kind, operation in OF_OUTPUTS:
            broker.allow(way, kind, "slackwater-", operation)
        broker.cluster.send(source, records(0, 1_000))
    seen = dict[str, str]()
    settings = {**PATIENT, "SLACKWATER_SECRET_KEY": KEY, "SLACKWATER_LOG__LEVEL": "DEBUG"}
    with service(settings) as running, Client(running.url, timeout=30) as client:
        for name, definition in (("tokens", broker.by_token()), ("certificates", broker.by_certificate())):
            client.call("PUT", f"/v1/connections/{name}", definition)
            assert client.call("POST", f"/v1/connections/{name}/check")["outcome"] == "reached"
        for way, (source, into) in topics.items():
            connector = {"type": "kafka", "connection": way, "topic": source, "value": {"format": "json"}}
            client.stream(way).register({"columns": {"v": "bigint"}, "connector": connector})
            client.queries.put(copying(way, into, WAYS[way]))
        for way in WAYS:
            until(f"{way} is delivered", lambda way=way: is_delivered(client, f"copy_{way}", 1_000), 180)
        before, begun = Counter(broker.issuer.issued), time.monotonic()
        time.sleep(TOKEN_S + 2)  # the length of a token's life is what is tested: connections outlive it
        for source, _ in topics.values():
            broker.cluster.send(source, records(1_000, 2_000))
        for way in WAYS:
            until(f"{way} is delivered", lambda way=way: is_delivered(client, f"copy_{way}", 2_000), 120)
            seen[f"status {way}"] = json.dumps(client.query(f"copy_{way}").status().raw)
        assert time.monotonic() - begun > TOKEN_S
        assert broker.issuer.issued.count(CLIENT) > before[CLIENT], "tokens were asked for anew"
        refused(client, broker, seen)
        seen |= look(running.url, running.data_dir.parent, dsn_of(running))
        assert "certificates" in seen["database"], "what was stored is among it"
    for _, into in topics.values():
        assert sorted(json.loads(each.value() or b"")["v"] for each in taken(broker.cluster, into, 2_000)) == [*range(2_000)]
    assert broker.issuer.tokens, "tokens were issued"
    signatures = [token.rpartition(".")[2] for token in broker.issuer.tokens]
    check_unseen(
        (SECRET, WRONG, KEY, *broker.holder.key.splitlines()[1:-1], *broker.issuer.tokens, *signatures), seen, users=(CLIENT,)
    )


def refused(client: Client, broker: Identities, seen: dict[str, str]) -> None:
    """What is wrong is told by its name."""
    wrong = {
        "wrong_secret": (broker.by_token(WRONG), "authentication"),
        "no_certificate": (broker.by_certificate(certificate=None, key=None), "tls"),
        "another_authority": (broker.by_certificate(ca=broker.holder.ca), "tls"),
    }
    for name, (definition, reason) in wrong.items():
        client.call("PUT", f"/v1/connections/{name}", definition)
        found = client.call("POST", f"/v1/connections/{name}/check")
        seen[name] = json.dumps(found)
        assert (found["outcome"], found["reason"]) == ("not_reached", reason), found


def test_an_output_that_may_not_do_what_it_needs_stops_with_the_cure(broker: Identities) -> None:
    source, into = broker.cluster.topic(), broker.cluster.topic()
    broker.allow("certificates", "TOPIC", source, "READ")
    broker.allow("certificates", "TOPIC", into, "WRITE")
    broker.cluster.send(source, records(0, 10))
    with service({**PATIENT, "SLACKWATER_SECRET_KEY": KEY}) as running, Client(running.url, timeout=30) as client:
        client.call("PUT", "/v1/connections/certificates", broker.by_certificate())
        connector = {"type": "kafka", "connection": "certificates", "topic": source, "value": {"format": "json"}}
        client.stream("copied").register({"columns": {"v": "bigint"}, "connector": connector})
        client.queries.put(copying("copied", into, "certificates"))

        def is_told(cure: str) -> bool:
            found = client.query("copy_copied").status()["delivery"]
            return found["state"] == "stopped" and cure in found["reason"]["detail"]

        until("transactions are not allowed", lambda: is_told("allow WRITE and DESCRIBE on transactional ids"), 180)
        for kind, operation in OF_OUTPUTS:
            broker.allow("certificates", kind, "slackwater-", operation)
        client.query("copy_copied").restart()
        until("the position cannot be kept", lambda: is_told("allow WRITE and READ on it"), 180)
        broker.allow("certificates", "TOPIC", into, "READ")
        client.query("copy_copied").restart()
        until("it is delivered", lambda: client.query("copy_copied").status()["delivery"]["position"] == 10, 180)
    assert len(taken(broker.cluster, into, 10)) == 10
