"""indexes for the audit log's filters and the dashboard's pace

Revision: 0009, after 0008
"""

from migrations.online import add_index, remove_index

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

INDEXES = {
    "ix_audit_events_competition": ("audit_events", ["competition_id", "id"]),
    "ix_audit_events_subject": ("audit_events", ["subject", "id"]),
    "ix_audit_events_action": ("audit_events", ["action", "id"]),
    "ix_audit_events_actor": ("audit_events", ["actor", "id"]),
    "ix_shard_attempts_ended_at": ("shard_attempts", ["ended_at"]),
}


def upgrade() -> None:
    for name, (table, columns) in INDEXES.items():
        add_index(name, table, columns)


def downgrade() -> None:
    for name, (table, _) in INDEXES.items():
        remove_index(name, table)
