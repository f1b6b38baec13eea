"""benchmarks, and competitions that are their cells

Revision: 0016, after 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "benchmarks",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("slug", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("cells", sa.JSON(), nullable=False),
        sa.Column("methods", sa.JSON(), nullable=False),
        sa.Column("created_by", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("submits_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("complete_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["created_by"], ["accounts.id"], name=op.f("fk_benchmarks_created_by_accounts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_benchmarks")),
        sa.UniqueConstraint("slug", name=op.f("uq_benchmarks_slug")),
    )
    op.add_column("competitions", sa.Column("cell_key", sa.String(length=20), nullable=True))
    op.create_index("ix_competitions_cell_key", "competitions", ["cell_key"], unique=True)


def downgrade() -> None:
    op.drop_index("ix_competitions_cell_key", table_name="competitions")
    op.drop_column("competitions", "cell_key")
    op.drop_table("benchmarks")
