"""the attempt that holds the lease of an evaluation's scoring

Revision: 0037, after 0036. Leases that are held stay; a worker of the release before extends and ends any.
"""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("evaluations", sa.Column("scoring_attempt", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("evaluations", "scoring_attempt")
