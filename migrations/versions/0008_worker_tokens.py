"""worker tokens

Revision: 0008, after 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "worker_tokens",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("competition_id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("public_only", sa.Boolean(), nullable=False),
        sa.Column("created_by", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["competition_id"],
            ["competitions.id"],
            name=op.f("fk_worker_tokens_competition_id_competitions"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["created_by"], ["accounts.id"], name=op.f("fk_worker_tokens_created_by_accounts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_worker_tokens")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_worker_tokens_token_hash")),
    )
    op.create_index(op.f("ix_worker_tokens_competition_id"), "worker_tokens", ["competition_id"])
    with op.batch_alter_table("workers") as workers:
        workers.add_column(sa.Column("token_id", sa.String(length=16), nullable=True))
        workers.create_foreign_key(
            op.f("fk_workers_token_id_worker_tokens"), "worker_tokens", ["token_id"], ["id"], ondelete="CASCADE"
        )
        workers.create_index(op.f("ix_workers_token_id"), ["token_id"])


def downgrade() -> None:
    with op.batch_alter_table("workers") as workers:
        workers.drop_index(op.f("ix_workers_token_id"))
        workers.drop_constraint(op.f("fk_workers_token_id_worker_tokens"), type_="foreignkey")
        workers.drop_column("token_id")
    op.drop_table("worker_tokens")
