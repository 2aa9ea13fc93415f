"""All segments in an object store: S3 and what speaks its protocol, Google's, Azure's. ``engine.state.segments.directories`` has them in files.

A segment is uploaded before the manifest that names it is committed, and read through a cache of files
(``engine.state.segments.segment_cache``), which are mapped. The client takes credentials and endpoint from its usual environment variables
(``AWS_…``, ``GOOGLE_…``, ``AZURE_…``); none of them is in what travels to workers, in an error or in a log. It tries each request several times
within ``PATIENCE``.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import polars as pl
import pyarrow as pa

from engine.errors import STATE_CURE, StateCorrupt, StateUnavailable
from engine.frames.hashing import UNSEEDED, KeyHash
from engine.state.segments.files import FileSegmentStore, frame_of
from engine.state.segments.ports import FIRST_SEGMENTS, OWNERS, SEGMENT_SUFFIX, Stored, checksum_of
from engine.state.segments.segment_cache import SegmentCache, note_use

SCHEMES: Final = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
"""Of URLs, and how the client's environment variables begin."""

PATIENCE: Final = timedelta(seconds=15)
"""How long a request is tried again; after that the launch is repeated with backoff."""

TRIES: Final = 5
READS: Final = 3
"""How often something is read at the most: an answer that is cut off is not tried again by the client."""

REQUEST_S: Final = 60
"""Of one request: a part of a segment, 5 MB of an upload and all of a download."""

CONNECT_S: Final = 5

_DEPTH: Final = 4
_SHOWN_CHARS: Final = 300
"""Of what the client says; the rest is its insides."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Objects:
    """A ``StateStore`` of objects.

    Attributes:
        url: ``s3://bucket/prefix``, of all queries.
        cached: where copies are.
        path: below the URL: of a query, or of one of its checkpoints.
    """

    url: str
    cached: SegmentCache
    path: str = field(default="")

    def __str__(self) -> str:
        return self._address("")

    def below(self, name: str) -> Self:
        return replace(self, path=self._key(name))

    def task(self, folder: str, hashing: KeyHash = UNSEEDED) -> ObjectSegmentStore:
        return ObjectSegmentStore(self.below(folder), hashing)

    def listed(self) -> list[Stored]:
        within = f"{self.path}/" if self.path else None
        found: list[dict[str, Any]] = self._call(lambda client: _obstore().list(client, within).collect(), reads=READS)
        start = len(self.path) + 1 if self.path else 0
        names = ((one["path"][start:], one["size"]) for one in found)
        return [Stored(name, size) for name, size in names if _is_segment(name)]

    def remove(self, names: Collection[str]) -> None:
        keys = [self._key(name) for name in names]
        if keys:
            self._call(lambda client: _delete(client, keys))
        for key in keys:
            self.copy_of(key).unlink(missing_ok=True)

    def clear(self) -> None:
        self.remove([found.name for found in self.listed()])

    def owner(self, name: str) -> bytes | None:
        try:
            return self.get(_owner(name))
        except StateCorrupt:  # there is none
            return None

    def note_owner(self, name: str, content: bytes) -> None:
        self.put(_owner(name), content)

    def forget_owner(self, name: str) -> None:
        self._call(lambda client: _delete(client, [self._key(_owner(name))]))

    def copy(self, names: Collection[str], target: Self) -> None:
        """See ``StateStore``. The store copies by itself."""
        for name in names:
            self._call(lambda client, name=name: _obstore().copy(client, self._key(name), target._key(name)), name)  # type: ignore[misc]

    @property
    def is_nearly_full(self) -> bool:
        return False

    def put(self, name: str, content: bytes | memoryview, *, is_new: bool = False) -> bool:
        """Write an object; it is durable when this returns.

        Args:
            name: below this place.
            content: all of it.
            is_new: write nothing where there is one already.

        Returns:
            Whether it was written.
        """
        mode = "create" if is_new else "overwrite"
        try:
            self._call(lambda client: _obstore().put(client, self._key(name), bytes(content), mode=mode))
        except _obstore().exceptions.AlreadyExistsError:
            return False
        return True

    def get(self, name: str) -> bytes:
        """Read an object.

        Raises:
            StateCorrupt: there is none.
        """
        return bytes(self._call(lambda client: _obstore().get(client, self._key(name)).bytes(), name, reads=READS))

    def copy_of(self, key: str) -> Path:
        """Return where the copy of an object is, or would be."""
        return self.cached.directory / hashlib.sha256(self.url.encode()).hexdigest()[:12] / key

    def _key(self, name: str) -> str:
        return f"{self.path}/{name}" if self.path and name else self.path or name

    def _address(self, name: str) -> str:
        return f"{self.url}/{self._key(name)}".rstrip("/")

    def _call(self, work: Callable[[Any], T], name: str = "", *, reads: int = 1) -> T:
        """Ask the store.

        Args:
            work: gets the client.
            name: of what has to be there.
            reads: how often it is asked at the most, where asking changes nothing.

        Raises:
            StateCorrupt: what was asked for is not there.
            StateUnavailable: no answer, or a refusal.
            AlreadyExistsError: it is there already, and was to be new.
        """
        errors = _obstore().exceptions
        try:
            for _ in range(reads - 1):
                with suppress(errors.GenericError):
                    return work(_client(self.url, os.getpid()))
            return work(_client(self.url, os.getpid()))
        except errors.AlreadyExistsError:
            raise
        except (errors.BaseError, OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and name:
                raise StateCorrupt(f"the state object {self._address(name)} is missing. {STATE_CURE}") from None
            said = str(error).split("\n\nDebug source", 1)[0].replace("\n", " ")[:_SHOWN_CHARS]
            # Without a cause: what the client adds to its errors is not for logs.
            raise StateUnavailable(
                f"the state in {self} cannot be reached now: {said}. The query goes on by itself once it can; `slackwater doctor` looks for "
                "the cause"
            ) from None


class ObjectSegmentStore(FileSegmentStore):
    """Segments of a task as objects, of which files are copies."""

    def __init__(self, place: Objects, hashing: KeyHash = UNSEEDED) -> None:
        super().__init__(place.copy_of(place.path), hashing=hashing)
        self._place = place

    def load(self, segment_id: str) -> pl.DataFrame:
        if segment_id in self._open:
            return super().load(segment_id)
        path = self._path(segment_id)
        if path.exists():
            note_use(path)
            try:
                return super().load(segment_id)
            except StateCorrupt:  # the copy is damaged, or went between two looks at it
                path.unlink(missing_ok=True)
        name = path.name
        content = self._place.get(name)
        found, written = f"{zlib.crc32(content):08x}", checksum_of(segment_id)
        if found != written:
            raise StateCorrupt(
                f"the state object {self._place}/{name} is damaged: its checksum is {found}, written was {written}. {STATE_CURE}"
            )
        self._place.cached.put(path, content)
        try:
            return super().load(segment_id)
        except StateCorrupt:  # another process has made room since
            frame = frame_of(pa.ipc.open_file(pa.py_buffer(content)), segment_id)
            self._remember(segment_id, frame)
            return frame

    def _write(self, path: Path, content: bytes | memoryview) -> None:
        self._place.put(path.name, content)
        self._place.cached.put(path, content)


def _owner(name: str) -> str:
    return f"{OWNERS}/{name}.json"


def _is_segment(name: str) -> bool:
    parts = name.split("/")
    return len(parts) >= _DEPTH and parts[-_DEPTH].startswith(FIRST_SEGMENTS) and name.endswith(SEGMENT_SUFFIX)


def _delete(client: Any, keys: Sequence[str]) -> None:
    """Delete objects at once; some stores refuse where one is gone already: then one by one."""
    try:
        _obstore().delete(client, keys)
    except FileNotFoundError:
        for key in keys:
            with suppress(FileNotFoundError):
                _obstore().delete(client, key)


def _obstore() -> Any:
    """Import the client where it is used: its threads must not begin in a process that forks others."""
    import obstore
    import obstore.exceptions

    return obstore


@cache
def _client(url: str, _pid: int) -> Any:
    """Return this process's client; one that a parent made has threads that a fork does not take along."""
    from obstore.store import from_url

    # With options of ours the client does not look for this one itself.
    is_plain = os.environ.get(f"{SCHEMES.get(url.split(':', 1)[0], '')}_ALLOW_HTTP", "").lower() in ("true", "1")
    return from_url(
        url,
        client_options={"timeout": f"{REQUEST_S}s", "connect_timeout": f"{CONNECT_S}s", "allow_http": is_plain},
        retry_config={"max_retries": TRIES, "retry_timeout": PATIENCE},
    )
