"""How a refusal of the service is told: with links to where its codes are explained."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from slackwater.cli.options.failing import failure_of, show
from slackwater.errors import Conflict, ServiceError

URL = "http://localhost:8080"


def refusal(*codes: str, own: str | None = None, kind: Any = None) -> ServiceError:
    faults = [{"pointer": "/x", "code": code, "detail": f"of {code}", "type": f"/v1/errors/{code}"} for code in codes]
    code = own or codes[0]
    return Conflict(409, {"code": code, "detail": "no", "errors": faults, "type": kind or f"/v1/errors/{code}"}, "GET /")


def told(error: ServiceError, url: str = URL) -> str:
    written = io.StringIO()
    show(Console(file=written), failure_of(error, url), as_json=False)
    return written.getvalue()


def test_a_refusal_names_where_its_code_is_explained() -> None:
    assert f"more: {URL}/v1/errors/query_exists\n" in told(refusal("query_exists"))
    assert told(refusal("query_exists"), f"{URL}/").count(f"{URL}/v1/errors/query_exists") == 1


def test_each_of_several_codes_has_its_link_and_their_sum_has_none() -> None:
    links = failure_of(refusal("bad_duration", "unknown_column", "bad_duration", own="definition_invalid"), URL).links
    assert links == (f"{URL}/v1/errors/bad_duration", f"{URL}/v1/errors/unknown_column")
    assert failure_of(refusal("definition_invalid"), URL).links == (f"{URL}/v1/errors/definition_invalid",)


def test_the_links_are_part_of_what_programs_get() -> None:
    assert failure_of(refusal("query_exists"), URL).json()["error"]["links"] == [f"{URL}/v1/errors/query_exists"]


@pytest.mark.parametrize("kind", ["about:blank", "https://else.example/x", "/v1/errors/../admin", 3])
def test_only_a_place_of_the_service_itself_is_linked(kind: Any) -> None:
    assert failure_of(Conflict(409, {"code": "a", "detail": "no", "type": kind}, "GET /"), URL).links == ()
