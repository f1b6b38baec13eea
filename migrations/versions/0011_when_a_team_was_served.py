"""when a team was last served stands with the team

Revision: 0011, after 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("teams", sa.Column("served_at", sa.DateTime(timezone=True), nullable=True))
    op.execute(
        sa.text(
            "UPDATE teams SET served_at = (SELECT max(claimed_at) FROM shards "
            "WHERE shards.team_id = teams.id AND claimed_at IS NOT NULL)"
        )
    )


def downgrade() -> None:
    op.drop_column("teams", "served_at")
