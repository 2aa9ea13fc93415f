"""The service's OpenAPI document, built once per process: it takes seconds, and modules ask for it while tests are collected."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

from pydantic import SecretStr

from app.main.main import create_app
from app.settings.settings import Settings


@cache
def _document() -> dict[str, Any]:
    return create_app(Settings(database_url=SecretStr("postgresql://nobody@localhost/nothing"))).openapi()


def api_document() -> dict[str, Any]:
    """Return a copy of the document of a service with the settings that it ships with; no database is asked."""
    return deepcopy(_document())
