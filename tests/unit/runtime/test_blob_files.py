"""Large blobs pass beside Spark as files; small ones stay in their packets."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import ExternalError
from engine.runtime.blob_files import LEAST_BYTES, BlobFolder
from engine.sources.packets import Packet, blob_of, packet_batch, unpack


@pytest.fixture
def folder(tmp_path: Path) -> BlobFolder:
    made = BlobFolder(tmp_path / "checkpoint" / "epoch-2")
    made.open()
    return made


def packet(size: int) -> Packet:
    return Packet(0, "data", 0, 0, 0, 1, 0, 0, 1_000, b"x" * size)


def test_a_large_blob_travels_as_a_file_and_is_read_back_where_it_arrives(folder: BlobFolder) -> None:
    large = packet(LEAST_BYTES)
    aside = folder.lay_aside(large)
    assert aside.blob == b""
    assert [path.read_bytes() for path in folder.path.iterdir()] == [large.blob]
    assert blob_of(aside) == large.blob
    assert unpack(packet_batch([aside, packet(1)])) == [large, packet(1)]


def test_a_small_blob_stays_in_its_packet(folder: BlobFolder) -> None:
    small = packet(LEAST_BYTES - 1)
    assert folder.lay_aside(small) is small
    assert list(folder.path.iterdir()) == []


def test_what_goes_to_every_task_is_written_once(folder: BlobFolder) -> None:
    large, small = packet(LEAST_BYTES), packet(1)
    every = [replace(large, task=task) for task in range(4)]
    aside = [*folder.laid_aside([small, *every, small, packet(LEAST_BYTES)])]
    assert len(list(folder.path.iterdir())) == 2
    assert unpack(packet_batch(aside)) == [small, *every, small, large]


def test_a_folder_sent_to_a_worker_writes_to_the_same_place_and_is_emptied_by_the_driver(folder: BlobFolder) -> None:
    sent: BlobFolder = pickle.loads(pickle.dumps(folder))  # noqa: S301 - as Spark does
    sent.lay_aside(packet(LEAST_BYTES))
    folder.clear()
    assert list(folder.path.iterdir()) == []
    sent.lay_aside(packet(LEAST_BYTES))
    folder.close()
    assert not folder.path.exists()


def test_a_launch_removes_what_killed_launches_before_it_left(folder: BlobFolder) -> None:
    folder.lay_aside(packet(LEAST_BYTES))
    BlobFolder(folder.path.with_name("epoch-3")).open()
    assert [path.name for path in folder.path.parent.iterdir()] == ["epoch-3"]


def test_a_launch_whose_folder_was_taken_away_fails_retryably(folder: BlobFolder) -> None:
    aside = folder.lay_aside(packet(LEAST_BYTES))
    folder.close()
    folder.clear()
    with pytest.raises(ExternalError, match="cannot be written: No such file"):
        folder.lay_aside(packet(LEAST_BYTES))
    with pytest.raises(ExternalError, match="cannot be read: No such file"):
        unpack(packet_batch([replace(aside)]))
