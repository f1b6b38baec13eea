"""scopes of tokens, confirmed addresses, second factors

A token that never ended ends a year from now. No address counts as confirmed: nothing says who has it.

Revision: 0022, after 0021
"""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from alembic import op

from migrations.online import add_index, remove_index

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

OLD_TOKENS_LAST = timedelta(days=365)
CONFIRMED = sa.text("email_confirmed_at IS NOT NULL")
NEW = (
    sa.Column("email_confirmed_at", sa.DateTime(timezone=True), nullable=True),
    sa.Column("totp_salt", sa.String(length=32), nullable=True),
    sa.Column("totp_on_at", sa.DateTime(timezone=True), nullable=True),
    sa.Column("totp_step", sa.Integer(), nullable=True),
)


def upgrade() -> None:
    for column in NEW:
        op.add_column("accounts", sa.Column(column.name, column.type, nullable=True))
    add_index(
        "uq_accounts_confirmed", "accounts", ["email"], unique=True, sqlite_where=CONFIRMED, postgresql_where=CONFIRMED
    )
    op.add_column("api_tokens", sa.Column("scope", sa.String(length=8), nullable=False, server_default="full"))
    tokens = sa.table("api_tokens", sa.column("expires_at", sa.DateTime(timezone=True)))
    end = datetime.now(UTC) + OLD_TOKENS_LAST
    op.execute(tokens.update().where(tokens.c.expires_at.is_(None)).values(expires_at=end))
    op.create_table(
        "recovery_codes",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("account_id", sa.String(length=16), nullable=False),
        sa.Column("code_hash", sa.String(length=64), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_recovery_codes_account_id_accounts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recovery_codes")),
        sa.UniqueConstraint("code_hash", name=op.f("uq_recovery_codes_code_hash")),
    )
    op.create_index(op.f("ix_recovery_codes_account_id"), "recovery_codes", ["account_id"])


def downgrade() -> None:
    op.drop_table("recovery_codes")
    with op.batch_alter_table("api_tokens") as table:
        table.drop_column("scope")
    remove_index("uq_accounts_confirmed", "accounts")
    with op.batch_alter_table("accounts") as table:
        for column in NEW:
            table.drop_column(column.name)
