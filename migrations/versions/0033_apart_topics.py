"""Let ``on_lost`` of sources on topics change while queries read them: it is no part of the name of what they read any more.

Revision ID: 0033
Revises: 0032
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None
oldest_code = "0023"

_SKIPS = "origin = 'source' AND definition #>> '{connector,type}' = 'kafka' AND definition #>> '{connector,on_lost}' = 'skip'"
_APART = "origin = 'source' AND definition #>> '{connector,type}' = 'kafka' AND definition #>> '{connector,order}' = 'apart'"


def upgrade() -> None:
    """Sources that say ``skip`` keep the name of their order, in which positions and state name it: they say ``"order": "apart"``.

    Older code knows no ``order`` and says so of such a source (``stored_by_newer_version``); all others it reads as before.
    """
    _write(_SKIPS, lambda connector: {**connector, "order": "apart"})


def downgrade() -> None:
    """Take it away, where that changes no name: a source that says ``stop`` since keeps its order no more, and queries on it begin anew.

    So it is with one that was registered since and says ``skip``: to older code that is part of the name.
    """
    _write(_APART, lambda connector: {name: value for name, value in connector.items() if name != "order"})


def _write(condition: str, change: Any) -> None:
    """Change connectors. Here and not in the database, for the order of columns is kept."""
    connection = op.get_bind()
    rows = connection.execute(sa.text(f"SELECT id, definition FROM slackwater.relation WHERE {condition} FOR UPDATE"))  # noqa: S608 - a constant
    for row in rows.all():
        definition = {**row.definition, "connector": change(row.definition["connector"])}
        connection.execute(
            sa.text("UPDATE slackwater.relation SET definition = CAST(:definition AS json) WHERE id = :id"),
            {"id": row.id, "definition": json.dumps(definition)},
        )
