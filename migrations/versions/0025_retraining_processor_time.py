"""what one retraining and an empty run take of the processor, in the sandbox that runs submissions

Revision: 0025, after 0024. Splits prepared before have neither: their runs are limited by the clock, as they were.
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

COLUMNS = ("retraining_cpu_s", "start_cpu_s")


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("splits", sa.Column(name, sa.Double(), nullable=True))


def downgrade() -> None:
    for name in reversed(COLUMNS):
        op.drop_column("splits", name)
