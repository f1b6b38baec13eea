"""how many attempts at a split's preparation were lost

Revision: 0018, after 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("splits", sa.Column("failed_attempts", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("splits") as table:
        table.drop_column("failed_attempts")
