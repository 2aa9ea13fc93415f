"""Finds new files in a directory, or files that wait for their writer, and registers them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from engine.definition.sources.files import FilesPlace
from engine.postgres.postgres import Connection
from engine.sources.files.growing_files import GrowingFiles
from engine.sources.files.registry import SETTLED_S, ChangedFile, ListedFile, list_files, register


class DirectoryListing(NamedTuple):
    """A directory's files at a moment (seconds since 1970)."""

    now_s: float
    files: Mapping[str, ListedFile]


@dataclass(slots=True)
class DirectoryWatch:
    """One reader's memory of a directory. It can be dropped at any time: then every file is examined again.

    Attributes:
        place: which directory, and in which format.
        growing: examines growth.
        clock: returns seconds since 1970.
    """

    place: FilesPlace
    growing: GrowingFiles
    clock: Callable[[], float] = time.time
    _files: Mapping[str, ListedFile] = field(default_factory=dict)
    _seen_at: dict[str, float] = field(default_factory=dict)
    _waiting: frozenset[str] = frozenset()

    def listing(self) -> DirectoryListing:
        """List the directory.

        Raises:
            SourceUnavailable: it cannot be read.
        """
        now_s = self.clock()  # before the listing, because the listing and the work after it may take long
        return DirectoryListing(now_s, list_files(Path(self.place.path)))

    def register(self, connection: Connection, feed_id: int, listing: DirectoryListing) -> None:
        """Register new files and growth.

        Raises:
            FileChanged, FileUnfit, SourceUnavailable: see ``registry.register``.
        """
        changed = self._changed(listing)
        while changed:
            found = register(connection, feed_id, self.place, changed, self.growing)
            self._waiting = found.waiting
            if found.is_whole:
                break
        self._files = listing.files

    def _changed(self, listing: DirectoryListing) -> dict[str, ChangedFile]:
        """Return the files with a new size, and those that waited for their writer.

        The file system's clock decides whether a file is settled, or ours if that one is ahead.
        """
        found: dict[str, ChangedFile] = {}
        for name, listed in listing.files.items():
            known = self._files.get(name)
            is_grown = known is None or known.size != listed.size
            seen_at = self._seen_at[name] = listing.now_s if is_grown else self._seen_at[name]
            if is_grown or name in self._waiting:
                found[name] = ChangedFile(listed.size, listing.now_s - min(listed.changed_at, seen_at) >= SETTLED_S)
        return found
