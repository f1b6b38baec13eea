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
OF_A_TOKEN = sa.text("token_id IS NOT NULL")
FROM_WORKERS = "UPDATE shards SET token_id = substr(worker, 1, 16) WHERE worker LIKE '________________/%'"


def upgrade() -> None:
    with op.batch_alter_table("shards") as table:
        table.add_column(sa.Column("token_id", sa.String(length=16), nullable=True))
        table.add_column(sa.Column("trusted_only", sa.Boolean(), nullable=False, server_default=sa.false()))
        table.drop_constraint(op.f(KIND), type_="check")
        table.create_check_constraint(op.f(KIND), "kind IN ('smoke', 'runs', 'check')")
    op.execute(FROM_WORKERS)
    with op.batch_alter_table("worker_tokens") as table:
        table.add_column(sa.Column("trusted", sa.Boolean(), nullable=False, server_default=sa.false()))
        table.add_column(sa.Column("confirmed_runs", sa.Integer(), nullable=False, server_default="0"))
        table.add_column(sa.Column("quarantined_at", sa.DateTime(timezone=True), nullable=True))
        table.add_column(sa.Column("quarantine_reason", sa.Text(), nullable=False, server_default=""))
    # Built in this transaction, so that the migration happens as a whole: the index holds remote workers' shards alone.
    op.create_index("ix_shards_token_id", "shards", ["token_id"], postgresql_where=OF_A_TOKEN, sqlite_where=OF_A_TOKEN)


def downgrade() -> None:
    op.drop_index("ix_shards_token_id", "shards")
    with op.batch_alter_table("worker_tokens") as table:
        for name in ("quarantine_reason", "quarantined_at", "confirmed_runs", "trusted"):
            table.drop_column(name)
    op.execute("DELETE FROM shards WHERE kind = 'check'")
    with op.batch_alter_table("shards") as table:
        table.drop_constraint(op.f(KIND), type_="check")
        table.create_check_constraint(op.f(KIND), "kind IN ('smoke', 'runs')")
        table.drop_column("trusted_only")
        table.drop_column("token_id")
