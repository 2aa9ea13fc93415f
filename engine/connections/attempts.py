"""One request to each kind of system, by the library that will use it: does it answer, and does it accept the credentials?"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import httpx
import obstore
import psycopg
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from obstore.exceptions import BaseError

from engine.connections.kafka import KafkaConnection, librdkafka_options, silent_logger
from engine.connections.kinds import AnyConnection
from engine.connections.postgres import PostgresConnection, psycopg_options
from engine.connections.registry import RegistryConnection, httpx_options
from engine.connections.s3 import S3Connection, obstore_options
from engine.connections.secret_sources import SecretReader

Reason: TypeAlias = Literal[
    "name_not_resolved", "refused", "unreachable", "timeout", "tls", "authentication", "not_allowed", "not_found",
    "unexpected_answer", "host_not_allowed", "secret_unavailable", "failed",
]  # fmt: skip

_STEP_S: Final = 0.5
"""librdkafka retries for ever; after this time we check why there is no answer yet.

A repeated request loses the answer that is on its way, so each one waits twice as long as the one before.
"""

_MOST_BYTES: Final = 1 << 20
_SHOWN: Final = 4_000
_TLS: Final = re.compile(r"ssl|tls|certificate", re.IGNORECASE)


class Failed(Exception):
    """The attempt did not succeed; the text says why, and what to do if that is known.

    Attributes:
        reason: one word for it.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason: Reason = reason


def attempt(definition: AnyConnection, reader: SecretReader, most_s: float) -> str:
    """Send one request.

    Returns:
        What answered.

    Raises:
        Failed: there was no answer, or not the expected one.
        SecretMissing: a reference has no target.
        CertificateUnreadable: a text is no PEM.
    """
    match definition:
        case KafkaConnection():
            return _kafka(definition, reader, most_s)
        case RegistryConnection():
            return _registry(definition, reader, most_s)
        case S3Connection():
            return _s3(definition, reader, most_s)
        case PostgresConnection():
            return _postgres(definition, reader, most_s)


# librdkafka's own errors have names with a leading underscore; there are no other names.
_KAFKA_REASONS: Final[Mapping[int, Reason]] = {
    KafkaError._AUTHENTICATION: "authentication",  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED: "authentication",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "authentication",
    KafkaError.ILLEGAL_SASL_STATE: "authentication",
    KafkaError._SSL: "tls",  # noqa: SLF001
    KafkaError._RESOLVE: "name_not_resolved",  # noqa: SLF001
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "not_allowed",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "not_allowed",
}
_KAFKA_WORDS: Final[Mapping[Reason, str]] = {
    "authentication": "the broker does not accept the credentials; correct `sasl`",
    "tls": "TLS fails; correct `tls`, or leave it out where the listener has none",
    "name_not_resolved": "a name of a broker is not known here",
    "not_allowed": "the broker accepts the credentials, but they give no right to look",
}


def _kafka(definition: KafkaConnection, reader: SecretReader, most_s: float) -> str:
    errors: list[KafkaError] = []
    options: dict[str, Any] = {
        **librdkafka_options(definition, reader), "error_cb": errors.append, "log_level": 3, "client.id": "slackwater",
    }  # fmt: skip
    try:
        client = AdminClient(options, logger=silent_logger())
    except KafkaException as error:
        raise Failed(
            "tls" if _TLS.search(str(error)) else "failed", f"the client cannot be made: {_short(_kafka_text(error))}"
        ) from None
    end, step_s = time.monotonic() + most_s, _STEP_S
    while True:
        try:
            found = client.list_topics(timeout=max(0.1, min(step_s, end - time.monotonic())))
        except KafkaException as error:
            client.poll(0)  # adds errors to the list
            _raise_decided([*errors, error.args[0]], is_over=time.monotonic() >= end)
            step_s *= 2
        else:
            return f"{len(found.brokers)} brokers, {len(found.topics)} topics"


def _raise_decided(errors: list[KafkaError], *, is_over: bool) -> None:
    """Raise the client's final error; return if it still retries.

    Raises:
        Failed: see there.
    """
    for error in errors:
        reason = _KAFKA_REASONS.get(error.code(), "tls" if _HANDSHAKE.search(error.str()) else None)
        if reason is not None:
            raise Failed(reason, f"{_KAFKA_WORDS[reason]} ({_short(error.str())})") from None
    if is_over:
        raise Failed("timeout", f"no broker answers in Kafka's protocol ({_short(errors[0].str())})") from None


_HANDSHAKE: Final = re.compile(r"handshake|SSL_|SSL routines|ssl/tls alert|security\.protocol")


def _kafka_text(error: KafkaException) -> str:
    first = error.args[0] if error.args else error
    return first.str() if isinstance(first, KafkaError) else str(first)


def _registry(definition: RegistryConnection, reader: SecretReader, most_s: float) -> str:
    options, last = httpx_options(definition, reader), Failed("failed", "there is no URL")
    for url in options.urls:
        try:
            most_url_s = most_s / len(options.urls)
            end = time.monotonic() + most_url_s
            with options.client(most_url_s) as client, client.stream("GET", f"{url}/subjects") as response:
                size = 0
                # Uncompressed, because a compressed answer could expand to any size.
                for part in response.iter_raw():
                    size += len(part)
                    if size > _MOST_BYTES:
                        break
                    if time.monotonic() > end:
                        raise Failed("timeout", f"{url} does not answer in time")
                _check_status(response.status_code, url)
                return f"the registry at {url} answers"
        except Failed as error:
            if error.reason in ("authentication", "not_allowed"):
                raise
            last = error
        except httpx.TimeoutException:
            last = Failed("timeout", f"{url} does not answer in time")
        except httpx.HTTPError as error:
            is_tls = _TLS.search(str(error)) is not None
            last = Failed(
                "tls" if is_tls else "failed",
                f"{url}: {'TLS fails; correct `tls`' if is_tls else 'no answer'} ({_short(str(error))})",
            )
    raise last


def _check_status(status: int, url: str) -> None:
    if status == httpx.codes.UNAUTHORIZED:
        raise Failed(
            "authentication", f"{url} does not accept the credentials (401); correct `username` and `password`, or `token`"
        )
    if status == httpx.codes.FORBIDDEN:
        raise Failed("not_allowed", f"{url} accepts the credentials, but they give no right to look (403)")
    if status != httpx.codes.OK:
        raise Failed("unexpected_answer", f"{url}/subjects answers {status}: is that the URL of a schema registry?")


_S3_STATUS: Final = re.compile(r"status code: (\d{3})")
_S3_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_S3_WHO: Final = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")


def _s3(definition: S3Connection, reader: SecretReader, most_s: float) -> str:
    store = obstore_options(definition, reader).store(most_s, retries=0)
    try:
        next(iter(obstore.list(store, chunk_size=1)), None)  # one page: there may be millions
    except (BaseError, FileNotFoundError, PermissionError, OSError) as error:
        raise _s3_failure(definition, str(error)) from None
    return f"the bucket {definition.bucket} can be listed"


def _s3_failure(definition: S3Connection, text: str) -> Failed:
    status, code = _S3_STATUS.search(text), _S3_CODE.search(text)
    answer = f"{status.group(1)} {code.group(1) if code is not None else ''}".strip() if status is not None else ""
    if status is None:
        lowered = text.lower()
        if _TLS.search(text.replace(definition.url, "")):
            return Failed("tls", f"TLS fails at {definition.url}")
        is_late = "timeout" in lowered or "timed out" in lowered
        return Failed("timeout" if is_late else "failed", f"{definition.url} gives no answer that S3 gives")
    if status.group(1) == "401" or (code is not None and code.group(1) in _S3_WHO):
        return Failed(
            "authentication",
            f"{definition.url} does not accept the credentials ({answer}); correct `access_key_id` and `secret_access_key`",
        )
    if status.group(1) == "403":
        return Failed(
            "not_allowed",
            f"{definition.url} does not allow to list {definition.bucket}, or does not accept the credentials ({answer})",
        )
    if status.group(1) == "404":
        return Failed("not_found", f"{definition.url} has no bucket {definition.bucket} ({answer})")
    if status.group(1).startswith("5"):
        return Failed("failed", f"{definition.url} answers {answer}: it cannot serve now; try again later")
    return Failed("unexpected_answer", f"{definition.url} answers {answer}; correct `endpoint`, `region` or `path_style`")


_STATES: Final[Mapping[str, tuple[Reason, str]]] = {
    "28P01": ("authentication", "the server does not accept the password; correct `username` and `password`"),
    "28000": ("authentication", "the server does not accept the credentials, from here or without TLS; see its pg_hba.conf"),
    "3D000": ("not_found", "the server has no such database; correct `database`"),
    "42501": ("not_allowed", "the user may not connect to this database"),
    "53300": ("failed", "the server has no connection left"),
}


def _postgres(definition: PostgresConnection, reader: SecretReader, most_s: float) -> str:
    try:
        with (
            psycopg_options(definition, reader) as options,
            psycopg.connect(**options, connect_timeout=max(2, int(most_s)), autocommit=True) as connection,  # type: ignore[arg-type]  # by name
        ):
            with _hung_up_after(connection.fileno(), most_s):
                connection.execute(f"SET statement_timeout = {max(100, int(most_s * 1000))}")
                connection.execute("SELECT 1")
            return f"Postgres {connection.info.server_version // 10_000}"
    except psycopg.OperationalError as error:
        raise _postgres_failure(error) from None
    except psycopg.Error as error:
        raise Failed("failed", f"the server refuses SELECT 1 ({error.sqlstate})") from None


@contextmanager
def _hung_up_after(file: int, seconds: float) -> Iterator[None]:
    """Shut a connection's socket down if the block takes too long: libpq waits for an answer without a limit."""
    own = socket.socket(fileno=os.dup(file))
    timer = threading.Timer(seconds, partial(own.shutdown, socket.SHUT_RDWR))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        own.close()


_SAID: Final[tuple[tuple[Callable[[str], bool], str], ...]] = (
    (lambda text: "password authentication failed" in text, "28P01"),
    (
        lambda text: (
            "pg_hba.conf" in text or "certificate authentication failed" in text or ("role" in text and "does not exist" in text)
        ),
        "28000",
    ),
    (lambda text: "database" in text and "does not exist" in text, "3D000"),
    (lambda text: "permission denied for database" in text, "42501"),
    (lambda text: "too many clients" in text or "remaining connection slots" in text, "53300"),
)
"""psycopg gives the reason for a refused connection only in the text."""


def _postgres_failure(error: psycopg.OperationalError) -> Failed:
    text = str(error)
    state = error.sqlstate or next((state for says, state in _SAID if says(text)), None)
    if state is not None and state in _STATES:
        return Failed(*_STATES[state])
    if "timeout" in text:
        return Failed("timeout", "the server does not answer in time")
    if re.search(r"SSL|certificate|sslmode", text):
        return Failed("tls", f"TLS fails; correct `tls`, or leave it out where the server has none ({_short(text)})")
    return Failed("failed", f"the server gives no answer that Postgres gives ({_short(text)})")


def _short(text: str) -> str:
    """Return a library's text, cut at a bound beyond every secret's length: callers first remove secrets, and then cut to the shown length."""
    return text if len(text) <= _SHOWN else "more than can be shown"
