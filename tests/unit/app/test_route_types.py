"""Types of route parameters are defined above their routes: FastAPI keeps a later one as a name without a type, and the first call fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from fastapi._compat.v2 import ModelField
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIRouter
from pydantic.errors import PydanticUserError

import app.main.main  # noqa: F401 - has all routers


def parameters(dependant: Dependant) -> Iterator[ModelField]:
    yield from (*dependant.query_params, *dependant.path_params, *dependant.header_params, *dependant.body_params)
    for nested in dependant.dependencies:
        yield from parameters(nested)


def is_unresolved(parameter: ModelField) -> bool:
    try:
        parameter.validate("any", {}, loc=())
    except PydanticUserError:
        return True
    return False


def test_every_parameter_has_a_type() -> None:
    routers = {
        id(value): value for name, module in list(sys.modules.items()) if name.startswith("app.")
        for value in vars(module).values() if isinstance(value, APIRouter)
    }  # fmt: skip
    found = [
        (route.path, parameter.alias, is_unresolved(parameter))
        for router in routers.values()
        for route in router.routes
        if isinstance(route, APIRoute)
        for parameter in parameters(route.dependant)
    ]
    assert len(found) > 100
    assert [each for each in found if each[2]] == []
