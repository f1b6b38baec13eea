"""an index of the leases of scores, by which each sweep looks for lost ones

Revision: 0036, after 0035. Safe to run again after it was broken off.
"""

import sqlalchemy as sa

from migrations.online import add_index, remove_index

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

INDEX = "ix_evaluations_scoring_until"
HELD = sa.text("scoring_until IS NOT NULL")


def upgrade() -> None:
    add_index(INDEX, "evaluations", ["scoring_until"], postgresql_where=HELD, sqlite_where=HELD)


def downgrade() -> None:
    remove_index(INDEX, "evaluations")
