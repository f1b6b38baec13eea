"""whether the scores of an imported competition are verified, and the key that its archive named

Revision: 0020, after 0019
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("competitions", sa.Column("archive_key", sa.String(64), nullable=True))
    op.add_column("competitions", sa.Column("scores_verified", sa.Boolean(), nullable=False, server_default=sa.true()))


def downgrade() -> None:
    with op.batch_alter_table("competitions") as table:
        table.drop_column("scores_verified")
        table.drop_column("archive_key")
