"""Who asks, and what they may do: interfaces offer what their user may."""

from __future__ import annotations

import httpx
import pytest

from app.access.rules import PRINCIPAL, Principal, Role
from app.access.scopes import Scope


async def test_without_keys_everybody_is_an_administrator(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/me")).json() == {"name": None, "role": "admin", "scope": None, "key_required": False}


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("patterns", [None, ("orders*", "prices")])
async def test_who_has_a_key_is_told_its_role_and_scope(
    client: httpx.AsyncClient, role: Role, patterns: tuple[str, ...] | None
) -> None:
    scope = None if patterns is None else Scope(patterns)
    before = PRINCIPAL.set(Principal("api_key", None, "dashboard", role, scope))
    try:
        found = (await client.get("/v1/me")).json()
    finally:
        PRINCIPAL.reset(before)
    assert found == {
        "name": "dashboard",
        "role": role.text,
        "scope": None if patterns is None else list(patterns),
        "key_required": True,
    }
