"""re-judgings with another attack family or delta

Revision: 0017, after 0016
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("rejudgings", sa.Column("metric", sa.JSON(), nullable=True))
    op.add_column("rejudgings", sa.Column("oracle", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("rejudgings") as table:
        table.drop_column("oracle")
        table.drop_column("metric")
