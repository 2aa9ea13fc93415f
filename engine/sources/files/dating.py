"""The readable event times in records of files. They move a partition's head (``engine.operators.tasks.order``).

Every record with a good event time counts, even if other fields are bad. So the planner, which reads only event times, and the workers,
which validate whole records, see the same heads. A record that several relations date has the latest time.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.formats.json.json_records import Lines
from engine.plan.model import RelationSchema
from engine.sources.dating import Dated, date_frame, dating_relations
from engine.sources.files.text_files import Header, parse_text


def date_text(
    data: bytes, header: Header | None, base: int, relations: Sequence[RelationSchema], now_ms: int, bounds: Lines | None = None
) -> Dated:
    """Date the records of whole lines.

    Args:
        data: without a CSV's header.
        header: a CSV file's column names, None for ndjson.
        base: offset of the first byte.
        relations: whose records they may be.
        now_ms: the wall clock: records too far ahead of it have no time (T7).
        bounds: the places of the records, if they are known.
    """
    found = []
    for relation in dating_relations(relations):
        raw, _ = parse_text(data, header, relation, None, base, bounds)
        found.append(date_frame(raw, relation, now_ms, is_text=header is not None))
    return Dated.joined(found)
