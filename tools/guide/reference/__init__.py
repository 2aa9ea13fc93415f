"""The reference: every page of it that is made from the code. One module for each source."""

from __future__ import annotations

from collections.abc import Mapping

from tools.guide.reference.client import client
from tools.guide.reference.commands import commands
from tools.guide.reference.definitions import definitions
from tools.guide.reference.errors import errors
from tools.guide.reference.functions import functions, types
from tools.guide.reference.http import document, http
from tools.guide.reference.metrics import metrics
from tools.guide.reference.settings import settings
from tools.guide.reference.statements import statements


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
