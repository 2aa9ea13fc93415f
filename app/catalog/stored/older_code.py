"""What an older version that runs beside this one, while a service is upgraded, must not work on.

Migrations say which code goes on working on the *schema* (``oldest_code``). Of what users store most says so by itself: an older version
refuses a definition with fields that it does not know. What it would pass over in silence, or what stops all of its queries, is noted here
when it is first stored: from then on an older version waits, as it does on a schema that it does not know. Where nobody stores any, both
versions go on beside each other.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
import structlog

from app.db.tables import schema_support

PARTS: Final = "0021"
"""Revision of the code that reads a stream with its parts (``into.append_to``): an older one launches readers that leave them out."""

CONNECTIONS: Final = "0026"
"""Revision of the code that knows connections: an older one cannot show an audit log that tells of them."""

READ_ONLY: Final = "0021"
"""Revision of the code that knows sources with ``read_only``: an older one cannot open one, and so makes no plan of any query."""

DELIVERIES: Final = "0030"
"""Revision of the code that knows ``into.connector``: an older one fails its query, and would edit it without its delivery."""

log = structlog.stdlib.get_logger(__name__)


def refuse_older_code(connection: sa.Connection, revision: str) -> None:
    """Note that only code of this revision, or newer, may work on what the transaction stores."""
    wanted = sa.func.greatest(schema_support.c.needed_by_use, revision)  # null counts as the smallest
    oldest = sa.func.greatest(schema_support.c.oldest_code, revision)
    statement = sa.update(schema_support).where(
        sa.or_(schema_support.c.needed_by_use.is_(None), schema_support.c.needed_by_use < revision)
    )
    if connection.execute(statement.values(needed_by_use=wanted, oldest_code=oldest)).rowcount:
        log.info("older_code_refused", oldest_code=revision)
