"""All segments below a directory: what is there, and what goes. ``engine.state.segments.files`` has those of one task."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from engine.errors import STATE_CURE, DiskFull, ExternalError, StateCorrupt
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.state.segments.files import NO_SPACE, FileSegmentStore, make_directory, replace, sync
from engine.state.segments.ports import FIRST_SEGMENTS, OWNERS, SEGMENT_SUFFIX, Stored

_DEPTH: Final = 4
"""Of a segment's name, from the folder on: folder, stage, task, file."""

_DASHES_OF_UUID: Final = 4

_FOLDER_AT: Final = 2
"""Where a folder of segments stands in such a path: behind query and checkpoint."""

NEARLY_FULL_SHARE: Final = 0.03
NEARLY_FULL_BYTES: Final = 2 << 30
"""A disk with less room than both is nearly full: some minutes of a busy query."""


@dataclass(frozen=True, slots=True)
class Directories:
    """A ``StateStore`` of files.

    Attributes:
        root: of all queries, of one, or of one of its checkpoints; need not exist.
    """

    root: Path

    def __str__(self) -> str:
        return str(self.root)

    def below(self, name: str) -> Self:
        return type(self)(self.root / name)

    def task(self, folder: str, hashing: KeyHash = UNSEEDED) -> FileSegmentStore:
        return FileSegmentStore(self.root / folder, hashing=hashing)

    def listed(self) -> list[Stored]:
        found: list[Stored] = []
        try:
            self._list(self.root, (), found)
        except OSError as error:
            raise ExternalError(f"the state in {self.root} cannot be listed now: {error}") from error
        return found

    def _list(self, directory: Path, above: tuple[str, ...], found: list[Stored]) -> None:
        with suppress(FileNotFoundError), os.scandir(directory) as entries:
            for entry in entries:
                parts = (*above, entry.name)
                is_within = len(parts) >= _DEPTH and parts[-_DEPTH].startswith(FIRST_SEGMENTS)
                if is_within and entry.name.endswith(SEGMENT_SUFFIX):
                    with suppress(FileNotFoundError):
                        found.append(Stored("/".join(parts), entry.stat(follow_symlinks=False).st_size))
                elif not is_within and _may_hold_segments(parts) and entry.is_dir(follow_symlinks=False):
                    self._list(Path(entry.path), parts, found)

    def remove(self, names: Collection[str]) -> None:
        """See ``StateStore``. Directories that are empty then go as well."""
        for name in names:
            path = self.root / name
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise ExternalError(f"the state file {path} cannot be removed: {error.strerror}") from error
        for directory in {(self.root / name).parent for name in names}:
            self._remove_empty(directory)

    def _remove_empty(self, directory: Path) -> None:
        with suppress(OSError):  # it is not empty, or somebody writes into it
            while directory != self.root:
                directory.rmdir()
                directory = directory.parent

    def clear(self) -> None:
        self.remove([found.name for found in self.listed()])

    def owner(self, name: str) -> bytes | None:
        try:
            return self._owner(name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ExternalError(f"the state in {self.root} cannot be looked at now: {error}") from error

    def note_owner(self, name: str, content: bytes) -> None:
        """See ``StateStore``. Not synced: what is lost is noted again."""
        file = self._owner(name)
        try:
            make_directory(file.parent)
            replace(file, content)
        except OSError as error:
            raise ExternalError(f"{file} cannot be written: {error.strerror}") from error

    def forget_owner(self, name: str) -> None:
        with suppress(OSError):
            self._owner(name).unlink(missing_ok=True)

    def _owner(self, name: str) -> Path:
        return self.root / OWNERS / f"{name}.json"

    def copy(self, names: Collection[str], target: Self) -> None:
        """See ``StateStore``. Hard links where the file system has them: segments never change."""
        for name in names:
            source, copied = self.root / name, target.root / name
            try:
                make_directory(copied.parent)
                copied.unlink(missing_ok=True)
                try:
                    os.link(source, copied)
                except FileNotFoundError:
                    raise
                except OSError:
                    shutil.copyfile(source, copied)
                    sync(copied)
            except FileNotFoundError as error:
                raise StateCorrupt(f"the state file {source} is missing. {STATE_CURE}") from error
            except OSError as error:
                kind = DiskFull if error.errno in NO_SPACE else ExternalError
                raise kind(f"{copied} cannot be written: {error.strerror}. Free space, and try again") from error
        for directory in {(target.root / name).parent for name in names}:
            sync(directory)

    @property
    def is_nearly_full(self) -> bool:
        try:
            usage = shutil.disk_usage(self.root)
        except OSError:
            return False
        return usage.free < min(NEARLY_FULL_BYTES, usage.total * NEARLY_FULL_SHARE)


def _may_hold_segments(parts: tuple[str, ...]) -> bool:
    """Whether to look into a directory: folders of segments, their stages, and identities of queries and checkpoints above them."""
    return any(part.startswith(FIRST_SEGMENTS) for part in parts) or parts[-1].count("-") == _DASHES_OF_UUID


def is_of_segments(parts: Sequence[str]) -> bool:
    """Whether a path below the place of all queries is a folder of segments, or what is in one."""
    return len(parts) > _FOLDER_AT and parts[_FOLDER_AT].startswith(FIRST_SEGMENTS)
