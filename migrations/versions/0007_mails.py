"""mails

An outbox of e-mails, and whether an account wants those that can be declined. The receiver of a webhook's message is
the webhook alone.

Revision: 0007, after 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "mails",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("address", sa.String(length=254), nullable=False),
        sa.Column("subject", sa.String(length=300), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("state IN ('waiting', 'sent', 'failed')", name=op.f("ck_mails_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mails")),
    )
    waiting = sa.text("state = 'waiting'")
    op.create_index("ix_mails_due", "mails", ["next_attempt_at"], postgresql_where=waiting, sqlite_where=waiting)
    op.add_column("accounts", sa.Column("wants_mail", sa.Boolean(), nullable=False, server_default=sa.true()))
    with op.batch_alter_table("deliveries") as batch_op:
        batch_op.drop_constraint(op.f("fk_deliveries_account_id_accounts"), type_="foreignkey")
        batch_op.drop_column("account_id")


def downgrade() -> None:
    with op.batch_alter_table("deliveries") as batch_op:
        batch_op.add_column(sa.Column("account_id", sa.String(length=16), nullable=True))
        batch_op.create_foreign_key(
            op.f("fk_deliveries_account_id_accounts"), "accounts", ["account_id"], ["id"], ondelete="CASCADE"
        )
    op.drop_column("accounts", "wants_mail")
    op.drop_table("mails")
