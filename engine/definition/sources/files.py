"""What a definition says of a directory of files. Pure: definitions are made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

from pydantic import Field

from engine.definition.sources.connector import Clause, ConnectorModel, Location, RecordLocation, Traits
from engine.expressions.limits import Expression

Format = Literal["ndjson", "csv", "parquet"]


@dataclass(frozen=True, slots=True)
class FilesPlace(RecordLocation):
    """A directory, and how its files are written."""

    path: str
    format: Format

    def state_part(self) -> Mapping[str, object]:
        """See ``RecordLocation``: digests of kept state have had both since before there were places."""
        return asdict(self)


class FilesConnector(ConnectorModel):
    """A directory of files. Relations with one directory share its order."""

    traits: ClassVar = Traits(is_of_host=True, holds="files", appended_by="put records into its directory")
    clauses: ClassVar = (
        Clause("FILES_PATH", "path", is_choice=True),
        Clause("FILES_FORMAT", "format", "word", ("NDJSON", "CSV", "PARQUET"), default="NDJSON"),
    )

    type: Literal["files"] = Field(description="A directory of files.")
    path: str = Field(min_length=1, description="The directory, below SLACKWATER_FILES_ROOT.", examples=["/data/orders"])
    format: Format = Field(description="How the files are written; csv has a header line.")
    where: Expression | None = Field(default=None, description="Which records are this relation's.")

    def location(self, relation: str) -> Location:  # noqa: ARG002 - who names the directory reads it
        identity = f"files:{self.format}:{self.path}"
        return Location(identity, identity, FilesPlace(self.path, self.format))

    def named(self) -> Iterator[tuple[str, str | None]]:
        """See ``ConnectorModel``: a directory has no name of a relation."""
        yield "/connector/path", None
