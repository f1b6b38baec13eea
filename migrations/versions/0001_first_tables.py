"""first tables

Revision: 0001, after None
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("name_key", sa.String(length=40), nullable=False),
        sa.Column("email", sa.String(length=254), nullable=True),
        sa.Column("password_hash", sa.String(length=200), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("role IN ('participant', 'organiser', 'administrator')", name=op.f("ck_accounts_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("email", name=op.f("uq_accounts_email")),
        sa.UniqueConstraint("name_key", name=op.f("uq_accounts_name_key")),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("device", sa.String(length=8), nullable=False),
        sa.Column("memory_mib", sa.Integer(), nullable=False),
        sa.Column("versions", sa.JSON(), nullable=False),
        sa.Column("refusals", sa.JSON(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("state IN ('active', 'draining', 'stopped')", name=op.f("ck_workers_state")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workers")),
    )
    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_workers_seen_at"), ["seen_at"], unique=False)

    op.create_table(
        "api_tokens",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("account_id", sa.String(length=16), nullable=False),
        sa.Column("label", sa.String(length=100), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_api_tokens_account_id_accounts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_tokens")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_api_tokens_token_hash")),
    )
    with op.batch_alter_table("api_tokens", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_api_tokens_account_id"), ["account_id"], unique=False)

    op.create_table(
        "competitions",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("slug", sa.String(length=64), nullable=False),
        sa.Column("title", sa.String(length=200), nullable=False),
        sa.Column("summary", sa.String(length=500), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("opens_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closes_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(length=16), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("frozen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revealed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('draft', 'preparing', 'ready', 'open', 'closed', 'provisional', 'final', 'archived')",
            name=op.f("ck_competitions_state"),
        ),
        sa.CheckConstraint("opens_at < closes_at", name=op.f("ck_competitions_dates")),
        sa.ForeignKeyConstraint(["created_by"], ["accounts.id"], name=op.f("fk_competitions_created_by_accounts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_competitions")),
        sa.UniqueConstraint("slug", name=op.f("uq_competitions_slug")),
    )
    with op.batch_alter_table("competitions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_competitions_closes_at"), ["closes_at"], unique=False)

    op.create_table(
        "web_sessions",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("account_id", sa.String(length=16), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("user_agent", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_web_sessions_account_id_accounts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_web_sessions")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_web_sessions_token_hash")),
    )
    with op.batch_alter_table("web_sessions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_web_sessions_account_id"), ["account_id"], unique=False)

    op.create_table(
        "announcements",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("competition_id", sa.String(length=16), nullable=False),
        sa.Column("author_id", sa.String(length=16), nullable=False),
        sa.Column("title", sa.String(length=200), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["author_id"], ["accounts.id"], name=op.f("fk_announcements_author_id_accounts")),
        sa.ForeignKeyConstraint(
            ["competition_id"],
            ["competitions.id"],
            name=op.f("fk_announcements_competition_id_competitions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_announcements")),
    )
    with op.batch_alter_table("announcements", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_announcements_competition_id"), ["competition_id"], unique=False)

    op.create_table(
        "audit_events",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor_id", sa.String(length=16), nullable=True),
        sa.Column("actor", sa.String(length=60), nullable=False),
        sa.Column("competition_id", sa.String(length=16), nullable=True),
        sa.Column("action", sa.String(length=60), nullable=False),
        sa.Column("subject", sa.String(length=80), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["actor_id"], ["accounts.id"], name=op.f("fk_audit_events_actor_id_accounts")),
        sa.ForeignKeyConstraint(
            ["competition_id"], ["competitions.id"], name=op.f("fk_audit_events_competition_id_competitions")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_events")),
    )
    with op.batch_alter_table("audit_events", schema=None) as batch_op:
        batch_op.create_index("ix_audit_events_competition_at", ["competition_id", "at"], unique=False)

    op.create_table(
        "competition_organisers",
        sa.Column("competition_id", sa.String(length=16), nullable=False),
        sa.Column("account_id", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
            name=op.f("fk_competition_organisers_account_id_accounts"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["competition_id"],
            ["competitions.id"],
            name=op.f("fk_competition_organisers_competition_id_competitions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("competition_id", "account_id", name=op.f("pk_competition_organisers")),
    )
    op.create_table(
        "rejudgings",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("competition_id", sa.String(length=16), nullable=False),
        sa.Column("visibility", sa.String(length=8), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("changed", sa.String(length=40), nullable=False),
        sa.Column("chosen", sa.JSON(), nullable=False),
        sa.Column("created_by", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('running', 'applied', 'discarded')", name=op.f("ck_rejudgings_state")),
        sa.CheckConstraint("visibility IN ('public', 'private')", name=op.f("ck_rejudgings_visibility")),
        sa.ForeignKeyConstraint(
            ["competition_id"],
            ["competitions.id"],
            name=op.f("fk_rejudgings_competition_id_competitions"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["created_by"], ["accounts.id"], name=op.f("fk_rejudgings_created_by_accounts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rejudgings")),
    )
    with op.batch_alter_table("rejudgings", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_rejudgings_competition_id"), ["competition_id"], unique=False)

    op.create_table(
        "splits",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("competition_id", sa.String(length=16), nullable=False),
        sa.Column("visibility", sa.String(length=8), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("stage", sa.String(length=80), nullable=False),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("manifest_sha256", sa.String(length=64), nullable=True),
        sa.Column("device", sa.String(length=8), nullable=True),
        sa.Column("versions", sa.JSON(), nullable=False),
        sa.Column("n_forget", sa.Integer(), nullable=True),
        sa.Column("retraining_time_s", sa.Double(), nullable=True),
        sa.Column("oracle", sa.JSON(), nullable=True),
        sa.Column("prepared_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('pending', 'preparing', 'ready', 'failed')", name=op.f("ck_splits_state")),
        sa.CheckConstraint("visibility IN ('public', 'private')", name=op.f("ck_splits_visibility")),
        sa.ForeignKeyConstraint(
            ["competition_id"],
            ["competitions.id"],
            name=op.f("fk_splits_competition_id_competitions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_splits")),
        sa.UniqueConstraint("competition_id", "visibility", name=op.f("uq_splits_competition_id_visibility")),
    )
    op.create_table(
        "teams",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("competition_id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=60), nullable=False),
        sa.Column("name_key", sa.String(length=60), nullable=False),
        sa.Column("leader_id", sa.String(length=16), nullable=False),
        sa.Column("is_baseline", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("disqualified_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("merged_into_id", sa.String(length=16), nullable=True),
        sa.ForeignKeyConstraint(
            ["competition_id"],
            ["competitions.id"],
            name=op.f("fk_teams_competition_id_competitions"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["leader_id"], ["accounts.id"], name=op.f("fk_teams_leader_id_accounts")),
        sa.ForeignKeyConstraint(["merged_into_id"], ["teams.id"], name=op.f("fk_teams_merged_into_id_teams")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_teams")),
        sa.UniqueConstraint("competition_id", "name_key", name=op.f("uq_teams_competition_id_name_key")),
    )
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("competition_id", sa.String(length=16), nullable=False),
        sa.Column("url", sa.String(length=500), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("created_by", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["competition_id"],
            ["competitions.id"],
            name=op.f("fk_webhooks_competition_id_competitions"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["created_by"], ["accounts.id"], name=op.f("fk_webhooks_created_by_accounts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    with op.batch_alter_table("webhooks", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_webhooks_competition_id"), ["competition_id"], unique=False)

    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("competition_id", sa.String(length=16), nullable=True),
        sa.Column("webhook_id", sa.String(length=16), nullable=True),
        sa.Column("account_id", sa.String(length=16), nullable=True),
        sa.Column("event", sa.String(length=40), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("state IN ('waiting', 'sent', 'failed')", name=op.f("ck_deliveries_state")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_deliveries_account_id_accounts"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["competition_id"],
            ["competitions.id"],
            name=op.f("fk_deliveries_competition_id_competitions"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhooks.id"], name=op.f("fk_deliveries_webhook_id_webhooks"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
    )
    with op.batch_alter_table("deliveries", schema=None) as batch_op:
        batch_op.create_index(
            "ix_deliveries_due",
            ["next_attempt_at"],
            unique=False,
            postgresql_where=sa.text("state = 'waiting'"),
            sqlite_where=sa.text("state = 'waiting'"),
        )

    op.create_table(
        "invitations",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("team_id", sa.String(length=16), nullable=False),
        sa.Column("account_id", sa.String(length=16), nullable=True),
        sa.Column("token_hash", sa.String(length=64), nullable=True),
        sa.Column("created_by", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_invitations_account_id_accounts"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["created_by"], ["accounts.id"], name=op.f("fk_invitations_created_by_accounts")),
        sa.ForeignKeyConstraint(
            ["team_id"], ["teams.id"], name=op.f("fk_invitations_team_id_teams"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitations")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_invitations_token_hash")),
    )
    with op.batch_alter_table("invitations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_invitations_account_id"), ["account_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_invitations_team_id"), ["team_id"], unique=False)

    op.create_table(
        "memberships",
        sa.Column("team_id", sa.String(length=16), nullable=False),
        sa.Column("account_id", sa.String(length=16), nullable=False),
        sa.Column("competition_id", sa.String(length=16), nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_memberships_account_id_accounts"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["competition_id"],
            ["competitions.id"],
            name=op.f("fk_memberships_competition_id_competitions"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["team_id"], ["teams.id"], name=op.f("fk_memberships_team_id_teams"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("team_id", "account_id", name=op.f("pk_memberships")),
        sa.UniqueConstraint("competition_id", "account_id", name=op.f("uq_memberships_competition_id_account_id")),
    )
    op.create_table(
        "merge_requests",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("team_id", sa.String(length=16), nullable=False),
        sa.Column("into_id", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["into_id"], ["teams.id"], name=op.f("fk_merge_requests_into_id_teams"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["team_id"], ["teams.id"], name=op.f("fk_merge_requests_team_id_teams"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_merge_requests")),
        sa.UniqueConstraint("team_id", "into_id", name=op.f("uq_merge_requests_team_id_into_id")),
    )
    with op.batch_alter_table("merge_requests", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_merge_requests_into_id"), ["into_id"], unique=False)

    op.create_table(
        "submissions",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("competition_id", sa.String(length=16), nullable=False),
        sa.Column("team_id", sa.String(length=16), nullable=False),
        sa.Column("account_id", sa.String(length=16), nullable=False),
        sa.Column("filename", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("content_sha256", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("entry_point", sa.JSON(), nullable=False),
        sa.Column("message", sa.String(length=500), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=False),
        sa.Column("fault", sa.String(length=16), nullable=True),
        sa.Column("error_class", sa.String(length=40), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("refunded", sa.Boolean(), nullable=False),
        sa.Column("selected", sa.Boolean(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("disqualified_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("excluded_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(stage = 'failed') = (error_class IS NOT NULL)", name=op.f("ck_submissions_failed_is_named")
        ),
        sa.CheckConstraint(
            "fault IS NULL OR fault IN ('participant', 'organiser', 'host')", name=op.f("ck_submissions_fault")
        ),
        sa.CheckConstraint(
            "stage IN ('queued', 'smoke', 'running', 'scoring', 'scored', 'failed', 'cancelled')",
            name=op.f("ck_submissions_stage"),
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_submissions_account_id_accounts")),
        sa.ForeignKeyConstraint(
            ["competition_id"], ["competitions.id"], name=op.f("fk_submissions_competition_id_competitions")
        ),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_submissions_team_id_teams")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_submissions")),
    )
    with op.batch_alter_table("submissions", schema=None) as batch_op:
        batch_op.create_index("ix_submissions_competition_stage", ["competition_id", "stage"], unique=False)
        batch_op.create_index(batch_op.f("ix_submissions_content_sha256"), ["content_sha256"], unique=False)
        batch_op.create_index("ix_submissions_team_received", ["team_id", "received_at"], unique=False)
        batch_op.create_index("ix_submissions_competition_received", ["competition_id", "received_at"], unique=False)

    op.create_table(
        "evaluations",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("submission_id", sa.String(length=16), nullable=False),
        sa.Column("split_id", sa.String(length=16), nullable=False),
        sa.Column("scorer_version", sa.String(length=40), nullable=False),
        sa.Column("rejudging_id", sa.String(length=16), nullable=False),
        sa.Column("is_current", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("n_runs", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("fault", sa.String(length=16), nullable=True),
        sa.Column("error_class", sa.String(length=40), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'scoring', 'scored', 'failed', 'cancelled')",
            name=op.f("ck_evaluations_state"),
        ),
        sa.ForeignKeyConstraint(["split_id"], ["splits.id"], name=op.f("fk_evaluations_split_id_splits")),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"], name=op.f("fk_evaluations_submission_id_submissions")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluations")),
        sa.UniqueConstraint(
            "submission_id",
            "split_id",
            "scorer_version",
            "rejudging_id",
            name=op.f("uq_evaluations_submission_id_split_id_scorer_version_rejudging_id"),
        ),
    )
    with op.batch_alter_table("evaluations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_evaluations_split_id"), ["split_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_evaluations_state"), ["state"], unique=False)
        batch_op.create_index(
            "uq_evaluations_current",
            ["submission_id", "split_id"],
            unique=True,
            postgresql_where=sa.text("is_current"),
            sqlite_where=sa.text("is_current"),
        )

    op.create_table(
        "private_scores",
        sa.Column("final_score", sa.Double(), nullable=False),
        sa.Column("forgetting_quality", sa.Double(), nullable=False),
        sa.Column("retain_ratio", sa.Double(), nullable=False),
        sa.Column("test_ratio", sa.Double(), nullable=False),
        sa.Column("interval_low", sa.Double(), nullable=True),
        sa.Column("interval_high", sa.Double(), nullable=True),
        sa.Column("scorer_version", sa.String(length=40), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("replicates", sa.JSON(), nullable=True),
        sa.Column("tied_group", sa.Integer(), nullable=True),
        sa.Column("computed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("evaluation_id", sa.String(length=16), nullable=False),
        sa.Column("submission_id", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(
            ["evaluation_id"],
            ["evaluations.id"],
            name=op.f("fk_private_scores_evaluation_id_evaluations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"], name=op.f("fk_private_scores_submission_id_submissions")
        ),
        sa.PrimaryKeyConstraint("evaluation_id", name=op.f("pk_private_scores")),
    )
    with op.batch_alter_table("private_scores", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_private_scores_submission_id"), ["submission_id"], unique=False)

    op.create_table(
        "public_scores",
        sa.Column("final_score", sa.Double(), nullable=False),
        sa.Column("forgetting_quality", sa.Double(), nullable=False),
        sa.Column("retain_ratio", sa.Double(), nullable=False),
        sa.Column("test_ratio", sa.Double(), nullable=False),
        sa.Column("interval_low", sa.Double(), nullable=True),
        sa.Column("interval_high", sa.Double(), nullable=True),
        sa.Column("scorer_version", sa.String(length=40), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("replicates", sa.JSON(), nullable=True),
        sa.Column("tied_group", sa.Integer(), nullable=True),
        sa.Column("computed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("evaluation_id", sa.String(length=16), nullable=False),
        sa.Column("submission_id", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(
            ["evaluation_id"],
            ["evaluations.id"],
            name=op.f("fk_public_scores_evaluation_id_evaluations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["submission_id"], ["submissions.id"], name=op.f("fk_public_scores_submission_id_submissions")
        ),
        sa.PrimaryKeyConstraint("evaluation_id", name=op.f("pk_public_scores")),
    )
    with op.batch_alter_table("public_scores", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_public_scores_submission_id"), ["submission_id"], unique=False)

    op.create_table(
        "run_logs",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("evaluation_id", sa.String(length=16), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("on_public_sample", sa.Boolean(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["evaluation_id"],
            ["evaluations.id"],
            name=op.f("fk_run_logs_evaluation_id_evaluations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_logs")),
    )
    with op.batch_alter_table("run_logs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_run_logs_evaluation_id"), ["evaluation_id"], unique=False)

    op.create_table(
        "shards",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("evaluation_id", sa.String(length=16), nullable=False),
        sa.Column("team_id", sa.String(length=16), nullable=False),
        sa.Column("split_id", sa.String(length=16), nullable=False),
        sa.Column("competition_id", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("first_run", sa.Integer(), nullable=False),
        sa.Column("n_runs", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("strikes", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=120), nullable=True),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("runs_done", sa.Integer(), nullable=False),
        sa.Column("wall_time_s", sa.Double(), nullable=False),
        sa.Column("queued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("result_key", sa.String(length=200), nullable=True),
        sa.Column("result_sha256", sa.String(length=64), nullable=True),
        sa.CheckConstraint(
            "(state = 'leased') = (lease_expires_at IS NOT NULL)", name=op.f("ck_shards_leased_has_lease")
        ),
        sa.CheckConstraint("kind IN ('smoke', 'runs')", name=op.f("ck_shards_kind")),
        sa.CheckConstraint(
            "state IN ('queued', 'leased', 'done', 'failed', 'cancelled')", name=op.f("ck_shards_state")
        ),
        sa.ForeignKeyConstraint(
            ["competition_id"], ["competitions.id"], name=op.f("fk_shards_competition_id_competitions")
        ),
        sa.ForeignKeyConstraint(
            ["evaluation_id"], ["evaluations.id"], name=op.f("fk_shards_evaluation_id_evaluations"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["split_id"], ["splits.id"], name=op.f("fk_shards_split_id_splits")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_shards_team_id_teams")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shards")),
        sa.UniqueConstraint("evaluation_id", "kind", "first_run", name=op.f("uq_shards_evaluation_id_kind_first_run")),
        postgresql_with={"fillfactor": 80, "autovacuum_vacuum_scale_factor": 0.02, "autovacuum_vacuum_cost_delay": 0},
    )
    with op.batch_alter_table("shards", schema=None) as batch_op:
        batch_op.create_index(
            "ix_shards_leased",
            ["team_id"],
            unique=False,
            postgresql_where=sa.text("state = 'leased'"),
            sqlite_where=sa.text("state = 'leased'"),
        )
        batch_op.create_index(
            "ix_shards_queue",
            ["split_id", "team_id", "turn", "id"],
            unique=False,
            postgresql_where=sa.text("state = 'queued'"),
            sqlite_where=sa.text("state = 'queued'"),
        )
        batch_op.create_index(
            "ix_shards_served",
            ["team_id", "claimed_at"],
            unique=False,
            postgresql_where=sa.text("claimed_at IS NOT NULL"),
            sqlite_where=sa.text("claimed_at IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_shards_waiting",
            ["queued_at"],
            unique=False,
            postgresql_where=sa.text("state = 'queued'"),
            sqlite_where=sa.text("state = 'queued'"),
        )

    op.create_table(
        "shard_attempts",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("shard_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("worker", sa.String(length=120), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.String(length=20), nullable=False),
        sa.Column("runs_done", sa.Integer(), nullable=False),
        sa.Column("controls", sa.JSON(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["shard_id"], ["shards.id"], name=op.f("fk_shard_attempts_shard_id_shards"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shard_attempts")),
        sa.UniqueConstraint("shard_id", "attempt", name=op.f("uq_shard_attempts_shard_id_attempt")),
    )


def downgrade() -> None:
    op.drop_table("shard_attempts")
    with op.batch_alter_table("shards", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_shards_waiting", postgresql_where=sa.text("state = 'queued'"), sqlite_where=sa.text("state = 'queued'")
        )
        batch_op.drop_index(
            "ix_shards_served",
            postgresql_where=sa.text("claimed_at IS NOT NULL"),
            sqlite_where=sa.text("claimed_at IS NOT NULL"),
        )
        batch_op.drop_index(
            "ix_shards_queue", postgresql_where=sa.text("state = 'queued'"), sqlite_where=sa.text("state = 'queued'")
        )
        batch_op.drop_index(
            "ix_shards_leased", postgresql_where=sa.text("state = 'leased'"), sqlite_where=sa.text("state = 'leased'")
        )

    op.drop_table("shards")
    with op.batch_alter_table("run_logs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_run_logs_evaluation_id"))

    op.drop_table("run_logs")
    with op.batch_alter_table("public_scores", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_public_scores_submission_id"))

    op.drop_table("public_scores")
    with op.batch_alter_table("private_scores", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_private_scores_submission_id"))

    op.drop_table("private_scores")
    with op.batch_alter_table("evaluations", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_evaluations_current", postgresql_where=sa.text("is_current"), sqlite_where=sa.text("is_current")
        )
        batch_op.drop_index(batch_op.f("ix_evaluations_state"))
        batch_op.drop_index(batch_op.f("ix_evaluations_split_id"))

    op.drop_table("evaluations")
    with op.batch_alter_table("submissions", schema=None) as batch_op:
        batch_op.drop_index("ix_submissions_competition_received")
        batch_op.drop_index("ix_submissions_team_received")
        batch_op.drop_index(batch_op.f("ix_submissions_content_sha256"))
        batch_op.drop_index("ix_submissions_competition_stage")

    op.drop_table("submissions")
    with op.batch_alter_table("merge_requests", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_merge_requests_into_id"))

    op.drop_table("merge_requests")
    op.drop_table("memberships")
    with op.batch_alter_table("invitations", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_invitations_team_id"))
        batch_op.drop_index(batch_op.f("ix_invitations_account_id"))

    op.drop_table("invitations")
    with op.batch_alter_table("deliveries", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_deliveries_due",
            postgresql_where=sa.text("state = 'waiting'"),
            sqlite_where=sa.text("state = 'waiting'"),
        )

    op.drop_table("deliveries")
    with op.batch_alter_table("webhooks", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_webhooks_competition_id"))

    op.drop_table("webhooks")
    op.drop_table("teams")
    op.drop_table("splits")
    with op.batch_alter_table("rejudgings", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_rejudgings_competition_id"))

    op.drop_table("rejudgings")
    op.drop_table("competition_organisers")
    with op.batch_alter_table("audit_events", schema=None) as batch_op:
        batch_op.drop_index("ix_audit_events_competition_at")

    op.drop_table("audit_events")
    with op.batch_alter_table("announcements", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_announcements_competition_id"))

    op.drop_table("announcements")
    with op.batch_alter_table("web_sessions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_web_sessions_account_id"))

    op.drop_table("web_sessions")
    with op.batch_alter_table("competitions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_competitions_closes_at"))

    op.drop_table("competitions")
    with op.batch_alter_table("api_tokens", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_api_tokens_account_id"))

    op.drop_table("api_tokens")
    with op.batch_alter_table("workers", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_workers_seen_at"))

    op.drop_table("workers")
    op.drop_table("accounts")
