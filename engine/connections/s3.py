"""Buckets of S3 and of systems with its protocol, and obstore's options for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self

from obstore.store import S3Store
from pydantic import Field, model_validator

from engine.connections.secret_sources import SecretReader
from engine.definition.connections.definition import Connection, Matching, Url, User, endpoint_of_url
from engine.definition.connections.hosts import Endpoint
from engine.definition.connections.secret import Secret

_BUCKET: Final = Matching(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "is a bucket's name: 3 to 63 of a-z, 0-9, '.' and '-'")
_REGION: Final = Matching(r"[a-z0-9-]{1,63}", "is a region's name such as eu-central-1")


class S3Connection(Connection):
    """A bucket."""

    type: Literal["s3"] = Field(description="Which kind of connection.")
    bucket: Annotated[str, _BUCKET] = Field(description="Its name.", examples=["lake"])
    region: Annotated[str, _REGION] = Field(default="us-east-1", description="Of the bucket.", examples=["eu-central-1"])
    endpoint: Url | None = Field(
        default=None,
        description="Of another service than AWS; null: AWS in `region`.",
        examples=["https://minio.example.com:9000"],
    )
    path_style: bool = Field(default=True, description="Whether the bucket stands in the path, else in the name of the host.")
    access_key_id: User | None = Field(
        default=None, description="With `secret_access_key`; null: requests are not signed.", examples=["AKIAIOSFODNN7EXAMPLE"]
    )
    secret_access_key: Secret | None = Field(
        default=None, description="Of `access_key_id`.", examples=["env:SLACKWATER_SECRET_LAKE"]
    )
    session_token: Secret | None = Field(
        default=None, description="Of credentials for some hours.", examples=["file:lake/session_token"]
    )

    @model_validator(mode="after")
    def _has_whole_credentials(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("`access_key_id` and `secret_access_key` go together: give both or none")
        if self.session_token is not None and self.access_key_id is None:
            raise ValueError("`session_token` is of an `access_key_id`: give that as well, or leave it out")
        return self

    @property
    def url(self) -> str:
        """The address of requests. It is always set, because the client would otherwise use ``AWS_ENDPOINT`` of the environment."""
        given = f"https://s3.{self.region}.amazonaws.com" if self.endpoint is None else self.endpoint
        scheme, _, rest = given.partition("://")
        return given if self.path_style else f"{scheme}://{self.bucket}.{rest}"

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        return [endpoint_of_url(self.url)]


@dataclass(frozen=True, slots=True)
class ObstoreOptions:
    """The options of an obstore store.

    Attributes:
        config: of the place.
        credentials: called for each request. It takes precedence over the environment: else a token of the service's own role
            (``AWS_SESSION_TOKEN``) would go to any host in a definition.
    """

    bucket: str
    config: dict[str, Any]
    credentials: Callable[[], dict[str, str | None]] | None = field(repr=False)

    def store(self, timeout_s: float, retries: int = 3) -> S3Store:
        """Return a store."""
        return S3Store(
            self.bucket,
            config=self.config,  # type: ignore[arg-type]  # a TypedDict that depends on the version
            credential_provider=self.credentials,  # type: ignore[arg-type]  # same
            client_options={"allow_http": self.config["endpoint"].startswith("http:"), "timeout": f"{timeout_s:g}s"},
            retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=timeout_s * (retries + 1))},
        )


def obstore_options(definition: S3Connection, reader: SecretReader) -> ObstoreOptions:
    """Return obstore's options for a connection. They hold secrets: make them where the store is made.

    Raises:
        SecretMissing: a reference has no target.
    """
    config: dict[str, Any] = {
        "region": definition.region,
        "endpoint": definition.url,
        "virtual_hosted_style_request": not definition.path_style,
    }
    if definition.access_key_id is None or definition.secret_access_key is None:
        return ObstoreOptions(definition.bucket, {**config, "skip_signature": True}, None)
    given = {
        "access_key_id": definition.access_key_id,
        "secret_access_key": reader.text(definition.secret_access_key),
        "token": None if definition.session_token is None else reader.text(definition.session_token),
        "expires_at": None,
    }
    return ObstoreOptions(definition.bucket, config, lambda: given)


def forget_own_credentials() -> None:
    """Remove the variables from this process's environment that S3 clients use beside a connection's settings.

    A session token of the service's own role (``AWS_SESSION_TOKEN``) would otherwise go to any host in a definition. Only for processes that
    reach buckets by connections alone: obstore can be told to ignore the environment (``ObstoreOptions``), Delta's client cannot.
    """
    for name in [name for name in os.environ if name.upper().startswith("AWS_")]:
        del os.environ[name]
