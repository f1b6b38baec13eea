"""no index of claims, now that a team knows when it was last served

Revision: 0012, after 0011
"""

import sqlalchemy as sa

from migrations.online import add_index, remove_index

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

CLAIMED = sa.text("claimed_at IS NOT NULL")


def upgrade() -> None:
    remove_index("ix_shards_served", "shards")


def downgrade() -> None:
    add_index("ix_shards_served", "shards", ["team_id", "claimed_at"], postgresql_where=CLAIMED, sqlite_where=CLAIMED)
