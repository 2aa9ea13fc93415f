"""A broker that asks who connects: TLS with PLAIN and SCRAM beside a plain listener for whoever runs it, and rules of who may read what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined] # the package names them so in its documentation
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.kafka.broker import Broker, free_ports, running
from tests.kafka.topics import WAIT_S, Cluster
from tests.unit.connections.certificates import Issued, issue

USER = "reader"
_SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


@dataclass
class Secured:
    """A broker with its certificates and passwords.

    Attributes:
        broker: its plain listener is for administrators.
        bootstrap: of the listener with TLS and SASL.
        issued: its certificate and who issued it.
        passwords: of ``USER``, by mechanism.
    """

    broker: Broker
    bootstrap: str
    issued: Issued
    passwords: dict[str, str]
    cluster: Cluster = field(init=False)

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.broker.bootstrap)

    def connection(self, mechanism: str, password: str | None = None, **tls: Any) -> dict[str, Any]:
        """Return what to PUT as a connection."""
        return {
            "type": "kafka",
            "bootstrap": self.bootstrap,
            "tls": {"ca": self.issued.ca, **tls},
            "sasl": {"mechanism": mechanism, "username": USER, "password": password or self.passwords[mechanism]},
        }

    def allow(self, topic: str) -> None:
        """Let ``USER`` read a topic."""
        binding = AclBinding(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{USER}", "*", AclOperation.READ, AclPermissionType.ALLOW
        )  # fmt: skip
        self.cluster.admin.create_acls([binding])[binding].result(WAIT_S)


@contextmanager
def secured(passwords: dict[str, str]) -> Iterator[Secured]:
    """Run one for the length of the block; ``passwords`` are those of ``USER``, by mechanism: PLAIN, and any of SCRAM."""
    (port,) = free_ports(1)
    issued = issue("127.0.0.1")
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    lines = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": _one_line(issued.certificate + issued.ca),
        "ssl.keystore.key": _one_line(issued.key),
        "sasl.enabled.mechanisms": ",".join(passwords),
        "listener.name.secured.plain.sasl.jaas.config": f'{plain} required user_{USER}="{passwords["PLAIN"]}";',
        **{
            f"listener.name.secured.{name.lower()}.sasl.jaas.config": f"{scram} required;" for name in passwords if name in _SCRAM
        },
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with running(lines, listeners={"SECURED": ("SASL_SSL", port)}) as broker:
        found = Secured(broker, f"127.0.0.1:{port}", issued, passwords)
        for name in passwords.keys() & _SCRAM.keys():
            info = ScramCredentialInfo(_SCRAM[name], 4_096)
            change = UserScramCredentialUpsertion(USER, info, passwords[name].encode())
            found.cluster.admin.alter_user_scram_credentials([change])[USER].result(WAIT_S)
        yield found


def _one_line(pem: str) -> str:
    return pem.replace("\n", "\\n")
