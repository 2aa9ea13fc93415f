"""Separates JSON envelopes from their schema (``{"schema": …, "payload": …}``), so that payloads are read together; handles bare ones too.

Kafka Connect writes the same schema before each event of a table. So payloads are cut out of the bytes, and only a new
beginning is parsed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.formats.debezium.json_members import BYTE_ORDER_MARK, members
from engine.records.canonical import empty_rejects, reject_rows
from engine.records.excerpts import excerpt_of_bytes

_MAX_BEGINNINGS: Final = 64
"""The most different beginnings of one batch that are searched in the bytes, and the most schemas in it."""

_Bad = tuple[int, str, str, str]
"""A row of rejects."""


class Bodies(NamedTuple):
    """Envelopes of one schema.

    Attributes:
        schema: parsed from before them; None: there was none.
        places: of the payloads.
        texts: the envelopes.
    """

    schema: Any
    places: npt.NDArray[np.int64]
    texts: pl.Series


def split(payloads: pl.Series) -> tuple[list[Bodies], pl.DataFrame]:
    """Return the envelopes by schema, and the payloads that are no JSON object."""
    left = np.arange(len(payloads), dtype=np.int64)
    found: list[Bodies] = []
    bad: list[_Bad] = []
    unlike: list[int] = []
    said: set[str] = set()
    for _ in range(_MAX_BEGINNINGS):
        if not len(left):
            break
        place = int(left[0])
        try:
            schema, beginning, _ = _beginning(payloads[place])
            said.add(_said(schema))
        except (ValueError, RecursionError) as error:
            bad.append(_malformed(payloads, place, str(error)))
            left = left[1:]
            continue
        if beginning is None:
            unlike.append(place)
            left = left[1:]
            continue
        left, bodies = _same_beginning(payloads, left, schema, beginning)
        found.append(bodies)
    found += _by_schema(payloads, unlike + left.tolist(), said, bad)
    return found, reject_rows(sorted(bad)) if bad else empty_rejects()


def _by_schema(payloads: pl.Series, places: Sequence[int], known: set[str], bad: list[_Bad]) -> list[Bodies]:
    """Group envelopes with many beginnings by the content of their schemas, so that each group is read in one pass."""
    groups: dict[str, tuple[Any, list[int], list[bytes]]] = {}
    for place in places:
        try:
            schema, _, body = _beginning(payloads[place])
            said = _said(schema)
        except (ValueError, RecursionError) as error:
            bad.append(_malformed(payloads, place, str(error)))
            continue
        if schema is not None and said not in known and len(known) >= _MAX_BEGINNINGS:
            bad.append(
                _malformed(payloads, place, f"more than {_MAX_BEGINNINGS} different schemas come at once; send fewer events")
            )
            continue
        known.add(said)
        _, own, texts = groups.setdefault(said, (schema, [], []))
        own.append(place)
        texts.append(body)
    return [Bodies(schema, np.array(own, np.int64), pl.Series(texts, dtype=pl.Binary)) for schema, own, texts in groups.values()]


def _said(schema: Any) -> str:
    """Write a schema's content in one form, for any spaces and order of names."""
    return json.dumps(schema, sort_keys=True)


def _malformed(payloads: pl.Series, place: int, detail: str) -> _Bad:
    return place, "malformed_json", detail[:300], excerpt_of_bytes(payloads[place])


def _same_beginning(
    payloads: pl.Series, left: npt.NDArray[np.int64], schema: Any, beginning: bytes
) -> tuple[npt.NDArray[np.int64], Bodies]:
    """Cut the envelopes out of all payloads with the same beginning."""
    rest = payloads.gather(left)
    if beginning:
        is_it = (rest.bin.starts_with(beginning) & rest.bin.ends_with(b"}}")).to_numpy()
        inner = (
            rest.filter(pl.Series(is_it))
            .to_frame("v")
            .select(pl.col("v").bin.slice(len(beginning), pl.col("v").bin.size().cast(pl.Int64) - len(beginning) - 1))
        )
        return left[~is_it], Bodies(schema, left[is_it], inner.to_series())
    is_it = (~rest.bin.starts_with(b'{"schema"') & ~rest.bin.starts_with(b'{"payload"') & rest.bin.starts_with(b'{"')).to_numpy()
    return left[~is_it], Bodies(None, left[is_it], rest.filter(pl.Series(is_it)))


def _beginning(payload: bytes) -> tuple[Any, bytes | None, bytes]:
    """Return the schema, the bytes before the envelope in similar payloads (None: none is similar), and the envelope."""
    text = payload.removeprefix(BYTE_ORDER_MARK)
    spans = members(text)
    if set(spans) != {"schema", "payload"}:
        return None, b"" if text.startswith(b'{"') else None, text
    start, end = spans["payload"]
    schema = json.loads(text[slice(*spans["schema"])])
    is_plain = payload.startswith(b'{"schema"') and text[end:] == b"}" and spans["schema"][0] < start
    return schema, text[:start] if is_plain else None, text[start:end]
