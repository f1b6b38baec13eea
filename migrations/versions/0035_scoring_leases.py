"""the lease of the worker that scores an evaluation

Revision: 0035, after 0034. A worker of the release before scores without one; the first score that is recorded counts.
"""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("evaluations", sa.Column("scoring_until", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("evaluations", "scoring_until")
