"""addresses are shared

An e-mail address is no longer unique: nobody learns from a refusal who has an account here.

Revision: 0010, after 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("accounts") as batch_op:
        batch_op.drop_constraint(op.f("uq_accounts_email"), type_="unique")
        batch_op.create_index(op.f("ix_accounts_email"), ["email"])


def downgrade() -> None:
    """Of several accounts with one address, the earliest keeps it."""
    op.execute(
        sa.text(
            "UPDATE accounts SET email = NULL WHERE EXISTS (SELECT 1 FROM accounts AS other WHERE "
            "other.email = accounts.email AND (other.created_at < accounts.created_at OR "
            "(other.created_at = accounts.created_at AND other.id < accounts.id)))"
        )
    )
    with op.batch_alter_table("accounts") as batch_op:
        batch_op.drop_index(op.f("ix_accounts_email"))
        batch_op.create_unique_constraint(op.f("uq_accounts_email"), ["email"])
