"""one order of the queue: class and round of each shard that waits; what preparations use; cordoned hosts; upkeep

Revision: 0024, after 0023
"""

import sqlalchemy as sa
from alembic import op

from migrations.online import add_index, remove_index

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

QUEUED = sa.text("state = 'queued'")
FOR_ALL = sa.text("state = 'queued' AND NOT trusted_only")
OPEN = "state IN ('queued', 'leased')"
ORDER = ["split_id", "turn", "id"]
CLASSES = {-10: 0, -5: 3, 0: 4, 1: 5, 2: 6}  # from minus the priority
ROUNDS = 100_000_000
STATE = "ck_workers_state"
STATES = "state IN ('active', 'cooling', 'quarantined', 'draining', 'stopped')"
OLD_STATES = "state IN ('active', 'draining', 'stopped')"


def upgrade() -> None:
    op.create_table(
        "preparation_use",
        sa.Column("account_id", sa.String(length=16), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("cpu_time_s", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_preparation_use_account_id_accounts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("account_id", "day", name=op.f("pk_preparation_use")),
    )
    op.create_table(
        "cordoned_hosts",
        sa.Column("host", sa.String(length=120), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("ordered_by", sa.String(length=16), nullable=True),
        sa.Column("ordered_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["ordered_by"], ["accounts.id"], name=op.f("fk_cordoned_hosts_ordered_by_accounts")),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_cordoned_hosts")),
    )
    op.create_table(
        "last_times",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_last_times")),
    )
    with op.batch_alter_table("workers") as table:
        table.add_column(sa.Column("detail", sa.Text(), nullable=False, server_default=""))
        table.drop_constraint(op.f(STATE), type_="check")
        table.create_check_constraint(op.f(STATE), STATES)
    classes = " ".join(f"WHEN {old} THEN {new * ROUNDS}" for old, new in CLASSES.items())
    op.execute(  # of numbers alone
        f"""UPDATE shards SET turn = CASE turn {classes} ELSE turn END + ranked.round
            FROM (SELECT id, CASE WHEN turn < 0 THEN 0
                             ELSE dense_rank() OVER (PARTITION BY split_id, team_id, turn ORDER BY evaluation_id) - 1
                             END AS round FROM shards WHERE {OPEN}) AS ranked
            WHERE ranked.id = shards.id"""  # noqa: S608
    )
    add_index("ix_shards_order", "shards", ORDER, postgresql_where=QUEUED, sqlite_where=QUEUED)
    add_index("ix_shards_open_order", "shards", ORDER, postgresql_where=FOR_ALL, sqlite_where=FOR_ALL)
    remove_index("ix_shards_queue", "shards")


def downgrade() -> None:
    columns = ["split_id", "team_id", "turn", "id"]
    add_index("ix_shards_queue", "shards", columns, postgresql_where=QUEUED, sqlite_where=QUEUED)
    remove_index("ix_shards_open_order", "shards")
    remove_index("ix_shards_order", "shards")
    classes = " ".join(f"WHEN {new} THEN {old}" for old, new in CLASSES.items())
    # Checks were as urgent as what organisers ask for; evaluations that have begun were like the others.
    op.execute(f"UPDATE shards SET turn = CASE turn / {ROUNDS} {classes} WHEN 1 THEN -5 ELSE 0 END WHERE {OPEN}")  # noqa: S608
    op.execute("UPDATE workers SET state = 'draining' WHERE state IN ('cooling', 'quarantined')")
    with op.batch_alter_table("workers") as table:
        table.drop_column("detail")
        table.drop_constraint(op.f(STATE), type_="check")
        table.create_check_constraint(op.f(STATE), OLD_STATES)
    op.drop_table("last_times")
    op.drop_table("cordoned_hosts")
    op.drop_table("preparation_use")
