"""Large blobs that pass beside Spark, as files.

Spark copies a blob seven times between two Python processes: into Arrow, into a row, through the shuffle's
compression, out of it, and into Arrow on the other side. If all processes are on one host, a packet names a file instead. Such
files serve one batch only and are never synced: a batch that is repeated after a failure writes new files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from uuid import uuid4

from engine.errors import DiskFull, ExternalError
from engine.sources.packets import Packet
from engine.state.segments.files import NO_SPACE

LEAST_BYTES: Final = 128 * 1024
"""Smaller blobs stay in their packets: their copies cost less than a file's 60 µs."""


@dataclass(frozen=True, slots=True)
class BlobFolder:
    """One launch's files. It pickles; any process of this host writes blobs to it.

    Attributes:
        path: of this launch alone; the folders beside it belong to earlier launches.
    """

    path: Path

    def open(self) -> None:
        """Make the folder, and remove those of earlier launches, which may have been killed."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self.path.mkdir(parents=True)

    def lay_aside(self, packet: Packet) -> Packet:
        """Write a large blob to a file; return the packet that names the file. Return a small blob's packet unchanged.

        Raises:
            DiskFull: there is no space for it.
            ExternalError: it cannot be written.
        """
        if len(packet.blob) < LEAST_BYTES:
            return packet
        path = self.path / uuid4().hex
        try:
            path.write_bytes(packet.blob)
        except OSError as error:
            path.unlink(missing_ok=True)
            kind = DiskFull if error.errno in NO_SPACE else ExternalError
            raise kind(f"{path} cannot be written: {error.strerror}. The query goes on by itself once it can") from error
        return replace(packet, blob=b"", file=str(path))

    def laid_aside(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Lay aside the large blobs of packets that follow each other; what goes to every task is written once.

        Raises:
            DiskFull: see ``lay_aside``.
            ExternalError: see ``lay_aside``.
        """
        blob, file = b"", None
        for packet in packets:
            if packet.blob is not blob:
                blob, file = packet.blob, self.lay_aside(packet).file
            yield packet if file is None else replace(packet, blob=b"", file=file)

    def clear(self) -> None:
        """Remove every file: the batch is read."""
        for path in self.path.glob("*"):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
