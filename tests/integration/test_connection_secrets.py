"""Secrets of connections show up nowhere: answers, errors, logs, the audit log, the database, arguments of processes, OpenAPI."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from pathlib import Path
from socket import SHUT_RDWR, create_server
from threading import Thread
from typing import Any

import httpx

from engine.definition.connections.secret import SHOWN
from tests.integration.test_api_serve import environment, run, serving, url
from tests.secrets_seen import check_unseen, left_behind, look

__all__ = ["environment"]
KEY = "key-Zx81MARKERk1-0123456789abcdef"
PASSWORDS = {
    name: f"pw-Zx81 MARKER/{name}+q7" for name in ("kafka", "registry", "s3", "postgres", "tls", "token", "variable", "file")
}
PEM = "-----BEGIN PRIVATE KEY-----\nTUFSS0VSUEVNMDEyMzQ1Njc4OWFiY2RlZg==\n-----END PRIVATE KEY-----\n"


def definitions(port: int) -> dict[str, dict[str, Any]]:
    """One connection of each kind, all of them to a port of this machine."""
    tls = {"certificate": PEM, "key": PEM, "key_password": PASSWORDS["tls"]}
    return {
        "kafka": {
            "type": "kafka", "bootstrap": f"127.0.0.1:{port}", "tls": tls,
            "sasl": {"mechanism": "PLAIN", "username": "u", "password": PASSWORDS["kafka"]},
        },
        "registry": {"type": "registry", "urls": [f"http://127.0.0.1:{port}"], "username": "u", "password": PASSWORDS["registry"]},
        "token": {"type": "registry", "urls": [f"http://127.0.0.1:{port}"], "token": PASSWORDS["token"]},
        "s3": {
            "type": "s3", "bucket": "lake", "endpoint": f"http://127.0.0.1:{port}", "access_key_id": "id",
            "secret_access_key": PASSWORDS["s3"],
        },
        "postgres": {
            "type": "postgres", "host": "127.0.0.1", "port": port, "database": "d", "username": "u", "password": PASSWORDS["postgres"],
        },
        "variable": {
            "type": "postgres", "host": "127.0.0.1", "port": port, "database": "d", "username": "u",
            "password": "env:SLACKWATER_SECRET_VARIABLE",
        },
        "file": {"type": "registry", "urls": [f"http://127.0.0.1:{port}"], "token": "file:password"},
    }  # fmt: skip


def serve_echo(listening: Any) -> None:
    """Repeat to each client what it sent, in answers of HTTP and errors of Postgres: the worst that the other side may say."""
    with suppress(OSError):
        while True:
            with listening.accept()[0] as client, suppress(OSError):
                client.settimeout(2)
                sent = client.recv(65_536)
                if sent[4:8] == struct.pack("!I", 196_608):  # Postgres, version 3
                    client.sendall(b"R" + struct.pack("!II", 8, 3))
                    said = b"SFATAL\0C28P01\0M" + client.recv(65_536)[5:] + b"\0"
                    client.sendall(b"E" + struct.pack("!I", len(said) + 4) + said)
                elif sent:
                    client.sendall(
                        b"HTTP/1.1 401 " + sent.split(b"\r\n")[-3] + b"\r\nContent-Length: %d\r\n\r\n" % len(sent) + sent
                    )


def test_secrets_of_connections_show_up_nowhere(dsn: str, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORDS["file"])
    given = {
        **environment,
        "SLACKWATER_DATABASE_URL": dsn,
        "SLACKWATER_SECRET_KEY": KEY,
        "SLACKWATER_SECRET_VARIABLE": PASSWORDS["variable"],
        "SLACKWATER_SECRETS_DIR": str(tmp_path),
        "SLACKWATER_LOG__LEVEL": "DEBUG",
    }
    seen: dict[str, str] = {}
    with create_server(("127.0.0.1", 0)) as listening:
        Thread(target=serve_echo, args=(listening,), daemon=True).start()
        with serving(given):
            for name, body in definitions(listening.getsockname()[1]).items():
                use_connection(url(given, f"/v1/connections/{name}"), name, body, seen)
            use_by_name(url(given, "/v1"), seen)
            seen |= look(url(given, ""), Path(given["SLACKWATER_DATA_DIR"]), dsn)
        listening.shutdown(SHUT_RDWR)
    shown = run(given, "config", "show")
    doctor = run(given, "doctor")
    for part, told in (("config", shown), ("doctor", doctor)):
        seen[part] = told.stdout + told.stderr
    assert "those of 5 connections can be decrypted" in " ".join(doctor.stdout.split())
    assert "SLACKWATER_SECRET_KEY" in shown.stdout
    seen |= {f"{name} in the end": text for name, text in left_behind(Path(given["SLACKWATER_DATA_DIR"])).items()}
    assert any("/v1/connections/{name}" in text for name, text in seen.items() if name.startswith("file ")), (
        "the log is among them"
    )
    assert json.dumps(SHOWN) in seen["database"], "what was stored is among it"
    assert '"check"' in seen["/v1/audit?limit=1000"]
    check_unseen((*PASSWORDS.values(), KEY, PEM.splitlines()[1]), seen)


def use_connection(address: str, name: str, body: dict[str, Any], seen: dict[str, str]) -> None:
    """Put, look, try, break, and put aside all that is answered."""
    json_type = {"content-type": "application/json"}
    answers = [
        httpx.put(address, json=body),
        httpx.put(address, json=body, headers={"idempotency-key": name}),
        httpx.get(address),
        httpx.post(f"{address}/check", timeout=30),
        httpx.put(address, json={**body, "unknown": PASSWORDS["kafka"]}),
        httpx.put(address, json={**body, "type": "other"}),
        httpx.put(address, content=json.dumps(body)[:-1], headers=json_type),
        httpx.put(address, json={**body, "username": {"of": PASSWORDS["kafka"]}}),
        httpx.put(address, json=body, headers={"if-match": '"99"'}),
    ]
    assert [answer.status_code for answer in answers][:4] == [201, 200, 200, 200], [answer.text for answer in answers]
    assert all(answer.status_code in (400, 412, 422) for answer in answers[4:])
    assert answers[3].json()["outcome"] == "not_reached", answers[3].text
    for place, answer in enumerate(answers):
        seen[f"{name} {place}"] = f"{answer.text} {answer.headers}"


def use_by_name(base: str, seen: dict[str, str]) -> None:
    """Let sources, bodies, change events and deliveries use connections whose other side answers with what it was sent."""
    columns = {"columns": {"id": "bigint", "name": "string"}}
    assert httpx.put(f"{base}/tables/orders", json=columns | {"key": ["id"]}, timeout=60).status_code == 201
    assert httpx.put(f"{base}/streams/clicks", json=columns, timeout=60).status_code == 201
    payload, binary = b"\0\0\0\0\1x", {"content-type": "application/octet-stream"}
    for registry in ("registry", "token", "file"):
        for path in (
            "streams/clicks/records?format=avro",
            "streams/clicks/records?format=protobuf&subject=s",
            "tables/orders/records?format=debezium&encoding=avro",
        ):
            answer = httpx.post(f"{base}/{path}&registry={registry}", content=payload, headers=binary, timeout=60)
            assert answer.status_code in (422, 503), answer.text
            seen[f"{path} {registry}"] = f"{answer.text} {answer.headers}"
    for registry in (None, "registry"):
        value = {"format": "json"} if registry is None else {"format": "avro", "registry": registry}
        topic = {"type": "kafka", "connection": "kafka", "topic": "t", "value": value}
        answer = httpx.put(f"{base}/streams/topic", json=columns | {"connector": topic}, timeout=60)
        assert answer.status_code in (422, 503), answer.text
        seen[f"source {registry}"] = f"{answer.text} {answer.headers}"
    for connector in (
        {"type": "kafka", "connection": "kafka", "topic": "t"},
        {"type": "kafka", "connection": "kafka", "topic": "t", "value": {"format": "avro", "registry": "token"}},
        {"type": "files", "path": "p", "connection": "s3"},
        {"type": "delta", "path": "p", "connection": "s3"},
        {
            "type": "kafka",
            "bootstrap": "b:1",
            "topic": "t",
            "sasl": {"mechanism": "PLAIN", "username": "u", "password": PASSWORDS["kafka"]},
        },
    ):
        query = {"name": "out", "from": {"stream": "clicks"}, "into": {"stream": "out", "connector": connector}}
        answer = httpx.post(f"{base}/queries", json=query, timeout=60)
        assert answer.status_code in (201, 422, 503), answer.text
        seen[f"delivery {connector}"[:60]] = f"{answer.text} {answer.headers}"
    statement = {"sql": f"CREATE STREAM s (n INT) WITH (KAFKA_TOPIC='t', CONNECTION='kafka', PASSWORD='{PASSWORDS['kafka']}');"}
    refused = httpx.post(f"{base}/statements", json=statement, timeout=60)
    assert refused.status_code == 422  # shows its sender the line that is wrong; nobody else sees it
