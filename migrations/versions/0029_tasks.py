"""competitions of several tasks: each task is a competition with a parent, and so is each part of a submission

Revision: 0029, after 0025. What is there has no parent: a competition without tasks, a submission to one.
"""

import sqlalchemy as sa
from alembic import op

from migrations.online import add_index, remove_index

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

OF_COMPETITIONS, OF_SUBMISSIONS = "fk_competitions_parent_id_competitions", "fk_submissions_parent_id_submissions"


def upgrade() -> None:
    with op.batch_alter_table("competitions") as table:
        table.add_column(sa.Column("parent_id", sa.String(length=16), nullable=True))
        table.add_column(sa.Column("task_name", sa.String(length=40), nullable=True))
        table.add_column(sa.Column("task_place", sa.Integer(), nullable=False, server_default="0"))
        table.create_foreign_key(op.f(OF_COMPETITIONS), "competitions", ["parent_id"], ["id"])
    op.create_index(op.f("ix_competitions_parent_id"), "competitions", ["parent_id"])
    _refer_to_submissions()
    add_index("ix_submissions_parent_id", "submissions", ["parent_id"])


def downgrade() -> None:
    remove_index("ix_submissions_parent_id", "submissions")
    with op.batch_alter_table("submissions") as table:
        table.drop_constraint(op.f(OF_SUBMISSIONS), type_="foreignkey")
        table.drop_column("parent_id")
    op.drop_index(op.f("ix_competitions_parent_id"), "competitions")
    with op.batch_alter_table("competitions") as table:
        table.drop_constraint(op.f(OF_COMPETITIONS), type_="foreignkey")
        for name in ("task_place", "task_name", "parent_id"):
            table.drop_column(name)


def _refer_to_submissions() -> None:
    """Add the column. On PostgreSQL nobody looks at the rows that are there: none has a parent."""
    column = sa.Column("parent_id", sa.String(length=16), nullable=True)
    if op.get_bind().dialect.name == "postgresql":
        op.add_column("submissions", column)
        key = "FOREIGN KEY (parent_id) REFERENCES submissions (id) NOT VALID"
        op.execute(f"ALTER TABLE submissions ADD CONSTRAINT {OF_SUBMISSIONS} {key}")
        return
    with op.batch_alter_table("submissions") as table:
        table.add_column(column)
        table.create_foreign_key(op.f(OF_SUBMISSIONS), "submissions", ["parent_id"], ["id"])
