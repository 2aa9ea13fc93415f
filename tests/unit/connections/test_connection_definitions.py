"""What a definition of a connection may say, and what a fault of one says: the field and what to do, never what was given."""

from __future__ import annotations

from typing import Any

import pytest

from engine.connections.kinds import read_connection
from engine.definition.connections.secret import put_back, taken_out
from engine.errors import DefinitionInvalid

SECRET = "hunter2-Zx81"
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KAFKA: dict[str, Any] = {"type": "kafka", "bootstrap": "a.example.com:9093, b.example.com:9093"}
SCRAM = {"mechanism": "SCRAM-SHA-256", "username": "u", "password": SECRET}
OAUTH = {"mechanism": "OAUTHBEARER", "token_url": "https://i.example.com/token", "client_id": "c", "client_secret": SECRET}
REGISTRY: dict[str, Any] = {"type": "registry", "urls": ["https://r.example.com/"]}
S3: dict[str, Any] = {"type": "s3", "bucket": "lake"}
POSTGRES: dict[str, Any] = {"type": "postgres", "host": "db", "database": "shop", "username": "u", "password": SECRET}


@pytest.mark.parametrize(
    "body",
    [
        KAFKA,
        {**KAFKA, "sasl": SCRAM},
        {**KAFKA, "sasl": {**SCRAM, "mechanism": "PLAIN"}, "tls": {}},
        {**KAFKA, "sasl": {**OAUTH, "scope": "kafka read"}},
        {**KAFKA, "tls": {"ca": PEM, "certificate": PEM, "key": "file:k.pem", "key_password": "env:SLACKWATER_SECRET_K"}},
        {**KAFKA, "bootstrap": "[::1]:9092,10.0.0.1:9092"},
        REGISTRY,
        {**REGISTRY, "username": "u", "password": SECRET, "tls": {"ca": "file:ca.pem"}},
        {**REGISTRY, "token": SECRET},
        S3,
        {**S3, "endpoint": "http://127.0.0.1:9000", "access_key_id": "id", "secret_access_key": SECRET, "session_token": SECRET},
        POSTGRES,
        {**POSTGRES, "password": None, "tls": {"certificate": PEM, "key": PEM}},
    ],
)
def test_a_definition_is_parted_from_its_secrets_and_put_together_again(body: dict[str, Any]) -> None:
    definition = read_connection(body)
    shown, values = taken_out(definition)
    assert SECRET not in str(shown)
    assert SECRET not in repr(definition)
    assert read_connection(put_back(shown, values)) == definition
    if SECRET in str(body):
        assert SECRET in values.values()


def test_every_default_is_spelled_out() -> None:
    shown, values = taken_out(read_connection({**POSTGRES, "tls": {}}))
    assert shown == {
        "type": "postgres",
        "host": "db",
        "port": 5432,
        "database": "shop",
        "username": "u",
        "password": {"set": True},
        "tls": {"ca": None, "certificate": None, "key": None, "key_password": None, "verify_host": True},
    }
    assert values == {"/password": SECRET}


def test_references_are_shown_and_are_no_values() -> None:
    shown, values = taken_out(read_connection({**POSTGRES, "password": "env:SLACKWATER_SECRET_SHOP"}))
    assert shown["password"] == "env:SLACKWATER_SECRET_SHOP"
    assert values == {}


@pytest.mark.parametrize(
    ("body", "pointer", "says"),
    [
        ([], "", "JSON object"),
        ({}, "/type", "kafka, registry, s3, postgres"),
        ({"type": "kafak"}, "/type", "did you mean kafka"),
        ({"type": 7}, "/type", "one of kafka"),
        ({"type": "kafka"}, "/bootstrap", "required"),
        ({**KAFKA, "bootstrap": "broker"}, "/bootstrap", "host:port"),
        ({**KAFKA, "bootstrap": "broker:99999"}, "/bootstrap", "host:port"),
        ({**KAFKA, "bootstrap": "u:p@broker:9092"}, "/bootstrap", "host:port"),
        ({**KAFKA, "bootstrap": ",".join(["b:1"] * 33)}, "/bootstrap", "more than 32"),
        ({**KAFKA, "options": {"ssl.engine.location": "/x"}}, "/options", "no field `options`"),
        ({**KAFKA, "sasl": {**SCRAM, "mechanism": "GSSAPI"}}, "/sasl/mechanism", "must be one of"),
        ({**KAFKA, "sasl": {"mechanism": "PLAIN", "username": "u"}}, "/sasl", "needs `password`"),
        ({**KAFKA, "sasl": {"mechanism": "OAUTHBEARER"}}, "/sasl", "needs `token_url`, `client_id`, `client_secret`"),
        ({**KAFKA, "sasl": {**SCRAM, "client_id": "c"}}, "/sasl", "has no `client_id`"),
        ({**KAFKA, "sasl": {**OAUTH, "password": SECRET}}, "/sasl", "has no `password`"),
        ({**KAFKA, "sasl": {**SCRAM, "password": {"set": True}}}, "/sasl/password", "never shown"),
        ({**KAFKA, "sasl": {**SCRAM, "password": ""}}, "/sasl/password", ""),
        ({**KAFKA, "sasl": {**SCRAM, "password": 7}}, "/sasl/password", "text"),
        ({**KAFKA, "sasl": {**SCRAM, "password": "env:HOME"}}, "/sasl/password", "SLACKWATER_SECRET_…"),
        ({**KAFKA, "sasl": {**SCRAM, "password": "env:SLACKWATER_SECRET_KEY"}}, "/sasl/password", "not SLACKWATER_SECRET_KEY"),
        ({**KAFKA, "sasl": {**SCRAM, "password": "env:SLACKWATER_DATABASE_URL"}}, "/sasl/password", "SLACKWATER_SECRET_…"),
        ({**KAFKA, "sasl": {**SCRAM, "password": "file:../x"}}, "/sasl/password", "without '..'"),
        ({**KAFKA, "sasl": {**SCRAM, "password": "file:"}}, "/sasl/password", "SLACKWATER_SECRETS_DIR"),
        ({**KAFKA, "sasl": {**SCRAM, "password": SECRET + "\0"}}, "/sasl/password", "U+0000"),
        ({**KAFKA, "sasl": {**SCRAM, "pasword": SECRET}}, "/sasl/pasword", "did you mean password"),
        ({**KAFKA, "tls": {"certificate": PEM}}, "/tls", "`certificate` and `key` go together"),
        ({**KAFKA, "tls": {"certificate": SECRET, "key": PEM}}, "/tls/certificate", "PEM"),
        ({**KAFKA, "tls": {"ca": SECRET}}, "/tls/ca", "PEM"),
        ({**KAFKA, "tls": {"key_password": SECRET}}, "/tls", "`key_password` is of a `key`"),
        ({**REGISTRY, "urls": []}, "/urls", ""),
        ({**REGISTRY, "urls": ["ftp://x"]}, "/urls/0", "no URL"),
        ({**REGISTRY, "urls": [f"https://u:{SECRET}@r.example.com"]}, "/urls/0", "in their own fields"),
        ({**REGISTRY, "urls": ["https://r.example.com?a=b"]}, "/urls/0", "without query"),
        ({**REGISTRY, "urls": ["https://r.example.com:x"]}, "/urls/0", "no URL"),
        ({**REGISTRY, "username": "u"}, "", "`username` and `password` go together"),
        ({**REGISTRY, "username": "u", "password": SECRET, "token": SECRET}, "", "exclude each other"),
        ({**REGISTRY, "urls": ["http://r"], "tls": {}}, "", "https://"),
        ({**S3, "bucket": "A_b"}, "/bucket", "bucket"),
        ({**S3, "access_key_id": "id"}, "", "`secret_access_key` go together"),
        ({**S3, "session_token": SECRET}, "", "`session_token` is of"),
        ({**S3, "region": "eu west"}, "/region", "region"),
        ({**POSTGRES, "host": "/var/run"}, "/host", "no name or address"),
        ({**POSTGRES, "host": "db,other"}, "/host", "no name or address"),
        ({**POSTGRES, "port": 0}, "/port", ""),
        ({**POSTGRES, "port": "5432"}, "/port", "whole number"),
        ({**POSTGRES, "username": ""}, "/username", "1 to 512 characters"),
        ({**POSTGRES, "sslkey": "/etc/shadow"}, "/sslkey", "no field"),
    ],
)  # fmt: skip
def test_a_fault_names_the_field_and_what_to_do_and_repeats_no_secret(body: Any, pointer: str, says: str) -> None:
    with pytest.raises(DefinitionInvalid) as refused:
        read_connection(body)
    problems = {problem.pointer: problem.detail for problem in refused.value.problems}
    assert pointer in problems, problems
    assert says.lower() in problems[pointer].lower()
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None, "what was given would be in the traceback"
