"""Postgres databases of users, and psycopg's options for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Final, Literal

from pydantic import Field

from engine.connections.certificates import as_files
from engine.connections.secret_sources import SecretReader
from engine.definition.connections.definition import Connection, Host, Matching, Tls, User
from engine.definition.connections.hosts import Endpoint
from engine.definition.connections.secret import Secret

APPLICATION: Final = "slackwater"


class PostgresConnection(Connection):
    """A database. Other options of libpq are not allowed: some of them read files and the environment."""

    type: Literal["postgres"] = Field(description="Which kind of connection.")
    host: Host = Field(description="Name or address; no socket.", examples=["db.example.com"])
    port: Annotated[int, Field(ge=1, le=65_535)] = Field(default=5432, description="Where it listens.")
    database: Annotated[str, Matching(r"[^\x00]{1,63}", "has 1 to 63 characters, none of them U+0000")] = Field(
        description="Its name.", examples=["shop"]
    )
    username: User = Field(description="Who asks.", examples=["slackwater"])
    password: Secret | None = Field(
        default=None,
        description="null: a certificate identifies the client (`tls.certificate`).",
        examples=["env:SLACKWATER_SECRET_SHOP"],
    )
    tls: Tls | None = Field(default=None, description="null: no TLS.")

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        return [Endpoint(self.host.strip("[]"), self.port)]


@contextmanager
def psycopg_options(definition: PostgresConnection, reader: SecretReader) -> Iterator[dict[str, str | int]]:
    """Provide the keyword arguments of ``psycopg.connect`` during the block in which the connection is opened.

    Every option that libpq would take from the environment or the home directory is set, so that the service's own credentials are not used.

    Raises:
        SecretMissing: a reference has no target.
    """
    options: dict[str, str | int] = {
        "host": definition.host.strip("[]"),
        "port": definition.port,
        "dbname": definition.database,
        "user": definition.username,
        "password": "" if definition.password is None else reader.text(definition.password),
        "hostaddr": "",  # else libpq uses PGHOSTADDR
        "passfile": "/dev/null",
        "application_name": APPLICATION,
        "gssencmode": "disable",
        "options": "",
        "target_session_attrs": "any",
    }
    tls = definition.tls
    if tls is None:
        yield {**options, "sslmode": "disable"}
        return
    with as_files() as path_of:
        options["sslmode"] = "verify-full" if tls.verify_host else "verify-ca"
        options["sslrootcert"] = "system" if tls.ca is None else path_of(reader.public(tls.ca))
        options["sslcertmode"] = "disable"
        if tls.certificate is not None and tls.key is not None:
            options["sslcertmode"] = "allow"
            options["sslcert"] = path_of(reader.text(tls.certificate))
            options["sslkey"] = path_of(reader.text(tls.key))
            options["sslpassword"] = "" if tls.key_password is None else reader.text(tls.key_password)
        yield options
