"""which evaluation another one took the place of when organisers had a submission run again

Revision: 0031, after 0030. Of what was replaced before, it is not known.
"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("evaluations", sa.Column("replaces_id", sa.String(16), nullable=True))


def downgrade() -> None:
    op.drop_column("evaluations", "replaces_id")
