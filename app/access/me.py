"""GET /v1/me: the caller's name, role and scope."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field

from app.access.rules import PRINCIPAL, Role
from app.http.answers.documented import answered, problems
from app.http.parameters import OnlyKnownParameters, ServicesOf
from app.http.schemas import Answer

router = APIRouter(prefix="/v1", tags=["api keys"], dependencies=[OnlyKnownParameters])


class MeAnswer(Answer):
    """The caller's name, role and scope."""

    name: str | None = Field(
        description="Name of the API key, or of the token's subject as the history shows it; null where keys are not required."
    )
    role: Literal["read", "write", "admin"] = Field(
        description="What the caller may do; each role includes the ones before. `admin` where keys are not required."
    )
    scope: list[str] | None = Field(
        description="Patterns of the names that the caller may see; null: all.", examples=[["orders*"]]
    )
    key_required: bool = Field(description="Whether the service requires keys.")


ME: dict[str, Any] = {"name": "dashboard", "role": "read", "scope": ["orders*", "prices"], "key_required": True}


@router.get("/me", summary="Who am I?", response_model=MeAnswer, responses={200: answered(ME, "The caller."), **problems(400)})
async def get_me(services: ServicesOf) -> MeAnswer:
    """The role and the scope of the request's key. A user interface can offer only what its user may do."""
    principal = PRINCIPAL.get()
    if principal is None:
        return MeAnswer(name=None, role=Role.ADMIN.text, scope=None, key_required=services.settings.is_key_required)
    return MeAnswer(
        name=principal.name,
        role=principal.role.text,
        scope=None if principal.scope is None else list(principal.scope.patterns),
        key_required=True,
    )
