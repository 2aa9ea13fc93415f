"""Nested values over HTTP: judged as scalars are, refused with the place of the fault, read back as they were sent."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

COLUMNS = {
    "id": "string",
    "times": "array<timestamp>",
    "names": "map<string,double>",
    "deep": "array<struct<at:date,text:string>>",
}
PATH = "/v1/streams/nested/records"


@pytest.fixture(autouse=True)
async def nested(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/streams/nested", json={"key": ["id"], "columns": COLUMNS})).status_code == 201


BAD: list[tuple[str, str, str]] = [
    ('{"times": [0, 253402300800000]}', "wrong_type", "column 'times[]' must lie in the years 1 to 9999"),
    ('{"times": [null, "soon"]}', "wrong_type", "column 'times[]' must be a timestamp"),
    ('{"names": {"\\ud800": 1}}', "invalid_string", "a key of column 'names' holds half of a surrogate pair"),
    ('{"names": {"a\\u0000": 1}}', "invalid_string", "a key of column 'names' holds the character U+0000"),
    ('{"names": {"a": 1e999}}', "not_finite", "column 'names.*' must be a finite number"),
    ('{"names": {"a": 1, "b": NaN}}', "not_finite", "column 'names.*' must be a finite number"),
    ('{"names": {"a": 1e1000000000000000000}}', "not_finite", "column 'names.*' must be a finite number"),
    ('{"deep": [{}, {"text": "a\\u0000"}]}', "invalid_string", "column 'deep[].text' holds the character U+0000"),
    ('{"deep": [{"at": "10000-01-01"}]}', "wrong_type", "column 'deep[].at' must"),
    ('{"deep": [{"when": 1}]}', "wrong_type", "which has no field 'when'"),
]


@pytest.mark.parametrize("media_type", ["application/json", "application/x-ndjson"])
@pytest.mark.parametrize(("bad", "code", "detail"), BAD)
async def test_a_bad_nested_value_refuses_its_record_alone_and_says_where(
    client: httpx.AsyncClient, bad: str, code: str, detail: str, media_type: str
) -> None:
    lines = ['{"id": "a", "times": [0]}'] * 30 + [bad] + ['{"id": "b"}']
    body = "\n".join(lines) if media_type.endswith("ndjson") else f"[{','.join(lines)}]"
    answer = (await client.post(PATH, content=body, headers={"content-type": media_type})).json()
    assert (answer["appended"], [(each["index"], each["code"]) for each in answer["rejected"]]) == (31, [(30, code)])
    assert detail in answer["rejected"][0]["detail"]


async def test_six_characters_that_look_like_a_nul_are_text(client: httpx.AsyncClient) -> None:
    record: dict[str, Any] = {"id": "\\u0000", "times": [], "names": {"\\u0000": 1.0}, "deep": [{"at": None, "text": "\\u0000"}]}
    answer = (await client.post(PATH, json=record)).json()
    assert answer["appended"] == 1, answer
    page = (await client.get(PATH, params={"partition": answer["offsets"][0]["partition"]})).json()
    assert {name: page["records"][0][name] for name in record} == record
