"""Read and validate JSON bodies here rather than in FastAPI, so that every fault has a code and a pointer."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, ValidationError

from app.errors.app_errors import BadRequest, Fault, UnsupportedMediaType
from app.http.answers.problems import from_engine
from app.http.requests.stored_texts import refuse_unstorable
from engine.definition.problems import problems_of
from engine.errors import DefinitionInvalid

Parsed = TypeVar("Parsed", bound=BaseModel)
JSON_TYPE = "application/json"


async def read_json(request: Request) -> Any:
    """Read the JSON body of a request.

    Raises:
        BadRequest: ``malformed_json``.
        DefinitionInvalid: ``invalid_string``: the database cannot store one of its texts.
    """
    value = await read_any_json(request)
    refuse_unstorable(value)
    return value


async def read_any_json(request: Request) -> Any:
    """Read JSON whose texts may have U+0000, for a route that reports it itself (``refuse_unstorable``)."""
    kind = media_type_of(request, JSON_TYPE)
    refuse_encoding(request)
    if kind != JSON_TYPE and not kind.endswith("+json"):
        raise UnsupportedMediaType("unsupported_media_type", f"send {JSON_TYPE}, not {kind}")
    return parse_json(await request.body())


JsonBody = Annotated[Any, Depends(read_json)]
AnyJsonBody = Annotated[Any, Depends(read_any_json)]


def media_type_of(request: Request, *expected: str) -> str:
    """Return the body's media type without parameters.

    Raises:
        UnsupportedMediaType: ``media_type_missing``. A page of another site can send a body without a type without a preflight.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if not kind:
        raise UnsupportedMediaType("media_type_missing", f"say what the body is: Content-Type: {' or '.join(expected)}")
    return kind


def refuse_encoding(request: Request) -> None:
    """Refuse a compressed body; without this it would be read as broken text.

    Raises:
        UnsupportedMediaType: ``unsupported_encoding``.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMediaType("unsupported_encoding", f"send the body as it is, without Content-Encoding: {encoding}")


def parse_json(body: bytes) -> Any:
    """Parse strictly: UTF-8, no NaN or Infinity, which JSON does not have, and no halves of surrogate pairs, which cannot be stored.

    Raises:
        BadRequest: ``malformed_json``.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
        if rb"\ud" in body.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise malformed_json("it has one half of a surrogate pair (\\ud800 to \\udfff), which is not a character") from error
    except UnicodeDecodeError as error:
        raise malformed_json(f"byte {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise malformed_json(f"{error.msg} at line {error.lineno}, column {error.colno}") from error
    except ValueError as error:
        raise malformed_json(str(error)[:200]) from error
    except RecursionError as error:
        raise malformed_json("it is nested too deeply") from error
    return value


def parse_request(body: bytes) -> Any:
    """Parse JSON whose texts the database can store.

    Raises:
        BadRequest: ``malformed_json``.
        Unprocessable: ``invalid_string``.
    """
    value = parse_json(body)
    try:
        refuse_unstorable(value)
    except DefinitionInvalid as error:
        raise from_engine(error) from error
    return value


def malformed_json(reason: str) -> BadRequest:
    return BadRequest("malformed_json", f"the body is not JSON: {reason}", [Fault("", "malformed_json", reason)])


def validated(model: type[Parsed], body: Any) -> Parsed:
    """Validate a body's shape.

    Raises:
        DefinitionInvalid: one problem per fault, each with its pointer.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise DefinitionInvalid(problems_of(error, model)) from error


def request_body(schema: str, examples: dict[str, Any]) -> dict[str, Any]:
    """Document a JSON body with the schema component of that name."""
    content = {JSON_TYPE: {"schema": {"$ref": f"#/components/schemas/{schema}"}, "examples": examples}}
    return {"requestBody": {"required": True, "content": content}}


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")
