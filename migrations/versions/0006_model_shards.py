"""the preparation of a split in shards of models

Revision: 0006, after 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "model_shards",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("split_id", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("first_model", sa.Integer(), nullable=False),
        sa.Column("n_models", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("strikes", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=120), nullable=True),
        sa.Column("models_done", sa.Float(), nullable=False),
        sa.Column("queued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "(state = 'leased') = (lease_expires_at IS NOT NULL)", name=op.f("ck_model_shards_leased_has_lease")
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'leased', 'done', 'failed', 'cancelled')", name=op.f("ck_model_shards_state")
        ),
        sa.ForeignKeyConstraint(
            ["split_id"], ["splits.id"], name=op.f("fk_model_shards_split_id_splits"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_shards")),
        sa.UniqueConstraint("split_id", "kind", "position", name=op.f("uq_model_shards_split_id_kind_position")),
    )


def downgrade() -> None:
    op.drop_table("model_shards")
