"""whether a score waits until an organiser confirms it

Revision: 0033, after 0032. Every score before counts.
"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

TABLES = ("public_scores", "private_scores")


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("is_unconfirmed", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    for table in TABLES:
        op.drop_column(table, "is_unconfirmed")
