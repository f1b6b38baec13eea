"""what failures on hidden data have told

Revision: 0004, after 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "disclosures",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("submission_id", sa.String(length=16), nullable=False),
        sa.Column("evaluation_id", sa.String(length=16), nullable=False),
        sa.Column("bits", sa.Float(), nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["evaluation_id"],
            ["evaluations.id"],
            name=op.f("fk_disclosures_evaluation_id_evaluations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"], name=op.f("fk_disclosures_submission_id_submissions")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_disclosures")),
    )
    op.create_index(op.f("ix_disclosures_submission_id"), "disclosures", ["submission_id"])


def downgrade() -> None:
    op.drop_table("disclosures")
