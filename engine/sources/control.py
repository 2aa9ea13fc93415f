"""The port through which the service registers, changes, shows and deletes the feeds of sources. ``feeds`` is the port for queries.

Statements run in the caller's transaction, so a request changes relations and their feeds together or not at all. Only ``check`` asks
systems outside the database, before the transaction takes a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from engine.definition.sources.connector import ConnectorModel
from engine.log.storage import Head
from engine.plan.model import Feed, RelationSchema
from engine.postgres.postgres import Connection
from engine.records.inferred import Inferred
from engine.sources.feeds import FeedReader

Model = TypeVar("Model", bound=ConnectorModel, contravariant=True)


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The parts of the service that connectors may use.

    Attributes:
        files_root: directories below it may be read; None: no directory may.
        dsn: of the service's database, which has the connections; None: there is none.
    """

    files_root: Path | None
    dsn: str | None = None


@dataclass(frozen=True, slots=True)
class FeedConflict:
    """Why a source cannot join an existing feed.

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
    """The service's questions to a connector about its feeds."""

    def check(self, feed: Feed, site: ServiceContext, relation: RelationSchema | None = None) -> None:
        """Check what a source names, before its registration and again before each launch of a query that reads it.

        No lock is held and no transaction is open during the call, so it may ask other systems; it is bounded in time.

        Args:
            feed: where the records are.
            site: what may be used.
            relation: of a source that is registered: some records may be tried with it. None: the source is registered already.

        Raises:
            DefinitionInvalid: it may not be read, or differs from the definition.
            SourceUnavailable: it cannot be checked now.
        """
        ...

    def infer(self, feed: Feed, site: ServiceContext, key: Sequence[str]) -> Inferred:
        """Propose columns for a source, from the schema of its records or from the newest records; called under the conditions of ``check``.

        Args:
            feed: where the records are.
            site: what may be used.
            key: names of the key's columns in the definition; empty: they may be proposed, too.

        Raises:
            DefinitionInvalid: nothing shows the columns; or an error of ``check``.
            SourceUnavailable: it cannot be checked now.
        """
        ...

    def register(self, connection: Connection, feed: Feed, model: Model) -> FeedConflict | None:
        """Make the feed's row in ``log.feed`` with its partitions, or join the existing one; return why it cannot be joined."""
        ...

    def change(self, connection: Connection, feed: Feed, model: Model) -> None:
        """Apply the changes that a registered source allows in place; only its relation reads the feed."""
        ...

    def is_empty(self, connection: Connection, feed: Feed) -> bool:
        """Whether there was never a record; false if this cannot be known."""
        ...

    def heads(self, connection: Connection, feeds: Collection[Feed]) -> Mapping[str, Sequence[Head]]:
        """Return, by ``log_feed``, where partitions begin and end as the database knows; feeds without known ends are left out."""
        ...

    def delete(self, connection: Connection, feed: Feed) -> None:
        """Delete a feed that no relation reads any more. Data in other systems stays there."""
        ...


Open = Callable[[str, Feed, Sequence[RelationSchema]], FeedReader]
"""DSN of the database, feed, the relations that read the feed: their event times date the chunks."""


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector.

    Attributes:
        open: returns the reader of a feed.
        control: of its feeds.
        ends_sql: an expression over the row ``f`` of ``log.feed`` that gives partition → position after the newest known record, as ``jsonb``;
            None: ``log.head`` has it.
    """

    open: Open
    control: Control[Any]
    ends_sql: str | None = None
