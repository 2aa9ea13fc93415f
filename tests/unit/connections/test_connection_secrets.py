"""Secrets at rest and at their use: encryption, rotation of keys, references, and the options that libraries get."""

from __future__ import annotations

import os
import pickle
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import SecretStr

from engine.connections.certificates import CertificateUnreadable
from engine.connections.kafka import KafkaConnection, librdkafka_options
from engine.connections.keys import SecretKeyMissing, SecretKeys, SecretPlace, SecretUnreadable
from engine.connections.kinds import read_connection
from engine.connections.postgres import PostgresConnection, psycopg_options
from engine.connections.registry import RegistryConnection, httpx_options
from engine.connections.s3 import S3Connection, obstore_options
from engine.connections.secret_sources import SecretMissing, SecretReader, SecretSources
from engine.connections.stored import Resolved, Stored, resolved, sealed
from engine.definition.connections.hosts import HostBounds
from engine.definition.connections.secret import MOST_CHARS
from engine.errors import SourceUnavailable
from tests.unit.connections.certificates import Issued, issue

OLD, NEW = "o" * 32, "n" * 32
SECRET = "pw-Zx81/+ MARK'er"
SCRAM: dict[str, Any] = {
    "type": "kafka",
    "bootstrap": "127.0.0.1:9093",
    "sasl": {"mechanism": "SCRAM-SHA-512", "username": "u", "password": SECRET},
}


@pytest.fixture(scope="module")
def issued() -> Issued:
    return issue("127.0.0.1")


def keys(setting: str) -> SecretKeys:
    found = SecretKeys.of(setting)
    assert found is not None
    return found


def stored(body: dict[str, Any], setting: str = NEW) -> Stored:
    return sealed("orders", read_connection(body), keys(setting))


def used(body: dict[str, Any], **variables: str) -> Resolved:
    return resolved(stored(body), SecretSources.of({"SLACKWATER_SECRET_KEY": NEW, **variables}))


def test_a_secret_is_encrypted_anew_each_time_and_decrypted_by_its_key() -> None:
    first, second = stored(SCRAM), stored(SCRAM)
    assert SECRET not in repr(first)
    assert first.secrets.keys() == {"/sasl/password"}
    assert first.secrets != second.secrets
    for each in (first, second):
        assert each.decrypted(keys(NEW)) == read_connection(SCRAM)


def test_keys_are_rotated_by_naming_the_new_one_before_the_old_one() -> None:
    former = stored(SCRAM, OLD)
    both = keys(f" {NEW}, {OLD} ,")
    assert former.decrypted(both) == read_connection(SCRAM)
    assert not both.is_first(former.secrets["/sasl/password"])
    assert both.is_first(stored(SCRAM, f"{NEW},{OLD}").secrets["/sasl/password"])
    with pytest.raises(SecretUnreadable, match=r"/sasl/password .*new,old"):
        former.decrypted(keys(NEW))
    with pytest.raises(SecretUnreadable, match="SLACKWATER_SECRET_KEY is not set"):
        former.decrypted(None)


def test_what_is_encrypted_counts_only_where_it_was_given() -> None:
    given = stored(SCRAM)
    elsewhere = {**given.definition, "bootstrap": "evil.example.com:9093"}
    token = given.secrets["/sasl/password"]
    moved = (
        replace(given, definition=elsewhere),
        replace(given, name="other"),
        replace(given, secrets={"/sasl/password": f"{token[:-4]}AAAA"}),
        replace(given, secrets={"/sasl/password": token[:20]}),
    )
    for each in moved:
        with pytest.raises(SecretUnreadable, match="was changed"):
            each.decrypted(keys(NEW))
    with pytest.raises(SecretUnreadable):
        keys(NEW).decrypt("v9.x.y", given.place("/sasl/password"))


def test_the_order_in_which_the_database_gives_fields_does_not_count() -> None:
    one, other = (
        SecretPlace("a", {"x": 1, "y": {"b": None, "a": True}}, "/x"),
        SecretPlace("a", {"y": {"a": True, "b": None}, "x": 1}, "/x"),
    )
    assert keys(NEW).decrypt(keys(NEW).encrypt(SECRET, one), other) == SECRET


def test_a_short_key_is_refused_without_being_repeated() -> None:
    with pytest.raises(ValueError, match="32 characters") as refused:
        SecretKeys.of(f"{NEW},hunter2")
    assert "hunter2" not in str(refused.value)
    assert SecretKeys.of("") is SecretKeys.of(None) is None


def test_a_value_without_a_key_is_refused_with_its_fields_and_references_are_not() -> None:
    with pytest.raises(SecretKeyMissing) as refused:
        sealed("orders", read_connection(SCRAM), None)
    assert refused.value.pointers == ("/sasl/password",)
    referring = {**SCRAM, "sasl": {**SCRAM["sasl"], "password": "env:SLACKWATER_SECRET_ORDERS"}}
    assert sealed("orders", read_connection(referring), None).secrets == {}


def test_marks_of_equal_secrets_are_equal_and_need_the_key() -> None:
    assert keys(NEW).mark(SECRET) == keys(f"{NEW},{OLD}").mark(SECRET) != keys(OLD).mark(SECRET)


def test_references_are_read_when_they_are_used(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "password").write_text(f"{SECRET}\r\n")
    (tmp_path / "linked").symlink_to("kafka/password")  # as Kubernetes mounts secrets
    reader = SecretReader(SecretSources.of({"SLACKWATER_SECRET_A": "env:B", "SLACKWATER_SECRETS_DIR": str(tmp_path)}))
    assert reader.text(SecretStr("env:SLACKWATER_SECRET_A")) == "env:B", "what a variable holds is no reference again"
    for path in ("kafka/password", "linked", str(tmp_path / "kafka" / "password")):
        assert reader.text(SecretStr(f"file:{path}")) == SECRET
    assert reader.text(SecretStr("plain")) == "plain"
    (tmp_path / "kafka" / "password").write_text("another")
    assert reader.text(SecretStr("file:linked")) == "another"


def test_a_reference_reads_nothing_outside_of_its_directory(tmp_path: Path) -> None:
    root, outside = tmp_path / "secrets", tmp_path / "outside"
    root.mkdir()
    outside.write_text(SECRET)
    (root / "link").symlink_to(outside)
    (root / "circle").symlink_to("circle")
    (root / "large").write_text("x" * (MOST_CHARS + 1))
    (root / "empty").write_text("\n")
    (root / "bytes").write_bytes(b"\xff\xfe" + SECRET.encode())
    os.mkfifo(root / "pipe")
    reader = SecretReader(SecretSources(directory=root))
    for path, says in (
        ("link", "not below"),
        (str(outside), "not below"),
        ("/proc/self/environ", "not below"),
        ("circle", "cannot be read"),
        ("nothing", "cannot be read"),
        (".", "a directory"),
        ("large", "more than"),
        ("empty", "empty"),
        ("bytes", "not UTF-8"),
        ("pipe", "no file"),
    ):
        with pytest.raises(SecretMissing, match=says) as refused:
            reader.text(SecretStr(f"file:{path}"))
        assert SECRET not in str(refused.value)
    with pytest.raises(SecretMissing, match="SLACKWATER_SECRETS_DIR"):
        SecretReader(SecretSources()).text(SecretStr("file:x"))
    with pytest.raises(SecretMissing, match="SLACKWATER_SECRET_NONE is not set"):
        reader.text(SecretStr("env:SLACKWATER_SECRET_NONE"))


def test_a_reader_takes_out_what_it_has_read_in_every_usual_form() -> None:
    reader = SecretReader(SecretSources())
    reader.text(SecretStr(SECRET))
    said = f"auth {SECRET!r} url https://u:pw-Zx81%2F%2B%20MARK%27er@h base64 cHctWng4MS8rIE1BUksnZXI="
    told = reader.without_secrets(said)
    assert "Zx81" not in told
    assert "cHctWng4" not in told
    assert told.startswith("auth ")


def test_kafka_gets_pem_texts_and_who_asks(issued: Issued) -> None:
    tls = {"ca": issued.ca, "certificate": issued.certificate, "key": issued.key, "key_password": "kp", "verify_host": False}
    found = used({**SCRAM, "tls": tls})
    assert isinstance(found.definition, KafkaConnection)
    assert librdkafka_options(found.definition, found.reader) == {
        "bootstrap.servers": "127.0.0.1:9093",
        "security.protocol": "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "none",
        "ssl.ca.pem": issued.ca,
        "ssl.certificate.pem": issued.certificate,
        "ssl.key.pem": issued.key,
        "ssl.key.password": "kp",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": SECRET,
    }


@pytest.mark.parametrize(
    ("more", "protocol"),
    [({}, "PLAINTEXT"), ({"tls": {}}, "SSL"), ({"sasl": SCRAM["sasl"]}, "SASL_PLAINTEXT"), ({"tls": {}, "sasl": SCRAM["sasl"]}, "SASL_SSL")],
)  # fmt: skip
def test_kafka_speaks_the_protocol_of_what_is_given(more: dict[str, Any], protocol: str) -> None:
    found = used({"type": "kafka", "bootstrap": "127.0.0.1:9092", **more})
    assert isinstance(found.definition, KafkaConnection)
    assert librdkafka_options(found.definition, found.reader)["security.protocol"] == protocol


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_is_told_which_mechanism_proves_the_password(mechanism: str) -> None:
    found = used({**SCRAM, "sasl": {**SCRAM["sasl"], "mechanism": mechanism}})
    assert isinstance(found.definition, KafkaConnection)
    options = librdkafka_options(found.definition, found.reader)
    assert (options["sasl.mechanisms"], options["sasl.password"]) == (mechanism, SECRET)
    AdminClient({**options, "bootstrap.servers": "127.0.0.1:1", "log_level": 0})  # it refuses mechanisms that it does not know
    with pytest.raises(KafkaException, match="Unsupported"):
        AdminClient({**options, "sasl.mechanisms": mechanism + "-1"})


def test_librdkafka_takes_the_options_of_oauthbearer() -> None:
    sasl = {
        "mechanism": "OAUTHBEARER", "token_url": "http://127.0.0.1:1/t", "client_id": "c", "scope": "s",
        "client_secret": "env:SLACKWATER_SECRET_O",
    }  # fmt: skip
    found = used({"type": "kafka", "bootstrap": "127.0.0.1:1", "sasl": sasl}, SLACKWATER_SECRET_O=SECRET)
    assert isinstance(found.definition, KafkaConnection)
    options = librdkafka_options(found.definition, found.reader)
    assert options["sasl.oauthbearer.client.secret"] == SECRET
    assert (options["sasl.oauthbearer.method"], options["sasl.oauthbearer.scope"]) == ("oidc", "s")


def test_a_registry_gets_basic_or_bearer_and_a_context(issued: Issued) -> None:
    tls = {"ca": issued.ca, "certificate": issued.certificate, "key": issued.key}
    found = used({"type": "registry", "urls": ["https://127.0.0.1:1"], "token": SECRET, "tls": tls})
    assert isinstance(found.definition, RegistryConnection)
    options = httpx_options(found.definition, found.reader)
    assert options.headers == {"Authorization": f"Bearer {SECRET}"}
    assert isinstance(options.verify, ssl.SSLContext)
    assert (options.verify.check_hostname, options.verify.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert SECRET not in repr(options)
    found = used({"type": "registry", "urls": ["https://127.0.0.1:1"], "tls": {**tls, "key": issue("x").key}})
    assert isinstance(found.definition, RegistryConnection)
    with pytest.raises(CertificateUnreadable, match=r"tls\.key"):
        httpx_options(found.definition, found.reader)


@pytest.mark.parametrize("token", ["line\nbreak", "not-äscii", "tab\t"])
def test_a_token_that_no_header_can_hold_is_said_and_not_repeated(token: str) -> None:
    found = used({"type": "registry", "urls": ["https://127.0.0.1:1"], "token": token})
    assert isinstance(found.definition, RegistryConnection)
    with pytest.raises(SecretMissing, match="no header can hold") as refused:
        httpx_options(found.definition, found.reader)
    assert token not in str(refused.value)


def test_a_bucket_gets_no_credentials_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-the-service")
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:9")
    found = used({"type": "s3", "bucket": "lake", "access_key_id": "id", "secret_access_key": SECRET, "path_style": False})
    assert isinstance(found.definition, S3Connection)
    options = obstore_options(found.definition, found.reader)
    assert options.credentials is not None
    assert options.credentials() == {"access_key_id": "id", "secret_access_key": SECRET, "token": None, "expires_at": None}
    assert options.config["endpoint"] == "https://lake.s3.us-east-1.amazonaws.com"
    assert SECRET not in repr(options)
    assert SECRET not in repr(options.store(1.0))
    bare = used({"type": "s3", "bucket": "lake"})
    assert isinstance(bare.definition, S3Connection)
    assert obstore_options(bare.definition, bare.reader).config["skip_signature"] is True


def test_postgres_gets_files_that_nobody_else_can_read_and_that_are_gone_afterwards(issued: Issued) -> None:
    tls = {"ca": issued.ca, "certificate": issued.certificate, "key": issued.key}
    found = used({"type": "postgres", "host": "127.0.0.1", "database": "d", "username": "u", "password": SECRET, "tls": tls})
    assert isinstance(found.definition, PostgresConnection)
    with psycopg_options(found.definition, found.reader) as options:
        paths = [Path(str(options[name])) for name in ("sslrootcert", "sslcert", "sslkey")]
        assert [path.read_text() for path in paths] == [issued.ca, issued.certificate, issued.key]
        assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
        assert (options["sslmode"], options["password"]) == ("verify-full", SECRET)
    assert not any(path.exists() for path in paths)
    plain = used({"type": "postgres", "host": "[::1]", "database": "d", "username": "u"})
    assert isinstance(plain.definition, PostgresConnection)
    with psycopg_options(plain.definition, plain.reader) as options:
        assert (options["host"], options["password"], options["passfile"], options["sslmode"]) == (
            "::1",
            "",
            "/dev/null",
            "disable",
        )


def test_what_is_used_may_reach_only_hosts_of_the_setting() -> None:
    with pytest.raises(SourceUnavailable, match="SLACKWATER_CONNECTION_HOSTS"):
        used(SCRAM, SLACKWATER_CONNECTION_HOSTS="*.example.com")
    assert used(SCRAM, SLACKWATER_CONNECTION_HOSTS="127.0.0.0/8").definition == read_connection(SCRAM)


def test_a_key_of_another_service_is_said_at_use() -> None:
    with pytest.raises(SourceUnavailable, match=r"connection 'orders': /sasl/password is encrypted with a key") as refused:
        resolved(stored(SCRAM), SecretSources.of({"SLACKWATER_SECRET_KEY": OLD}))
    assert SECRET not in str(refused.value)


def test_what_surrounds_a_process_shows_nothing_and_travels_nowhere() -> None:
    around = SecretSources.of({"SLACKWATER_SECRET_KEY": NEW, "SLACKWATER_SECRET_X": SECRET})
    assert SECRET not in repr(around)
    assert NEW not in repr(around) + repr(around.keys)
    with pytest.raises(TypeError):
        pickle.dumps(around)


def test_hosts_of_a_definition_are_all_that_it_connects_to() -> None:
    sasl = {"mechanism": "OAUTHBEARER", "token_url": "http://169.254.169.254/t", "client_id": "c", "client_secret": SECRET}
    with pytest.raises(SourceUnavailable, match="link-local"):
        used({"type": "kafka", "bootstrap": "127.0.0.1:1", "sasl": sasl})
    assert HostBounds() == HostBounds.of(" , ")
