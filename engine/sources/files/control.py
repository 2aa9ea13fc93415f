"""Directories as a connector of sources. The database holds the names of their files, but no content."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from engine.definition.sources.files import FilesConnector
from engine.errors import DefinitionInvalid, Problem
from engine.log.dropped_feeds import drop_feed
from engine.log.storage import Head, ensure_feed
from engine.plan.model import Feed, RelationSchema
from engine.postgres.postgres import Connection
from engine.records.inferred import Inferred
from engine.sources.control import FeedConflict, ServiceContext
from engine.sources.files.inferring import infer
from engine.sources.files.registry import place_of

PARTITIONS = 1


class FilesControl:
    """A ``Control`` of directories."""

    def check(self, feed: Feed, site: ServiceContext, relation: RelationSchema | None = None) -> None:  # noqa: ARG002 - the port's
        """See ``Control``. Since registration, a directory below the root may have become a link, or the root may have changed."""
        check_directory(place_of(feed).path, site.files_root)

    def infer(self, feed: Feed, site: ServiceContext, key: Sequence[str]) -> Inferred:
        """See ``Control``: by the newest files."""
        place = place_of(feed)
        check_directory(place.path, site.files_root)
        return infer(place, key)

    def register(self, connection: Connection, feed: Feed, model: FilesConnector) -> FeedConflict | None:  # noqa: ARG002 - the feed names all
        ensure_feed(connection, feed.log_feed, PARTITIONS)
        return None

    def change(self, connection: Connection, feed: Feed, model: FilesConnector) -> None:
        """See ``Control``: nothing has to be recorded."""

    def is_empty(self, connection: Connection, feed: Feed) -> bool:  # noqa: ARG002 - the port's
        """See ``Control``: only a driver looks into the directory."""
        return False

    def heads(self, connection: Connection, feeds: Collection[Feed]) -> Mapping[str, Sequence[Head]]:  # noqa: ARG002 - the port's
        """See ``Control``: positions in files do not count records."""
        return {}

    def delete(self, connection: Connection, feed: Feed) -> None:
        drop_feed(connection, feed.log_feed)


_POINTER = "/connector/path"


def check_directory(path: str, files_root: Path | None) -> None:
    """Refuse a directory that is not below ``files_root``, links resolved.

    Without a root none will do: on a machine of one's own a web page may be the one that asks.

    Raises:
        DefinitionInvalid: ``path_not_allowed``.
    """
    if files_root is None:
        raise _refused(
            "this service was started without SLACKWATER_FILES_ROOT, which names the directory below which sources may read files"
        )
    root = files_root.expanduser().resolve()
    if ".." in Path(path).parts or not Path(path).resolve().is_relative_to(root):
        raise _refused(
            f"sources read directories below {root} only, links resolved and without '..'; SLACKWATER_FILES_ROOT sets it"
        )


def _refused(detail: str) -> DefinitionInvalid:
    return DefinitionInvalid([Problem(_POINTER, "path_not_allowed", detail)])
