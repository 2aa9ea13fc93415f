"""Large blobs that pass beside Spark, as files.

Through Spark a blob is copied seven times on its way from one Python process to the next: into Arrow, into a row, through the shuffle's
compression, out of it, and again into Arrow on the other side. Where all processes are on one host, a packet names a file instead. Such
files matter for one batch only and are never synced: a batch that is repeated after a failure writes its own.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from uuid import uuid4

from engine.errors import DiskFull, ExternalError
from engine.sources.packets import Packet
from engine.state.segments.files import NO_SPACE

LEAST_BYTES: Final = 128 * 1024
"""Smaller blobs stay in their packets: the copies of one cost less than a file's 60 µs."""


@dataclass(frozen=True, slots=True)
class BlobFolder:
    """One launch's files. It pickles; blobs are laid aside by any process of this host.

    Attributes:
        path: of this launch alone; what is beside it belongs to launches before it.
    """

    path: Path

    def open(self) -> None:
        """Make the folder, and remove those of the launches before, which may have been killed."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self.path.mkdir(parents=True)

    def lay_aside(self, packet: Packet) -> Packet:
        """Write a large blob to a file; returns the packet that names it, of a small one the packet itself.

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

    def clear(self) -> None:
        """Remove every file: their batch is read."""
        for path in self.path.glob("*"):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
