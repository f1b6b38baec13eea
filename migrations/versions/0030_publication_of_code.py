"""whether a team lets the code of a submission be published after the end

Revision: 0030, after 0029. Nobody has agreed yet.
"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("submissions", sa.Column("publish_code", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    op.drop_column("submissions", "publish_code")
