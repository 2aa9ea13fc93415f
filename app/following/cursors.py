"""The position of a follower of changes: the durable cursor that is also the id of every event. Pure.

``<identity>.<offset of partition 0>_<offset of partition 1>…``, then for each part of a stream to which queries append ``~<its
identity>.<its offset>``, and inside a snapshot ``.<key>``: base64url of the texts of the last row's key as a JSON list. Clients treat it as
opaque. During a snapshot, the client has the rows *up to that key* as of the offset. So a client may leave a snapshot and continue it behind
any row (``app.following.changes``).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from app.http.values import is_text

MAX_CURSOR_CHARS = 4_096
"""A cursor of 256 partitions with 10^14 records each, or of the longest key (1,024 bytes), is shorter. Headers can carry it too."""

_FORM = re.compile(r"([0-9a-f]{16})\.([0-9]{1,19}(?:_[0-9]{1,19})*)((?:~[0-9a-f]{16}\.[0-9]{1,19})*)(?:\.([A-Za-z0-9_-]+))?")
_MAX_OFFSET = 2**63 - 1


def identity_of(relation_id: UUID, feed_id: int, incarnation: UUID | None = None, rewound: UUID | None = None) -> str:
    """Return the identity of a log: it differs from earlier logs of the same name, and from the log before a restore.

    Args:
        relation_id: the relation whose changes the log has.
        feed_id: the log.
        incarnation: of the database (``engine.postgres.incarnation``); None: the first.
        rewound: random id of the last rewind of the query that writes the log; None: the query was never rewound.
    """
    text = f"{relation_id}/{feed_id}" if incarnation is None else f"{relation_id}/{feed_id}/{incarnation}"
    text = text if rewound is None else f"{text}/rewound/{rewound}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class ChangeCursor:
    """A position in a log of changes.

    Attributes:
        identity: of the log.
        offsets: next offset by partition, then by part.
        rows_after: inside a snapshot, the texts of the last row's key, empty before the first row; None: no snapshot to finish.
        parts: identities of the logs of the stream's parts.
    """

    identity: str
    offsets: tuple[int, ...]
    rows_after: tuple[str, ...] | None = None
    parts: tuple[str, ...] = ()

    @property
    def own(self) -> tuple[int, ...]:
        """The offsets by partition of the log itself."""
        return self.offsets[: len(self.offsets) - len(self.parts)]

    @property
    def by_part(self) -> dict[str, int]:
        """The offsets by identity of a part."""
        return dict(zip(self.parts, self.offsets[len(self.own) :], strict=True))

    def at(self, partition: int, offset: int) -> ChangeCursor:
        """Return this cursor with another next offset of one partition."""
        return replace(self, offsets=(*self.offsets[:partition], offset, *self.offsets[partition + 1 :]))

    def encode(self) -> str:
        before, behind = self.around(0)
        return f"{before}{self.offsets[0]}{behind}"

    def around(self, partition: int) -> tuple[str, str]:
        """Return the text of the cursor before and behind the offset of one partition."""
        texts = [f".{offset}" if not place else f"_{offset}" for place, offset in enumerate(self.own)]
        texts += [f"~{identity}.{offset}" for identity, offset in self.by_part.items()]
        first = texts[partition].rstrip("0123456789")
        key = "" if self.rows_after is None else f".{_encode_key(self.rows_after)}"
        return "".join([self.identity, *texts[:partition], first]), "".join([*texts[partition + 1 :], key])

    @staticmethod
    def decode(text: str) -> ChangeCursor:
        """Read a cursor.

        Raises:
            ValueError: the text is not a cursor.
        """
        match = _FORM.fullmatch(text) if len(text) <= MAX_CURSOR_CHARS else None
        if match is None:
            raise ValueError("not a cursor")
        identity, offsets, part_texts, key = match.groups()
        parts = [part.split(".") for part in part_texts.split("~")[1:]]
        names = tuple(name for name, _ in parts)
        numbers = tuple(int(offset) for offset in (*offsets.split("_"), *(offset for _, offset in parts)))
        if max(numbers) > _MAX_OFFSET or len(set(names)) < len(names):
            raise ValueError("not a cursor")
        return ChangeCursor(identity, numbers, None if key is None else _decode_key(key), names)


def _encode_key(key: Sequence[str]) -> str:
    return (
        base64.urlsafe_b64encode(json.dumps(list(key), separators=(",", ":"), ensure_ascii=False).encode()).rstrip(b"=").decode()
    )


def _decode_key(text: str) -> tuple[str, ...]:
    try:
        key = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise ValueError("not a cursor") from error
    if not isinstance(key, list) or not all(isinstance(part, str) and is_text(part) for part in key):
        raise ValueError("not a cursor")
    return tuple(key)
