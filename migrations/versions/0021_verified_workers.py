"""results of untrusted workers are checked: whose a shard is, who may have it, and what is known of a token

Revision: 0021, after 0020
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

KIND = "ck_shards_kind"
KINDS = "kind IN ('smoke', 'runs', 'check')"
FROM_WORKERS = "UPDATE shards SET token_id = substr(worker, 1, 16) WHERE worker LIKE '________________/%'"


def upgrade() -> None:
    with op.batch_alter_table("shards") as table:
        table.add_column(sa.Column("token_id", sa.String(length=16), nullable=True))
        table.add_column(sa.Column("trusted_only", sa.Boolean(), nullable=False, server_default=sa.false()))
    _allow(KINDS)
    op.execute(FROM_WORKERS)
    with op.batch_alter_table("worker_tokens") as table:
        table.add_column(sa.Column("trusted", sa.Boolean(), nullable=False, server_default=sa.false()))
        table.add_column(sa.Column("confirmed_runs", sa.Integer(), nullable=False, server_default="0"))
        table.add_column(sa.Column("quarantined_at", sa.DateTime(timezone=True), nullable=True))
        table.add_column(sa.Column("quarantine_reason", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    with op.batch_alter_table("worker_tokens") as table:
        for name in ("quarantine_reason", "quarantined_at", "confirmed_runs", "trusted"):
            table.drop_column(name)
    op.execute("DELETE FROM shards WHERE kind = 'check'")
    with op.batch_alter_table("shards") as table:
        table.drop_constraint(op.f(KIND), type_="check")
        table.create_check_constraint(op.f(KIND), "kind IN ('smoke', 'runs')")
        table.drop_column("trusted_only")
        table.drop_column("token_id")


def _allow(kinds: str) -> None:
    """Replace the check of a shard's kind. On PostgreSQL, 0023 reads the rows that are there, without a lock."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER TABLE shards DROP CONSTRAINT {KIND}")
        op.execute(f"ALTER TABLE shards ADD CONSTRAINT {KIND} CHECK ({kinds}) NOT VALID")
        return
    with op.batch_alter_table("shards") as table:
        table.drop_constraint(op.f(KIND), type_="check")
        table.create_check_constraint(op.f(KIND), kinds)
