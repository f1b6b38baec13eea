"""A migration that no version has yet."""

import os
from pathlib import Path

import pytest

from server import migrate
from server.migrate import alembic_config

HEAD = sorted(path.stem[:4] for path in (Path(__file__).parents[2] / "migrations" / "versions").glob("0*.py"))[-1]
NEXT = f'''"""What the next version may do: a column, a table, an index."""

import sqlalchemy as sa
from alembic import op

from migrations.online import add_index

revision, down_revision = "next", "{HEAD}"
branch_labels = depends_on = None


def upgrade() -> None:
    op.add_column("submissions", sa.Column("of_the_next", sa.Integer(), server_default="7", nullable=False))
    op.create_table("of_the_next", sa.Column("id", sa.Integer(), primary_key=True))
    add_index("ix_of_the_next", "submissions", ["of_the_next"])


def downgrade() -> None:
    op.drop_index("ix_of_the_next", "submissions")
    op.drop_table("of_the_next")
    op.drop_column("submissions", "of_the_next")
'''


def with_next_version(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the next upgrade also run a migration that no version has yet."""
    folder.mkdir()
    (folder / "next.py").write_text(NEXT)
    present = Path(__file__).parents[2] / "migrations" / "versions"

    def config(url: str) -> object:
        made = alembic_config(url)
        made.set_main_option("version_locations", f"{present}{os.pathsep}{folder}")
        return made

    monkeypatch.setattr(migrate, "alembic_config", config)
