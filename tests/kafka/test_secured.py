"""A broker with TLS, SASL and rules: read through a stored connection, refused with the cure, and its secrets are seen nowhere."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from slackwater import Client, ServiceError

from engine.connections.checking import check
from engine.connections.keys import SecretKeys
from engine.connections.kinds import read_connection
from engine.connections.secret_sources import SecretSources
from engine.connections.stored import sealed
from engine.definition.relations import StreamDefinition
from engine.plan.catalog import feed_of, relation_schema
from engine.plan.model import Input
from engine.sources.connector_kinds import control_of, open_feed
from engine.sources.feeds import ReadRequest, Split
from tests.faults.service import Service, service, until
from tests.kafka.broker import why_not
from tests.kafka.secured import USER, Secured, secured
from tests.kafka.test_service import PATIENT
from tests.kafka.topics import Sent
from tests.secrets_seen import check_unseen, look

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(400)]

PASSWORDS = {
    "PLAIN": "pw-Zx81MARKERplain",
    "SCRAM-SHA-256": "pw-Zx81MARKERscram2",
    "SCRAM-SHA-512": "pw-Zx81MARKERscram5",
}
WRONG = "pw-Zx81MARKERwrong"
KEY = "key-Zx81MARKERk1-0123456789abcdef"
SECRETS = (*PASSWORDS.values(), WRONG, KEY)


@pytest.fixture
def broker() -> Iterator[Secured]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with secured(PASSWORDS) as found:
        yield found


def stream(connection: str, topic: str) -> dict[str, Any]:
    connector = {"type": "kafka", "connection": connection, "topic": topic, "value": {"format": "json"}}
    return {"columns": {"v": "bigint"}, "connector": connector}


def refusal(client: Client, name: str, definition: dict[str, Any]) -> tuple[int, str]:
    with pytest.raises(ServiceError) as caught:
        client.stream(name).register(definition)
    return caught.value.status, json.dumps(caught.value.problem)


def test_a_secured_broker_is_read_and_its_secrets_are_seen_nowhere(broker: Secured) -> None:
    cluster, seen = broker.cluster, dict[str, str]()
    topics = {mechanism: cluster.topic() for mechanism in PASSWORDS}
    for topic in topics.values():
        cluster.send(topic, [Sent(b'{"v": %d}' % number, timestamp_ms=1_700_000_000_000 + number) for number in range(1_000)])
        broker.allow(topic)
    denied = cluster.topic()
    settings = {**PATIENT, "SLACKWATER_SECRET_KEY": KEY, "SLACKWATER_LOG__LEVEL": "DEBUG"}
    with service(settings) as running, Client(running.url) as client:
        for mechanism, topic in topics.items():
            name = mechanism.lower().replace("-", "_")
            seen[f"connection {name}"] = json.dumps(client.call("PUT", f"/v1/connections/{name}", broker.connection(mechanism)))
            client.stream(name).register(stream(name, topic))
            client.queries.put(total(name))
        for mechanism in topics:
            name = mechanism.lower().replace("-", "_")
            until(
                f"{name} is read", lambda name=name: sum(row["n"] for row in client.table(f"n_{name}").each_row()) == 1_000, 240
            )
            seen[f"status {name}"] = json.dumps(client.query(f"n_{name}").status().raw)

        code, text = refusal(client, "denied", stream("plain", denied))
        assert (code, [each["code"] for each in json.loads(text)["errors"]]) == (422, ["topic_not_allowed"]), text
        seen["denied"] = text
        seen["wrong connection"] = json.dumps(client.call("PUT", "/v1/connections/wrong", broker.connection("PLAIN", WRONG)))
        code, text = refusal(client, "wrong", stream("wrong", topics["PLAIN"]))
        assert "uthentication" in text, text
        seen["wrong"] = text
        stranger = {**broker.connection("PLAIN"), "tls": {}}
        seen["stranger connection"] = json.dumps(client.call("PUT", "/v1/connections/stranger", stranger))
        code, text = refusal(client, "stranger", stream("stranger", topics["PLAIN"]))
        assert "certificate" in text.lower(), text
        seen["stranger"] = text
        seen |= look(running.url, running.data_dir.parent, dsn_of(running))
        assert "scram_sha_512" in seen["database"], "what was stored is among it"
        seen["pickles"] = pickled(dsn_of(running), topics["PLAIN"])
    check_unseen(SECRETS, seen, users=(USER,))


def test_each_mechanism_proves_its_password_and_a_wrong_one_is_told(broker: Secured) -> None:
    keys = SecretKeys(KEY)
    around = SecretSources(keys)
    for mechanism in PASSWORDS:
        right, wrong = (
            check(sealed("c", read_connection(broker.connection(mechanism, password)), keys), around, 30)
            for password in (None, WRONG)
        )
        assert (right.outcome, right.reason) == ("reached", None), right
        assert (wrong.outcome, wrong.reason) == ("not_reached", "authentication"), wrong
        assert WRONG not in wrong.detail


def total(name: str) -> dict[str, Any]:
    return {
        "name": f"n_{name}", "from": {"stream": name}, "group_by": ["v"], "aggregate": {"n": "count(*)"},
        "into": {"table": f"n_{name}"},
    }  # fmt: skip


def dsn_of(running: Service) -> str:
    return running.driver().environ()["SLACKWATER_DATABASE_URL"]


def pickled(dsn: str, topic: str) -> str:
    """Return what travels to workers: a reader and its splits, also after they have been used."""
    definition = StreamDefinition.model_validate(stream("plain", topic))
    relation, feed = relation_schema("plain", definition), feed_of("plain", definition)
    with psycopg.connect(dsn, autocommit=True) as connection:
        control_of(feed).register(connection, feed, definition.connector)
    reader = open_feed(dsn, feed, [relation])
    names = relation.columns.names
    with pytest.raises(Exception, match="connection 'plain'"):  # the key is the service's alone
        list(reader.read(Split(0, 0, 10), ReadRequest([Input(0, "i", relation, feed, names, names[:1])], 0, 1)))
    return pickle.dumps([reader, reader.splits(0, 0, 10)]).decode("latin-1")
