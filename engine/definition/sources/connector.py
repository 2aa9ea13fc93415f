"""What every connector of sources says about itself before anything is read: the base of its model, and what others go by.

Who is not in a connector's folder asks these questions instead of the connector's name (the README of the engine has the recipe).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from engine.errors import Problem
from engine.expressions.model import Model

LostRecords = Literal["stop", "skip"]
"""What a query does where records of an input were removed before it read them."""

LOG_PREFIX = "log:"
"""Before the name of a feed of the built-in log, where positions name it. Results are there, too."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What the feeds of a connector are like.

    Attributes:
        is_kept_here: the built-in log holds the records, as they were judged when they were appended: they can be appended to, read by
            offset, followed and searched, and what they were judged by changes only while there are none. Else they are elsewhere, and
            are validated again by each query that reads them.
        has_heads: ``log.head`` says where its partitions begin and end, as far as the service knows, in offsets that rise by one with
            each record: so lag is a number of records. Else positions are compared by order alone.
        is_of_host: the records stand on this host beside what is nobody's business: who may see them is a matter of roles.
        holds: what is read, as a noun: ``files``.
        appended_by: how to append there; None: over HTTP.
    """

    is_kept_here: bool = False
    has_heads: bool = False
    is_of_host: bool = False
    holds: str = "records"
    appended_by: str | None = None


@dataclass(frozen=True, slots=True)
class Clause:
    """A field of a connector as a property of ``WITH (…)`` in a statement.

    Attributes:
        name: of the property.
        field: of the model.
        form: how it is written; of a ``word`` the model has the lower case, ``json`` is a text that holds what the model has.
        words: of a ``word``, in upper case.
        default: the word where the connector is chosen and this is not said.
        is_choice: the connector is meant where this property is there. The default connector has none.
        is_of_topics: ksqlDB has the property for any topic, so it may stand where another connector is meant.
    """

    name: str
    field: str
    form: Literal["text", "word", "number", "duration", "json"] = "text"
    words: tuple[str, ...] = ()
    default: str | None = None
    is_choice: bool = False
    is_of_topics: bool = False


@dataclass(frozen=True, slots=True)
class TopicWords:
    """What a statement says of a topic in ksqlDB's properties, in upper case.

    Attributes:
        has_key: the relation has key columns.
        is_single_key: it has one.
        is_unwrapped: ``WRAP_SINGLE_VALUE=FALSE``.
    """

    key_format: str
    key_delimiter: str
    value_format: str
    value_delimiter: str
    has_key: bool
    is_single_key: bool
    is_unwrapped: bool


class RecordLocation:
    """Where a feed's records are, beside its name: what its reader needs. A frozen dataclass that pickles and can be compared."""

    __slots__ = ()

    @property
    def topic_name(self) -> str | None:
        """What statements call the topic that it is; None: it is none, and a relation's own name stands for one."""
        return None

    def state_part(self) -> Mapping[str, object]:
        """Return what of it kept state depends on, beside the feed's name."""
        return {}


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """Which changes of a database a table takes. It concerns reading alone: kept state does not depend on it.

    Attributes:
        absent: declared columns that a change may lack; it has null there then.
        tables: of the database, with their schemas; empty: all that come.
    """

    absent: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Location:
    """Which feed a source reads. Sources with an equal ``name`` share it.

    Attributes:
        name: as positions name it.
        log_feed: its name in ``log.feed``; of all but the log's it begins with the connector's type and a colon.
        place: see ``RecordLocation``; None: the names say all.
    """

    name: str
    log_feed: str
    place: RecordLocation | None = None


class ConnectorModel(Model, ABC):
    """The base of what a definition says of its connector. A model also has the fields ``type`` and ``where``."""

    traits: ClassVar[Traits] = Traits()
    clauses: ClassVar[tuple[Clause, ...]] = ()

    @classmethod
    def name(cls) -> str:
        """Return the connector's name, as ``type`` has it."""
        (name,) = cls.model_fields["type"].annotation.__args__  # type: ignore[union-attr]  # Literal["…"]
        return str(name)

    @abstractmethod
    def location(self, relation: str) -> Location:
        """Return which feed a relation of that name reads."""

    @abstractmethod
    def named(self) -> Iterator[tuple[str, str | None]]:
        """Yield pointer and name of what it reads beside the relation's own feed; None for what no name of a relation stands for."""

    @classmethod
    def said_by_topic(cls, words: TopicWords) -> Mapping[str, Any]:  # noqa: ARG003 - for those that read topics
        """Return the fields that follow from ksqlDB's properties of topics; what a property of the connector's own says comes before them."""
        return {}

    def faults(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the shape of single fields; pointers begin with ``/connector``."""
        yield from ()

    @property
    def has_positions(self) -> bool:
        """Whether its records are changes of a database that say where they stand in its log: that decides which one of a key counts."""
        return False

    @property
    def change_rules(self) -> ChangeRules | None:
        """Which of these changes a table takes; None: its records are none, or nothing is said."""
        return None

    @property
    def lost_records(self) -> LostRecords | None:
        """What is done where its records were removed before they were read; None: it is not asked. It concerns reading alone."""
        return None

    def columns_named(self) -> Iterator[tuple[str, str]]:
        """Yield pointer and name of the relation's columns that it names: those that changes may lack."""
        yield from ()

    @property
    def test_partitions(self) -> int:
        """How many partitions a test gives it that runs without the connector."""
        return 1
