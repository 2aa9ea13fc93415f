"""The directory in which a driver keeps the state of queries, and the id that tells it from every other one.

Beside it stands how far the database had come when a driver last looked (``database.json``): see ``engine.connectors.incarnation``.
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

from engine.connectors.incarnation import Mark

FILE = "root.json"
SEEN = "database.json"
_UUID = "*-*-*-*-*"


class StateRootDamaged(Exception):
    """``root.json`` is not what was written."""


@dataclass(frozen=True, slots=True)
class StateRoot:
    """A directory with its id.

    Attributes:
        path: holds a directory for each query, and in it one for each checkpoint.
        directories: ``<query id>/<checkpoint id>`` of the checkpoints that were there at the start.
    """

    path: Path
    id: UUID
    directories: tuple[str, ...] = ()

    @classmethod
    def open(cls, path: Path) -> StateRoot:
        """Read the id of a directory; the first driver that comes gives it one.

        Raises:
            OSError: the directory cannot be made, read or written.
            StateRootDamaged: the file is there and cannot be read.
        """
        path.mkdir(parents=True, exist_ok=True)
        file = path / FILE
        if not file.exists():
            draft = path / f".{FILE}.{uuid.uuid4().hex}"
            draft.write_text(json.dumps({"format": 1, "id": str(uuid.uuid4())}))
            try:
                os.link(draft, file)  # of two drivers that start together one wins
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        found = path.glob(f"{_UUID}/{_UUID}")
        return cls(path, _id_of(file), tuple(f"{one.parent.name}/{one.name}" for one in found))

    def seen(self) -> Mark | None:
        """Return how far the database had come when a driver of this root last looked; None where that is not known."""
        try:
            return Mark(**json.loads((self.path / SEEN).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None  # it only adds to what the database itself tells

    def note(self, mark: Mark) -> None:
        """Keep how far the database has come."""
        draft = self.path / f".{SEEN}.{os.getpid()}"
        draft.write_text(json.dumps(asdict(mark)))
        draft.replace(self.path / SEEN)


def _id_of(file: Path) -> UUID:
    try:
        return UUID(json.loads(file.read_bytes())["id"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateRootDamaged(
            f"{file} is damaged: it must hold the id of this directory, as queries have noted it (`slackwater doctor` tells which). "
            'Bring it back from a copy, or write {"format": 1, "id": "<that id>"} into it'
        ) from error
