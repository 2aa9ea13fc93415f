"""Keep the revision in our own schema: `migrations/env.py` moves the table before it applies anything; this revision makes it do so.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None
oldest_code = "0012"


def upgrade() -> None:
    """Nothing is left to do: see the module's text."""


def downgrade() -> None:
    """Nothing: older code reads the revision through the view that was left in the table's place."""
