"""the host that has just given a shard back, which gets it again only if no other takes it

Revision: 0034, after 0033. Shards that wait now go to any host.
"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("shards", sa.Column("avoided_host", sa.String(120), nullable=True))


def downgrade() -> None:
    op.drop_column("shards", "avoided_host")
