"""Results in a directory of files: each delivery is one commit of some files, which appear whole.

A commit is ``_slackwater/<delivery>/<number of its first row>.json``, with the end of its rows and its files. It is made by linking a
complete file, which fails if the commit exists: of two processes that deliver the same rows one is refused, so every result is in one file.
Files are written before their commit, and get their names after it; a process that finds an unfinished commit finishes it.

Each process writes in its own directory beside the commits, its *stage*, and links from there. A process that takes over first renames the
stages of others, and then looks for commits. Other processes can then commit nothing any more, so their drafts may be removed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import uuid4

import polars as pl

from engine.definition.deliveries.delivery import DeliveryModel
from engine.definition.deliveries.files import FilesDelivery
from engine.deliveries.deliveries import DeliveryContext, DeliveryKind, DeliveryStopped, Result, TargetUnavailable, of_kind
from engine.deliveries.lake import check_writable, directory_of, lake_rows
from engine.errors import DefinitionInvalid
from engine.expressions.types.types import ColumnType, Schema
from engine.formats.json.json_writer import JsonWriter
from engine.state.segments.files import sync

COMMITS: Final = "_slackwater"
KEPT_COMMITS: Final = 1_000
"""A frozen process may wake up and retry a commit that others have made: while the commit file exists, it is refused."""

_DIGITS: Final = 20
_STAGE: Final = "stage-"
_GONE: Final = "gone-"
_SUFFIX: Final = {"ndjson": "ndjson", "parquet": "parquet"}


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a commit: its name in a stage, and its final path below the directory."""

    draft: str
    final: str


class FilesDeliverer:
    """Implements ``Deliverer``."""

    keeps_position: ClassVar[bool] = True

    def __init__(self, definition: FilesDelivery, result: Result, directory: Path) -> None:
        self._definition, self._result, self._directory = definition, result, directory
        self._commits = directory / COMMITS / result.delivery.hex
        self._stage = self._commits / "none"
        self._named: list[Path] = []

    def position(self) -> int | None:
        try:
            self._commits.mkdir(parents=True, exist_ok=True)
            self._take_stages_away()
            # From here on the commits of other processes are visible, and no more will come.
            self._named = sorted(self._commits.glob("*.json"))
            upto = None if not self._named else self._ended(self._named[-1])
            for gone in self._commits.glob(f"{_GONE}*"):
                shutil.rmtree(gone, ignore_errors=True)
            self._stage = self._commits / f"{_STAGE}{uuid4().hex}"
            self._stage.mkdir()
        except OSError as error:
            raise _away(self._directory, error) from error
        return upto

    def remember(self, position: int) -> bool:  # noqa: ARG002 - what is written here stays
        return False

    def deliver(self, rows: pl.DataFrame, start: int, upto: int) -> None:
        try:
            files = list(self._write(rows, start, upto))
            self._commit(files, start, upto)
            self._show(files)
        except OSError as error:
            if not self._stage.is_dir():
                raise TargetUnavailable("another process delivers the result; this one looks again") from error
            raise _away(self._directory, error) from error

    def close(self) -> None:
        """See ``Deliverer``."""

    def _take_stages_away(self) -> None:
        for stage in self._commits.glob(f"{_STAGE}*"):
            with suppress(FileNotFoundError):  # another process was faster
                stage.rename(self._commits / f"{_GONE}{uuid4().hex}")

    def _ended(self, commit: Path) -> int:
        """Return where the rows of the last commit end, after finishing this commit."""
        try:
            last = json.loads(commit.read_bytes())
            files = [_File(**each) for each in last["files"]]
            upto = int(last["upto"])
        except (ValueError, KeyError, TypeError) as error:
            raise DeliveryStopped("delivery_position_lost", f"{commit} cannot be read: {error}") from error
        self._show(files)
        return upto

    def _write(self, rows: pl.DataFrame, start: int, upto: int) -> Iterator[_File]:
        is_dated = self._definition.partition_by == "date"
        frame = lake_rows(rows, is_table=self._result.is_table, has_date=is_dated)
        parts = {"": frame}
        if is_dated:
            parts = {f"_date={day[0]}": part.drop("_date") for day, part in frame.partition_by("_date", as_dict=True).items()}
        name = f"{self._result.delivery.hex[:8]}-{start:0{_DIGITS}}-{upto:0{_DIGITS}}.{_SUFFIX[self._definition.format]}"
        for folder, part in parts.items():
            draft = self._stage / f".{uuid4().hex}"
            if self._definition.format == "parquet":
                part.write_parquet(draft, compression="zstd")
            else:
                draft.write_bytes(_json_lines(part, self._result.columns))
            sync(draft)
            yield _File(draft.name, str(Path(folder) / name))

    def _commit(self, files: list[_File], start: int, upto: int) -> None:
        said: dict[str, Any] = {
            "start": start,
            "upto": upto,
            "files": [{"draft": each.draft, "final": each.final} for each in files],
        }
        draft, final = self._stage / ".commit", self._commits / f"{start:0{_DIGITS}}.json"
        draft.write_text(json.dumps(said))
        sync(draft)
        sync(self._stage)
        try:
            os.link(draft, final)
        except FileExistsError as error:
            raise TargetUnavailable(f"another process has delivered the rows from {start} on; this one looks again") from error
        finally:
            draft.unlink(missing_ok=True)
        sync(self._commits)
        self._named.append(final)
        for old in self._named[:-KEPT_COMMITS]:
            old.unlink(missing_ok=True)
        del self._named[:-KEPT_COMMITS]

    def _show(self, files: list[_File]) -> None:
        """Give the files of a commit their names, if they are still drafts.

        A file that is neither a draft nor at its path was published, and then removed by a reader. Drafts are on the disk before
        their commit, and only this step moves them.
        """
        for each in files:
            final = self._directory / each.final
            is_new = not final.parent.is_dir()
            final.parent.mkdir(exist_ok=True)
            for draft in () if final.exists() else self._commits.glob(f"*/{each.draft}"):
                with suppress(FileNotFoundError):  # another process has done it
                    draft.rename(final)
            sync(final.parent)
            if is_new:
                sync(self._directory)


def _open(said: DeliveryModel, result: Result, site: DeliveryContext) -> FilesDeliverer:
    definition = of_kind(said, FilesDelivery)
    try:
        directory = directory_of(definition.path, site.root)
    except DefinitionInvalid as error:
        raise DeliveryStopped("delivery_refused", error.problems[0].detail) from error
    return FilesDeliverer(definition, result, directory)


def _check(said: DeliveryModel, result: Result, site: DeliveryContext) -> None:  # noqa: ARG001 - the port's
    definition = of_kind(said, FilesDelivery)
    check_writable(definition.path, site.root)


def _json_lines(frame: pl.DataFrame, columns: Schema) -> bytes:
    """Return a line of JSON for each row, values as in posted records."""
    beside = {"_sequence": ColumnType("bigint"), "_event_time": ColumnType("string"), "_op": ColumnType("string")}
    kinds = Schema((*columns.items(), *((name, kind) for name, kind in beside.items() if name in frame.columns)))
    shown = frame.with_columns(pl.col("_event_time").dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"))
    return b"".join(line + b"\n" for line in JsonWriter(kinds, is_bare=False).write(shown))


def _away(directory: Path, error: OSError) -> TargetUnavailable:
    return TargetUnavailable(f"{directory}: {error.strerror or error}")


FILES_DELIVERY: Final = DeliveryKind(_open, _check)
