"""Looking at many chunks of files together sees what looking at each alone does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.connectors import dating
from engine.connectors.dating import Look, Part, look
from tests.unit.connectors.relations import NOW_MS, relation

OTHER = relation({"k": "string", "u": "bigint"}, event_time="u")
DATED = relation({"k": "string", "t": "bigint"}, event_time="t")
UNDATED = relation({"k": "string"})
BOM = "\ufeff"

LINES = st.sampled_from([
    '{"k":"a","t":5,"u":9}', '{"k":"b","t":7}', '{"k":"c","u":3}', '{"k":"d"}', '{"t":"no"}', "", "not json", '{"k":"é","t":6}',
])  # fmt: skip
RECORDS = st.sampled_from(
    ["a,5,9", "b,7,", "c,,3", 'd,8,"1"', '"two\nlines",4,2', '"x\n6,6,6\n",1,1', '5" pipe,2,2', "short", '"q""q",9,9']
)


def parts_of(folder: Path, texts: list[tuple[str, str | None]]) -> list[Part]:
    """Write each text to a file; those of CSV have a header line before them."""
    parts = []
    for number, (text, header) in enumerate(texts):
        path = folder / f"{number}"
        path.write_bytes(((f"{header}\n" if header is not None else "") + text).encode())
        names = None if header is None else tuple(header.removeprefix(BOM).split(","))
        parts.append(Part(path, 0, path.stat().st_size, names))
    return parts


def files() -> st.SearchStrategy[tuple[str, str | None]]:
    def of(lines: st.SearchStrategy[str], header: st.SearchStrategy[str | None]) -> st.SearchStrategy[tuple[str, str | None]]:
        text = st.builds(lambda rows, end: "\n".join(rows) + end, st.lists(lines, max_size=6), st.sampled_from(["", "\n"]))
        return st.tuples(text, header)

    with_mark = st.builds(lambda file: (BOM + file[0], file[1]), of(LINES, st.none()))
    return st.one_of(of(LINES, st.none()), with_mark, of(RECORDS, st.sampled_from(["k,t,u", "k,u,t", f"{BOM}k,t,u"])))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(files(), max_size=8), st.sampled_from([(DATED,), (DATED, OTHER), (OTHER, DATED, UNDATED), (UNDATED,)]))
@example([('"x\n6,6,6\n",1,1\n' * 400, "k,t,u"), ("b,7,1\n", "k,t,u")], (DATED,))
@example([('{"k":"a","t":5}', None), (BOM + '{"k":"a","t":7}', None)], (DATED,))
def test_together_as_alone(tmp_path: Path, texts: list[tuple[str, str | None]], relations: tuple[object, ...]) -> None:
    parts = parts_of(tmp_path, texts)
    assert look(parts, relations, NOW_MS) == [look([part], relations, NOW_MS)[0] for part in parts]  # type: ignore[arg-type]


def test_what_is_seen(tmp_path: Path) -> None:
    parts = parts_of(
        tmp_path, [('{"t":5,"u":9}\n{"t":4,"u":20}\n', None), ("", "k,t,u"), ("a,,3\nb,8,2\n", "k,t,u"), ("{}\n", None)]
    )
    seen = look(parts, [DATED, OTHER], NOW_MS)
    # The first relation that dates any record says where a chunk begins, all of them how far it reaches.
    assert seen == [Look(2, 5, 20), Look(0, None, None), Look(2, 8, 8), Look(1, None, None)]


def test_long_records_are_not_held_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    parse = dating.parse_text

    def spied(data: bytes, *arguments: object) -> object:
        held.append(len(data))
        return parse(data, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(dating, "parse_text", spied)
    monkeypatch.setattr(dating, "GATHERED_BYTES", 10_000)
    long = [(f'{{"t":{number},"k":"{"x" * 4_000}"}}\n', None) for number in range(20)]
    parts = parts_of(tmp_path, long)
    assert [each.max_ts for each in look(parts, [DATED], NOW_MS)] == list(range(20))
    assert max(held) < 15_000
    assert sum(held) == sum(part.end for part in parts)
