"""Parameters for the format of a body and for its schema registry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

from fastapi import Depends, Query, Request

from app.access.rules import refuse_beyond_scope
from app.appends.appender import Posted
from app.catalog.connections.registries import Registries
from app.errors.app_errors import Unprocessable, UnsupportedMediaType
from app.http.parameters import MAX_NAME_LENGTH, ParameterFaults, Services, bad_parameter, is_name
from app.http.requests.bodies import media_type_of
from engine.formats.bodies.bodies import MEDIA_TYPES
from engine.formats.bodies.body_formats import POSTED, BodyOptions, option_faults
from engine.formats.port import FormatInvalid, RegistryRefused

_FORMATS: Final = ", ".join(f"`{name}`" for name in POSTED)
_TEXT: Final[dict[str, Any]] = {"max_length": MAX_NAME_LENGTH, "pattern": r"^[^\x00]+$"}

Format = Annotated[
    str | None,
    Query(
        **_TEXT,
        description=f"Format of the body, one of {_FORMATS}; absent: its media type gives the format, strictly. `json`, `json_lenient` (as "
        "ksqlDB reads) and `debezium` (change events, to tables): an array, one value, or lines (`application/x-ndjson`). `avro`: an object "
        "container file (codecs null and deflate). `protobuf`: messages with their lengths before them, as writeDelimitedTo writes; their "
        "schema is the newest of `subject`. `delimited` and `string`: lines. `bytes` and `kafka` (as Kafka's serialisers write numbers): "
        "the body is one record. With `registry` the body is one payload as in a topic, after the id of its schema. Undeclared fields "
        "are left out.",
    ),
]
RegistryName = Annotated[
    str | None,
    Query(**_TEXT, description="For json, json_lenient, avro, protobuf and debezium: the connection of a schema registry."),
]
Subject = Annotated[
    str | None, Query(**_TEXT, description="For protobuf, with `registry`: the subject whose newest schema the messages have.")
]
Message = Annotated[
    str | None, Query(**_TEXT, description="For protobuf, with `subject`: full name of the message; absent: the first.")
]
Delimiter = Annotated[str | None, Query(**_TEXT, description="For delimited: one character, TAB or SPACE; absent: a comma.")]
Encoding = Annotated[str | None, Query(**_TEXT, description="For debezium: `json`, or `avro` with `registry`; absent: json.")]
TimeUnit = Annotated[
    str | None,
    Query(
        **_TEXT,
        description="For debezium: the unit of numbers in columns of time and timestamp where an event has no schema: `ms`, `us`, `ns`; "
        "absent: ms.",
    ),
]
DecimalForm = Annotated[
    str | None,
    Query(
        **_TEXT,
        description="For debezium: the meaning of texts in decimal columns where an event has no schema: `bytes` "
        "(decimal.handling.mode=precise) or `text` (string); absent: such an event is rejected.",
    ),
]
Absent = Annotated[
    str | None,
    Query(
        **_TEXT,
        description="For debezium: columns that changes may lack, separated by commas. They were dropped in the database, and are null from "
        "then on. Without it, a change without a column that earlier changes had is rejected (`column_gone`).",
    ),
]
SourceTable = Annotated[
    str | None,
    Query(
        **_TEXT,
        description="For debezium: the tables of the database that the rows are of, with their schemas, separated by commas "
        "(`public.orders`); absent: the table of the first change. Changes of other tables are rejected (`other_table`).",
    ),
]


async def _body_options(
    request: Request,
    format: Format = None,  # noqa: A002 - the parameter's name
    registry: RegistryName = None,
    subject: Subject = None,
    message: Message = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    time_unit: TimeUnit = None,
    decimals: DecimalForm = None,
    absent: Absent = None,
    source_table: SourceTable = None,
) -> BodyOptions | None:
    parameters = {
        "registry": registry, "subject": subject, "message": message, "delimiter": delimiter, "encoding": encoding,
        "time_unit": time_unit, "decimals": decimals, "absent": absent, "source_table": source_table,
    }  # fmt: skip
    options = tuple((name, value) for name, value in parameters.items() if value is not None)
    faults = ParameterFaults()
    if format is None:
        for name, _ in options:
            faults.add(bad_parameter(name, f"belongs to a format; name it: format={' or '.join(POSTED)}"))
        faults.raise_all()
        return None
    known = POSTED.get(format)
    body_options = BodyOptions(format, media_type_of(request, *(MEDIA_TYPES if known is None else known.media_types)), options)
    for fault in option_faults(body_options):
        faults.add(bad_parameter(fault.setting, str(fault)))
    faults.raise_all()
    if known is not None and body_options.media_type not in known.media_types:
        raise UnsupportedMediaType(
            "unsupported_media_type", f"{format} can be sent as {', '.join(known.media_types)}, not as {body_options.media_type}"
        )
    return body_options


AskedFormat = Annotated[BodyOptions | None, Depends(_body_options)]
"""The format that the request names; None: none."""


@asynccontextmanager
async def with_registry(services: Services, asked: BodyOptions | None) -> AsyncIterator[Posted | None]:
    """Return the format with the registry that a request names. At most so many bodies at once use registries.

    Raises:
        NotFound: ``connection_not_found``.
        Forbidden: ``out_of_scope``.
        TooManyRequests: too many bodies wait for registries.
        Unprocessable: ``registry_refused``, ``format_unfit``.
    """
    name = None if asked is None else asked.option("registry")
    try:
        if asked is None:
            yield None
        elif name is None:
            yield Posted(asked, None)
        else:
            refuse_beyond_scope([("?registry", name)])
            if not is_name(name):
                raise bad_parameter("registry", "is not a name")
            with services.gates.registries.passed():
                registry = await services.of(Registries).get(name)
                yield Posted(asked, registry)
    except FormatInvalid as error:
        pointer = f"{error.setting}: " if error.setting else ""
        raise Unprocessable("format_unfit", f"{pointer}{error}") from error
    except RegistryRefused:
        if name is not None:
            services.of(Registries).forget(name)
        raise
