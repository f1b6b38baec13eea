"""what 0021 leaves to be done beside readers and writers: rows checked, shards of untrusted workers indexed

Revision: 0023, after 0022. Safe to run again after it was broken off.
"""

import sqlalchemy as sa
from alembic import op

from migrations.online import add_index, remove_index

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

INDEX = "ix_shards_token_id"
OF_A_TOKEN = sa.text("token_id IS NOT NULL")


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        with op.get_context().autocommit_block():
            op.execute("ALTER TABLE shards VALIDATE CONSTRAINT ck_shards_kind")
    add_index(INDEX, "shards", ["token_id"], postgresql_where=OF_A_TOKEN, sqlite_where=OF_A_TOKEN)


def downgrade() -> None:
    remove_index(INDEX, "shards")
