"""who takes part in a competition, how they are admitted, and which terms they accepted

Revision: 0026, after 0025. Competitions that exist are open to everybody, as they were.
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

NEW = ("participants", "admission_links", "admitted_addresses", "competition_texts", "terms_acceptances")


def _id(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.String(length=16), nullable=False)


def _time(name: str, *, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _of(table: str, column: str, target: str, *, cascade: bool = False) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_{column}_{target}")
    return sa.ForeignKeyConstraint([column], [f"{target}.id"], name=name, ondelete="CASCADE" if cascade else None)


def upgrade() -> None:
    table = "participants"
    op.create_table(
        table,
        _id("competition_id"),
        _id("account_id"),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("message", sa.String(length=1000), nullable=False),
        sa.Column("reason", sa.String(length=1000), nullable=False),
        _time("created_at"),
        _time("decided_at", nullable=True),
        sa.Column("decided_by", sa.String(length=16), nullable=True),
        sa.CheckConstraint("state IN ('asked', 'admitted', 'refused')", name=op.f("ck_participants_state")),
        _of(table, "competition_id", "competitions", cascade=True),
        _of(table, "account_id", "accounts", cascade=True),
        _of(table, "decided_by", "accounts"),
        sa.PrimaryKeyConstraint("competition_id", "account_id", name=op.f("pk_participants")),
    )
    table = "admission_links"
    op.create_table(
        table,
        _id("id"),
        _id("competition_id"),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("label", sa.String(length=100), nullable=False),
        _id("created_by"),
        _time("created_at"),
        _time("expires_at"),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("most_uses", sa.Integer(), nullable=False),
        _time("revoked_at", nullable=True),
        sa.CheckConstraint("uses >= 0 AND uses <= most_uses", name=op.f("ck_admission_links_uses")),
        _of(table, "competition_id", "competitions", cascade=True),
        _of(table, "created_by", "accounts"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_admission_links")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_admission_links_token_hash")),
    )
    op.create_index(op.f("ix_admission_links_competition_id"), table, ["competition_id"])
    table = "admitted_addresses"
    op.create_table(
        table,
        _id("competition_id"),
        sa.Column("address", sa.String(length=254), nullable=False),
        _id("added_by"),
        _time("added_at"),
        _of(table, "competition_id", "competitions", cascade=True),
        _of(table, "added_by", "accounts"),
        sa.PrimaryKeyConstraint("competition_id", "address", name=op.f("pk_admitted_addresses")),
    )
    table = "competition_texts"
    op.create_table(
        table,
        _id("competition_id"),
        sa.Column("name", sa.String(length=20), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("text", sa.Text(), nullable=False),
        _id("author_id"),
        _time("created_at"),
        _of(table, "competition_id", "competitions", cascade=True),
        _of(table, "author_id", "accounts"),
        sa.PrimaryKeyConstraint("competition_id", "name", "version", name=op.f("pk_competition_texts")),
    )
    table = "terms_acceptances"
    op.create_table(
        table,
        _id("competition_id"),
        _id("account_id"),
        sa.Column("version", sa.Integer(), nullable=False, autoincrement=False),
        _time("accepted_at"),
        _of(table, "competition_id", "competitions", cascade=True),
        _of(table, "account_id", "accounts", cascade=True),
        sa.PrimaryKeyConstraint("competition_id", "account_id", "version", name=op.f("pk_terms_acceptances")),
    )


def downgrade() -> None:
    for table in reversed(NEW):
        op.drop_table(table)
