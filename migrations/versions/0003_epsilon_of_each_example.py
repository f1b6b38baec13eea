"""scores keep the epsilon of each forget example

Revision: 0003, after 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = ("public_scores", "private_scores")


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("epsilon", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    for table in TABLES:
        op.drop_column(table, "epsilon")
