"""Types of route parameters are defined above their routes: FastAPI keeps a later one as a name without a type, and the first call fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ForwardRef, get_args

from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts
from pydantic import SecretStr

from app.main.main import create_app
from app.settings.settings import Settings


def parameters(dependant: Dependant) -> Iterator[tuple[str, Any]]:
    for parameter in (*dependant.query_params, *dependant.path_params, *dependant.header_params, *dependant.body_params):
        yield parameter.alias, parameter.field_info.annotation
    for nested in dependant.dependencies:
        yield from parameters(nested)


def is_unresolved(annotation: Any) -> bool:
    return isinstance(annotation, ForwardRef) or any(map(is_unresolved, get_args(annotation)))


def test_every_parameter_has_a_type() -> None:
    app = create_app(Settings(database_url=SecretStr("postgresql://nobody@localhost/nothing")))
    found = [
        (context.path, name, is_unresolved(annotation))
        for context in iter_route_contexts(app.routes)
        if (dependant := getattr(context, "dependant", None)) is not None
        for name, annotation in parameters(dependant)
    ]
    assert len(found) > 100
    assert [each for each in found if each[2]] == []
