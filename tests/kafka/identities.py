"""A broker that knows who asks by tokens (SASL OAUTHBEARER over TLS) and by certificates (mTLS), each on a listener of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (  # type: ignore[attr-defined] # the package names them so in its documentation
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.kafka.broker import Broker, free_ports, running
from tests.kafka.token_issuer import AUDIENCE, ISSUER, SCOPE, TokenIssuer, issuing
from tests.kafka.topics import WAIT_S, Cluster
from tests.unit.connections.certificates import Issued, issue

CLIENT: Final = "by-token"
HOLDER: Final = "by-certificate"
PRINCIPALS: Final = {"tokens": f"User:{CLIENT}", "certificates": f"User:CN={HOLDER}"}
"""What the broker calls who asks, by the name of the listener."""

TOKEN_S: Final = 20
"""Lifetime of a token. The broker ends a connection whose token is over, unless its client brings another one (KIP-368)."""

_LOGIN: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
_VALIDATOR: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


@dataclass
class Identities:
    """A broker, and who may ask.

    Attributes:
        broker: its plain listener is for administrators.
        ports: of the listeners ``tokens`` and ``certificates``.
        issued: the broker's certificate, and the issuer's.
        holder: the client's certificate, of another authority.
    """

    broker: Broker
    ports: dict[str, int]
    issued: Issued
    holder: Issued
    issuer: TokenIssuer
    cluster: Cluster = field(init=False)

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.broker.bootstrap)

    def by_token(self, secret: str | None = None) -> dict[str, Any]:
        """Return what to PUT as a connection that asks with tokens."""
        sasl = {
            "mechanism": "OAUTHBEARER", "token_url": self.issuer.url, "client_id": CLIENT,
            "client_secret": secret or self.issuer.secrets[CLIENT], "scope": SCOPE,
        }  # fmt: skip
        return {"type": "kafka", "bootstrap": f"127.0.0.1:{self.ports['tokens']}", "tls": {"ca": self.issued.ca}, "sasl": sasl}

    def by_certificate(self, **tls: Any) -> dict[str, Any]:
        """Return what to PUT as a connection that asks with a certificate."""
        own = {"ca": self.issued.ca, "certificate": self.holder.certificate, "key": self.holder.key, **tls}
        return {
            "type": "kafka", "bootstrap": f"127.0.0.1:{self.ports['certificates']}",
            "tls": {name: value for name, value in own.items() if value is not None},
        }  # fmt: skip

    def allow(self, principal: str, kind: str, name: str, *operations: str) -> None:
        """Let somebody do something; names of groups and transactions are prefixes."""
        pattern = ResourcePatternType.LITERAL if kind == "TOPIC" else ResourcePatternType.PREFIXED
        bindings = [
            AclBinding(ResourceType[kind], name, pattern, PRINCIPALS[principal], "*", AclOperation[each], AclPermissionType.ALLOW)
            for each in operations
        ]
        for made in self.cluster.admin.create_acls(bindings).values():
            made.result(WAIT_S)


@contextmanager
def identities(secret: str) -> Iterator[Identities]:
    """Run a broker and an issuer for the length of the block; ``secret`` is the client's at the issuer."""
    ports = dict(zip(("tokens", "certificates"), free_ports(2), strict=True))
    issued, holder = issue("127.0.0.1"), issue(HOLDER)
    with (
        tempfile.TemporaryDirectory(prefix="slackwater-keys-") as directory,
        issuing(issued, {CLIENT: secret}, TOKEN_S) as issuer,
    ):
        keys = Path(directory) / "keys.json"
        keys.write_text(issuer.key_set())
        token = "listener.name.tokens.oauthbearer."
        lines = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _one_line(issued.certificate + issued.ca),
            "ssl.keystore.key": _one_line(issued.key),
            "listener.name.certificates.ssl.client.auth": "required",
            "listener.name.certificates.ssl.truststore.type": "PEM",
            "listener.name.certificates.ssl.truststore.certificates": _one_line(holder.ca),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            token + "sasl.jaas.config": _LOGIN,
            token + "sasl.server.callback.handler.class": _VALIDATOR,
            token + "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            token + "sasl.oauthbearer.expected.audience": AUDIENCE,
            token + "sasl.oauthbearer.expected.issuer": ISSUER,
            token + "connections.max.reauth.ms": "3600000",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        listeners = {"TOKENS": ("SASL_SSL", ports["tokens"]), "CERTIFICATES": ("SSL", ports["certificates"])}
        allowed = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}",)
        with running(lines, listeners=listeners, java_options=allowed) as broker:
            yield Identities(broker, ports, issued, holder, issuer)


def _one_line(pem: str) -> str:
    return pem.replace("\n", "\\n")
