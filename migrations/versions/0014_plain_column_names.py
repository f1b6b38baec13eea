"""plain column names: failed_attempts of shards, disclosed_at of failures' details

Only names change: no row is read or written.

Revision: 0014, after 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

RENAMED = (
    ("shards", "strikes", "failed_attempts"),
    ("model_shards", "strikes", "failed_attempts"),
    ("disclosures", "told_at", "disclosed_at"),
)


def upgrade() -> None:
    for table, old, new in RENAMED:
        _rename(table, old, new)


def downgrade() -> None:
    for table, old, new in RENAMED:
        _rename(table, new, old)


def _rename(table: str, old: str, new: str) -> None:
    """In plain SQL, which both databases know: Alembic's batch mode would copy the whole table on SQLite."""
    op.execute(sa.text(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}"))
