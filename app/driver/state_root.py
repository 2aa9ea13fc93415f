"""The state root: the directory with the state of queries, and its unique id.

The id is in ``root.json``. A query's row has the root of its last launch, and only drivers of that root claim it: a driver of another root would
find no state and report it as damaged. ``database.json`` has the newest mark of the database that a driver saw
(``engine.postgres.incarnation``).
"""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import UUID

import structlog

from app.catalog.stored.state_files import ROOT_FILE, root_id
from engine.errors import StateCorrupt
from engine.postgres.incarnation import Mark
from engine.state.segments.files import replace, sync
from engine.state.segments.objects import Objects
from engine.state.segments.ports import StateStore

SEEN = "database.json"
log = structlog.stdlib.get_logger(__name__)


class StateRootDamaged(Exception):
    """``root.json`` does not have its original content."""


@dataclass(frozen=True, slots=True)
class StateRoot:
    """A directory with its id.

    Attributes:
        path: has a directory for each query, and in it one for each checkpoint.
    """

    path: Path
    id: UUID

    @classmethod
    def open(cls, path: Path, store: StateStore) -> StateRoot:
        """Read the id of a directory, or of the object store with the state; the first driver creates it.

        An object store gets the id of the directory that had the state before, so that drivers of the store may claim its queries.

        Args:
            path: of the directory; with an object store, it has nothing that another host would need.
            store: has the segments.

        Raises:
            StateUnavailable: the object store is unreachable.
            OSError: the directory cannot be created, read or written.
            StateRootDamaged: the file exists and cannot be read.
        """
        path.mkdir(parents=True, exist_ok=True)
        file = path / ROOT_FILE
        if not file.exists():
            _make(file)
        if not isinstance(store, Objects):
            return cls(path, _id_of(file, file.read_bytes()))
        return cls(path, _id_of(f"{store}/{ROOT_FILE}", _made_in(store, file)))

    def last_mark(self) -> Mark | None:
        """Return the newest mark of the database that a driver of this root saw; None if unknown."""
        try:
            return Mark(**json.loads((self.path / SEEN).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None  # the mark is only an additional check

    def note(self, mark: Mark) -> None:
        """Store the newest mark of the database. It is only an additional check, so a full disk does not stop the driver."""
        try:
            replace(self.path / SEEN, json.dumps(asdict(mark)).encode())
        except OSError as error:
            log.warning("mark_not_kept", error=str(error))


def _make(file: Path) -> None:
    """Create the id of a directory; if two drivers start together, one wins."""
    draft = file.with_name(f".{ROOT_FILE}.{uuid.uuid4().hex}")
    with draft.open("w") as content:
        content.write(json.dumps({"format": 1, "id": str(uuid.uuid4())}))
        content.flush()
        os.fsync(content.fileno())
    try:
        os.link(draft, file)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    sync(file.parent)


def _made_in(store: Objects, file: Path) -> bytes:
    """Return the content in an object store; if two drivers create it together, one wins."""
    try:
        return store.get(ROOT_FILE)
    except StateCorrupt:  # it has no file yet
        store.put(ROOT_FILE, file.read_bytes(), is_new=True)
        return store.get(ROOT_FILE)


def _id_of(file: Path | str, content: bytes) -> UUID:
    try:
        return root_id(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateRootDamaged(
            f"{file} is damaged: it must have the id of this directory, as queries have recorded it (`slackwater doctor` shows it). "
            'Restore it from a copy, or write {"format": 1, "id": "<that id>"} into it'
        ) from error
