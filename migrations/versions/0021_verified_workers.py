"""results of untrusted workers are checked: whose a shard is, who may have it, and what is known of a token

Revision: 0021, after 0019
"""

import sqlalchemy as sa
from alembic import op

from migrations.online import add_index, remove_index

revision = "0021"
down_revision = "0019"
branch_labels = None
depends_on = None

KIND = op.f("ck_shards_kind")
OF_A_TOKEN = sa.text("token_id IS NOT NULL")
FROM_WORKERS = "UPDATE shards SET token_id = substr(worker, 1, 16) WHERE worker LIKE '________________/%'"


def upgrade() -> None:
    with op.batch_alter_table("shards") as table:
        table.add_column(sa.Column("token_id", sa.String(length=16), nullable=True))
        table.add_column(sa.Column("trusted_only", sa.Boolean(), nullable=False, server_default=sa.false()))
        table.drop_constraint(KIND, type_="check")
        # PostgreSQL reads the rows below, without holding the table.
        table.create_check_constraint(KIND, "kind IN ('smoke', 'runs', 'check')", postgresql_not_valid=True)
    if op.get_bind().dialect.name == "postgresql":
        with op.get_context().autocommit_block():
            op.execute(f"ALTER TABLE shards VALIDATE CONSTRAINT {KIND}")
    op.execute(FROM_WORKERS)
    with op.batch_alter_table("worker_tokens") as table:
        table.add_column(sa.Column("trusted", sa.Boolean(), nullable=False, server_default=sa.false()))
        table.add_column(sa.Column("confirmed_runs", sa.Integer(), nullable=False, server_default="0"))
        table.add_column(sa.Column("quarantined_at", sa.DateTime(timezone=True), nullable=True))
        table.add_column(sa.Column("quarantine_reason", sa.Text(), nullable=False, server_default=""))
    add_index("ix_shards_token_id", "shards", ["token_id"], postgresql_where=OF_A_TOKEN, sqlite_where=OF_A_TOKEN)


def downgrade() -> None:
    remove_index("ix_shards_token_id", "shards")
    with op.batch_alter_table("worker_tokens") as table:
        for name in ("quarantine_reason", "quarantined_at", "confirmed_runs", "trusted"):
            table.drop_column(name)
    op.execute("DELETE FROM shards WHERE kind = 'check'")
    with op.batch_alter_table("shards") as table:
        table.drop_constraint(KIND, type_="check")
        table.create_check_constraint(KIND, "kind IN ('smoke', 'runs')")
        table.drop_column("trusted_only")
        table.drop_column("token_id")
