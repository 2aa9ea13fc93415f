"""Every error the engine raises on purpose.

EngineError
├── UserError            the definition or the data is wrong: retrying cannot help
│   ├── DefinitionInvalid    a definition was refused; carries one Problem per fault
│   ├── DataInvalid          `on_bad_record: stop` met a bad record, or:
│   │   ├── RecordsRemoved       retention removed records before they were read
│   │   ├── RecordsReplaced      other records have taken the place of those that were read
│   │   ├── TopicReplaced        a topic was deleted and made again
│   │   ├── TableTruncated       a database's table was truncated, and a topic of its changes says so
│   │   ├── FileChanged          a file shrank or was replaced after it was read
│   │   ├── FileUnfit            a file is damaged, too large, or of types that are not read
│   │   ├── FormatUnfit          the format does not fit the relation, or its schema
│   │   ├── PythonFailed         a function in Python failed, and says to stop
│   │   └── ResultUnwritable     Postgres cannot hold a value of the result
│   └── BufferFull           a suppress buffer with `when_full: stop` passed its bound; says at which position
├── ExternalError        something outside failed: retried with backoff
│   ├── SourceUnavailable
│   ├── SinkUnavailable
│   │   └── CommitRefused        one batch cannot be committed now; others can
│   │       └── ResultLocked         somebody holds a lock on what belongs to one result
│   ├── DiskFull             no space left for state or checkpoint
│   └── StateUnavailable     the object store with the state gives no answer, or refuses
└── InternalError        a bug or a lost race of ours
    ├── EpochFenced          a newer launch owns this query: stop, write nothing
    ├── EmissionTooLarge     a batch emits too much at once: tried again with less input
    ├── StateCorrupt         a manifest names what does not exist or is damaged
    │   └── StateNewer           a newer version wrote it, in a format that this one does not know
    └── InvariantBroken
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self

BEGIN_ANEW: Final = "start from scratch without that state: PUT /v1/queries/<name>?state=discard with its definition"
STATE_CURE: Final = f"Bring back the state that goes with this database from a copy, or {BEGIN_ANEW}"
"""What helps where kept state cannot be used, as part of a message."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault in a definition.

    Attributes:
        pointer: RFC 6901 JSON pointer into the definition, such as ``/joins/0/grace``.
        code: stable snake_case code.
        detail: what is wrong and what to do about it.
    """

    pointer: str
    code: str
    detail: str


class EngineError(Exception):
    """Root of the tree. Each class fixes its code, its domain and whether a retry can help."""

    code: ClassVar[str] = "engine_error"
    domain: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False


class UserError(EngineError):
    """The definition or the data is wrong. The query stops at once and waits for an edit."""

    code = "user_error"
    domain = "user"


class DefinitionInvalid(UserError):
    """A definition was refused. ``problems`` holds every fault found, not only the first."""

    code = "definition_invalid"

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{p.pointer or '/'}: {p.detail}" for p in problems))
        self.problems = problems


class DataInvalid(UserError):
    """A source holds what the definition forbids and asks to stop for."""

    code = "data_invalid"


class RecordsRemoved(DataInvalid):
    """Retention removed records before they were read, and none may be left out.

    Attributes:
        kept_from: the first offset of the partition that is there; None: not known.
    """

    code = "offset_out_of_range"

    def __init__(self, message: str, kept_from: int | None = None) -> None:
        super().__init__(message)
        self.kept_from = kept_from


class RecordsReplaced(DataInvalid):
    """Results rest on records that are gone: others stand at their offsets, or none."""

    code = "records_replaced"


class TopicReplaced(DataInvalid):
    """A topic was deleted and made again: positions in it mean something else."""

    code = "topic_replaced"


class TableTruncated(DataInvalid):
    """A database's table was truncated, which its topic of changes says of no key: rows that are gone would stay."""

    code = "table_truncated"


class FileChanged(DataInvalid):
    """A file shrank or was replaced after it was read."""

    code = "file_changed"


class FileUnfit(DataInvalid):
    """A file, or a directory, is none that can be read record by record."""

    code = "file_unfit"


class FormatUnfit(DataInvalid):
    """The format that a source names does not fit the relation, or the schema that it has now."""

    code = "format_unfit"


class PythonFailed(DataInvalid):
    """A function in Python failed, and its declaration says to stop then."""

    code = "function_failed"


class ResultUnwritable(DataInvalid):
    """Postgres cannot hold a value of the result, and never will."""

    code = "value_not_writable"


class BufferFull(UserError):
    """A suppress buffer with ``when_full: stop`` passed its bound (S4). What came before ``position`` is valid and is committed.

    Attributes:
        position: place in the task's total order of the record that did not fit.
    """

    code = "suppress_buffer_full"

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message, position)
        self.position = position

    def __str__(self) -> str:
        return str(self.args[0])


class ExternalError(EngineError):
    """Something outside failed; the launch is repeated with backoff."""

    code = "external_error"
    domain = "external"
    retryable = True


class SourceUnavailable(ExternalError):
    """A feed cannot be read now."""

    code = "source_unavailable"


class SinkUnavailable(ExternalError):
    """A result cannot be written now."""

    code = "sink_unavailable"


class CommitRefused(SinkUnavailable):
    """One batch cannot be committed now, while the connection works: other results are written."""


class ResultLocked(CommitRefused):
    """Somebody else holds a lock on what belongs to one result."""

    code = "result_locked"


class DiskFull(ExternalError):
    """State or checkpoint cannot be written for want of space. Once there is some, the next launch goes on from the last commit."""

    code = "disk_full"


class StateUnavailable(ExternalError):
    """The state cannot be read or written now: its object store gives no answer, or refuses."""

    code = "state_unavailable"


class InternalError(EngineError):
    """A bug or a lost race of ours; the launch is repeated with backoff."""

    code = "internal_error"
    retryable = True


class EpochFenced(InternalError):
    """A newer launch owns this query. Stop and write nothing."""

    code = "epoch_fenced"
    retryable = False


class EmissionTooLarge(InternalError):
    """A batch emits more than may be under way at once. It is tried again with less input, and nobody hears of it."""

    code = "emission_too_large"


class StateCorrupt(InternalError):
    """A manifest names what does not exist or is damaged."""

    code = "state_corrupt"
    retryable = False


class StateNewer(StateCorrupt):
    """A newer version wrote state or a checkpoint, in a format that this one does not know. Nothing is damaged."""

    code = "state_newer"

    @classmethod
    def of(cls, what: str, found: object, known: int) -> Self:
        """Say which format was found of what, and up to which this version reads."""
        return cls(
            f"{what} has format {found!r}, this version reads up to {known}: run the version of Slackwater that wrote it, or {BEGIN_ANEW}"
        )


class InvariantBroken(InternalError):
    """Something that cannot happen did. Report it."""

    code = "invariant_broken"
    retryable = False


CURED_BY_NEW_STATE: Final = frozenset(
    each.code for each in (StateCorrupt, StateNewer, RecordsRemoved, RecordsReplaced, TableTruncated, FileChanged)
)
"""Codes of errors that a query meets again at each launch, until it starts from scratch."""
