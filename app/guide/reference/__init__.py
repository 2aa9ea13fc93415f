"""The reference: every page of it that is made from the code. One module for each source."""

from __future__ import annotations

from collections.abc import Mapping

from app.guide.reference.client import client
from app.guide.reference.commands import commands
from app.guide.reference.definitions import definitions
from app.guide.reference.errors import errors
from app.guide.reference.functions import functions, types
from app.guide.reference.http import document, http
from app.guide.reference.metrics import metrics
from app.guide.reference.settings import settings
from app.guide.reference.statements import statements


def reference() -> Mapping[str, str]:
    """Return the pages: their paths below the reference, and their texts."""
    return {
        "statements.md": statements(),
        "definitions.md": definitions(),
        "functions.md": functions(),
        "types.md": types(),
        **http(document()),
        "errors.md": errors(),
        "settings.md": settings(),
        "metrics.md": metrics(),
        "cli.md": commands(),
        "client.md": client(),
    }
