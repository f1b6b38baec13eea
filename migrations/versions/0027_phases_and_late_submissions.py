"""the phase of a submission, whether it counts, and until when one team may submit

Revision: 0027, after 0026. Every submission before counts, and belongs to no phase.
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("submissions", sa.Column("phase", sa.String(length=40), nullable=False, server_default=""))
    op.add_column("submissions", sa.Column("is_official", sa.Boolean(), nullable=False, server_default=sa.true()))
    op.add_column("teams", sa.Column("extended_until", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("teams", "extended_until")
    op.drop_column("submissions", "is_official")
    op.drop_column("submissions", "phase")
