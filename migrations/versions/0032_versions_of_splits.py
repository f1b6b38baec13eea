"""versions of a split: one is current, a higher one replaces it once a re-judging on it is applied

Revision: 0032, after 0031. What is there is version 1 and current.
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

OF_ONE, OF_VERSIONS = "uq_splits_competition_id_visibility", "uq_splits_competition_id_visibility_version"


def upgrade() -> None:
    with op.batch_alter_table("splits") as table:
        table.add_column(sa.Column("version", sa.Integer(), nullable=False, server_default="1"))
        table.add_column(sa.Column("is_current", sa.Boolean(), nullable=False, server_default=sa.true()))
        table.add_column(sa.Column("dataset", sa.JSON(), nullable=True))
        table.drop_constraint(op.f(OF_ONE), type_="unique")
        table.create_unique_constraint(op.f(OF_VERSIONS), ["competition_id", "visibility", "version"])
    current = sa.text("is_current")
    op.create_index(
        "uq_splits_current",
        "splits",
        ["competition_id", "visibility"],
        unique=True,
        postgresql_where=current,
        sqlite_where=current,
    )


def downgrade() -> None:
    """Versions that are not current cannot be kept: a downgrade fails while there are any."""
    op.drop_index("uq_splits_current", "splits")
    with op.batch_alter_table("splits") as table:
        table.drop_constraint(op.f(OF_VERSIONS), type_="unique")
        table.create_unique_constraint(op.f(OF_ONE), ["competition_id", "visibility"])
        for name in ("dataset", "is_current", "version"):
            table.drop_column(name)
