"""The port through which the service registers, changes, shows and deletes the feeds of sources. What queries read is in ``feeds``.

Statements run in the caller's transaction: what a request does to relations and to their feeds is one or nothing. Whatever lies outside of
the database is asked in ``check`` alone, before the transaction takes a lock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from engine.definition.sources.connector import ConnectorModel
from engine.log.storage import Head
from engine.plan.model import Feed, RelationSchema
from engine.postgres.postgres import Connection
from engine.records.inferred import Inferred

Model = TypeVar("Model", bound=ConnectorModel, contravariant=True)


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """What of the service connectors may use.

    Attributes:
        files_root: directories below it may be read; None: none may.
        dsn: of the service's database, which has the connections; None: there is none.
    """

    files_root: Path | None
    dsn: str | None = None


@dataclass(frozen=True, slots=True)
class Clash:
    """Why a source cannot join a feed that is there.

    Attributes:
        code: of ``app/errors/error_list.py``.
        detail: what differs.
        pointer: into the definition.
        cure: what to write there.
    """

    code: str
    detail: str
    pointer: str
    cure: str


class Control(Protocol[Model]):
    """What the service asks of a connector about its feeds."""

    def check(self, feed: Feed, site: ServiceContext, relation: RelationSchema | None = None) -> None:
        """Look at what a source names, before it is registered and again before each launch of a query that reads it.

        No lock is held and no transaction is open meanwhile, so it may ask other systems; it is bounded in time.

        Args:
            feed: where the records are.
            site: what may be used.
            relation: as which they are to be read, where a source is registered: some may be tried. None: they were registered before.

        Raises:
            DefinitionInvalid: it may not be read, or is not what the definition says.
            SourceUnavailable: it cannot be looked at now.
        """
        ...

    def infer(self, feed: Feed, site: ServiceContext, key: Sequence[str]) -> Inferred:
        """Propose columns for a source, from what its records' schema says or the newest of them hold; asked as ``check`` is.

        Args:
            feed: where the records are.
            site: what may be used.
            key: names of the key's columns as the definition has them; none: they may be proposed, too.

        Raises:
            DefinitionInvalid: nothing says what the columns are, or what ``check`` raises.
            SourceUnavailable: it cannot be looked at now.
        """
        ...

    def register(self, connection: Connection, feed: Feed, model: Model) -> Clash | None:
        """Make the feed's row in ``log.feed`` with its partitions, or join the one there is; returns why it cannot be joined."""
        ...

    def change(self, connection: Connection, feed: Feed, model: Model) -> None:
        """Take over what of a registered source may change in place; only its relation reads the feed."""
        ...

    def is_empty(self, connection: Connection, feed: Feed) -> bool:
        """Whether there was never a record. Where that cannot be known, there was one."""
        ...

    def heads(self, connection: Connection, feeds: Collection[Feed]) -> Mapping[str, Sequence[Head]]:
        """Return, by ``log_feed``, where partitions begin and end as the database knows; feeds of which it does not are left out."""
        ...

    def delete(self, connection: Connection, feed: Feed) -> None:
        """Forget a feed that no relation reads any more. What is elsewhere stays there."""
        ...
