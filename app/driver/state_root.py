"""The directory in which a driver keeps the state of queries, and the id that tells it from every other one.

Beside it stands how far the database had come when a driver last looked (``database.json``): see ``engine.postgres.incarnation``.
The id is in ``root.json``. A query notes the root of its last launch, and only drivers of that root take it: one that looks elsewhere would
find nothing and take that for damage.
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
    """``root.json`` is not what was written."""


@dataclass(frozen=True, slots=True)
class StateRoot:
    """A directory with its id.

    Attributes:
        path: holds a directory for each query, and in it one for each checkpoint.
    """

    path: Path
    id: UUID

    @classmethod
    def open(cls, path: Path, store: StateStore) -> StateRoot:
        """Read the id of a directory, or of the object store that has the state; the first driver that comes gives it one.

        An object store gets the id of the directory that had the state before: its queries may be taken by drivers of the store.

        Args:
            path: see above; with an object store it has nothing that another host would need.
            store: where the segments are.

        Raises:
            StateUnavailable: the object store cannot be reached.
            OSError: the directory cannot be made, read or written.
            StateRootDamaged: the file is there and cannot be read.
        """
        path.mkdir(parents=True, exist_ok=True)
        file = path / ROOT_FILE
        if not file.exists():
            _make(file)
        if not isinstance(store, Objects):
            return cls(path, _id_of(file, file.read_bytes()))
        return cls(path, _id_of(f"{store}/{ROOT_FILE}", _made_in(store, file)))

    def last_mark(self) -> Mark | None:
        """Return how far the database had come when a driver of this root last looked; None where that is not known."""
        try:
            return Mark(**json.loads((self.path / SEEN).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None  # it only adds to what the database itself tells

    def note(self, mark: Mark) -> None:
        """Keep how far the database has come. It only adds to what the database itself tells, so a full disk is no reason to end."""
        try:
            replace(self.path / SEEN, json.dumps(asdict(mark)).encode())
        except OSError as error:
            log.warning("mark_not_kept", error=str(error))


def _make(file: Path) -> None:
    """Give a directory its id; of two drivers that start together one wins."""
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
    """Return what an object store says; of two drivers that give it an id together one wins."""
    try:
        return store.get(ROOT_FILE)
    except StateCorrupt:  # it has none
        store.put(ROOT_FILE, file.read_bytes(), is_new=True)
        return store.get(ROOT_FILE)


def _id_of(file: Path | str, content: bytes) -> UUID:
    try:
        return root_id(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateRootDamaged(
            f"{file} is damaged: it must hold the id of this directory, as queries have noted it (`slackwater doctor` tells which). "
            'Bring it back from a copy, or write {"format": 1, "id": "<that id>"} into it'
        ) from error
