"""``python tools/openapi.py``: print the OpenAPI document of this version, from which the types of app/console are generated."""

from __future__ import annotations

import json
import sys

from pydantic import SecretStr

from app.main.main import create_app
from app.settings.settings import Settings


def main() -> None:
    """Nothing is started: the database is not asked for the document."""
    document = create_app(Settings(database_url=SecretStr("postgresql://nobody@localhost/nothing"))).openapi()
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
