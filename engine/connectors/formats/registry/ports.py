"""What readers and writers ask a schema registry, and how it fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from engine.errors import ExternalError, UserError

SchemaKind = Literal["AVRO", "PROTOBUF", "JSON"]


class RegistryUnavailable(ExternalError):
    """The registry gives no answer, or one that says to come back: the batch is read again later."""

    code = "registry_unavailable"
    retryable = True


class RegistryRefused(UserError):
    """The registry answers and refuses: wrong credentials, an incompatible schema, a schema that it calls invalid."""

    code = "registry_refused"


class SchemaUnknown(UserError):
    """The registry has no schema of this number: what says so cannot be read, now or later."""

    code = "unknown_schema"


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry has it.

    Attributes:
        number: its id.
        kind: its language.
        text: what it says.
        references: name and text of what it refers to, each behind those that it uses itself.
    """

    number: int
    kind: SchemaKind
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaStore(Protocol):
    """Asks a registry, and remembers."""

    def by_number(self, number: int) -> RegisteredSchema:
        """Return a schema.

        Raises:
            SchemaUnknown: there is none of this number.
            RegistryUnavailable: nobody can say.
            RegistryRefused: it may not be asked.
        """
        ...

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Return the number of a schema under a subject, which is given one if it has none. ``schema.number`` does not count.

        Raises:
            RegistryRefused: the schema does not fit the subject's compatibility.
            RegistryUnavailable: nobody can say.
        """
        ...


class _NoRegistry:
    """Stands where no registry is set."""

    def by_number(self, number: int) -> RegisteredSchema:
        raise RegistryRefused(f"a record names schema {number}, and no registry is set; give registry.url")

    def register(self, subject: str, schema: RegisteredSchema) -> int:  # noqa: ARG002 - a port's
        raise RegistryRefused(f"the schema of {subject} cannot be registered, for no registry is set; give registry.url")


NO_REGISTRY: SchemaStore = _NoRegistry()
