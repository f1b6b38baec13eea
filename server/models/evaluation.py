"""An evaluation is a submission on a split under one scorer version. It is cut into shards of runs, and has scores,
metrics, and a record of what was disclosed of it."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    CheckConstraint,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import Mapped, declared_attr, mapped_column, relationship

from lethe.competition.visibility import Visibility
from lethe.runtime.error_classes import ErrorClass
from server.db import Base, EnumText, database_time, new_id, now
from server.models.competition import Leased, Split, value_in
from server.models.submission import Submission


class Announcement(Base):
    __tablename__ = "announcements"

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"), index=True)
    author_id: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    title: Mapped[str] = mapped_column(String(200))
    text: Mapped[str] = mapped_column(Text)  # Markdown
    created_at: Mapped[datetime] = mapped_column(default=now)


class RejudgingState(StrEnum):
    RUNNING = "running"
    APPLIED = "applied"
    DISCARDED = "discarded"


class Rejudging(Base):
    """A set of evaluations made again beside the live ones, to be applied or discarded as one."""

    __tablename__ = "rejudgings"
    __table_args__ = (value_in("state", RejudgingState), value_in("visibility", Visibility))

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id", ondelete="CASCADE"), index=True)
    visibility: Mapped[str] = mapped_column(String(8))
    state: Mapped[str] = mapped_column(String(16), default=RejudgingState.RUNNING.value)
    reason: Mapped[str] = mapped_column(Text)
    changed: Mapped[str] = mapped_column(String(40))  # scorer, limits, split, host
    chosen: Mapped[dict[str, Any]] = mapped_column(JSON)  # how the submissions were chosen
    # [scoring] that it tries; none: the competition's. The column has the section's former name.
    scoring: Mapped[dict[str, Any] | None] = mapped_column("metric", JSON)
    oracle: Mapped[dict[str, Any] | None] = mapped_column(JSON)  # the oracle's score by that scoring
    created_by: Mapped[str] = mapped_column(ForeignKey("accounts.id"))
    created_at: Mapped[datetime] = mapped_column(default=now)
    ended_at: Mapped[datetime | None]


class MetricResult(Base):
    """One metric of one evaluation. computed_at: empty while it waits. not_computed: why there is no value."""

    __tablename__ = "metric_results"
    __table_args__ = (UniqueConstraint("evaluation_id", "metric_id", "parameters_sha256"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"))
    metric_id: Mapped[str] = mapped_column(String(64))
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    parameters_sha256: Mapped[str] = mapped_column(String(64))
    metric_version: Mapped[int | None]
    value: Mapped[float | None]
    interval_low: Mapped[float | None]
    interval_high: Mapped[float | None]
    standard_deviation: Mapped[float | None]
    oracle: Mapped[float | None]
    original: Mapped[float | None]
    table: Mapped[dict[str, Any]] = mapped_column("details", JSON, default=dict)
    notes: Mapped[list[str]] = mapped_column(JSON, default=list)
    not_computed: Mapped[str] = mapped_column(Text, default="")
    attempts: Mapped[int] = mapped_column(default=0, server_default="0")  # begun since it was asked for
    requested_at: Mapped[datetime] = mapped_column(default=now)  # or, while it is being computed, last heard of
    computed_at: Mapped[datetime | None] = mapped_column(index=True)


class Disclosure(Base):
    """One failure as shown to its team. It counts against the budget of the submission's current team."""

    __tablename__ = "disclosures"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), index=True)
    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"))
    bits: Mapped[float]
    disclosed_at: Mapped[datetime] = mapped_column(default=now)


class EvaluationState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SCORING = "scoring"
    SCORED = "scored"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ShardState(StrEnum):
    QUEUED = "queued"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ShardKind(StrEnum):
    SMOKE = "smoke"
    RUNS = "runs"
    CHECK = "check"  # runs that an untrusted worker has made, made again by a trusted one


class Evaluation(Base):
    __tablename__ = "evaluations"
    __table_args__ = (
        UniqueConstraint("submission_id", "split_id", "scorer_version", "rejudging_id"),
        Index(
            "uq_evaluations_current",
            "submission_id",
            "split_id",
            unique=True,
            postgresql_where=text("is_current"),
            sqlite_where=text("is_current"),
        ),
        Index(
            "ix_evaluations_scoring_until",
            "scoring_until",
            postgresql_where=text("scoring_until IS NOT NULL"),
            sqlite_where=text("scoring_until IS NOT NULL"),
        ),
        value_in("state", EvaluationState),
    )

    id: Mapped[str] = mapped_column(String(16), primary_key=True, default=new_id)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    split_id: Mapped[str] = mapped_column(ForeignKey("splits.id"), index=True)
    scorer_version: Mapped[str] = mapped_column(String(40))
    rejudging_id: Mapped[str] = mapped_column(String(16), default="")  # empty: not made by a re-judging
    is_current: Mapped[bool] = mapped_column(default=True)  # the one whose score counts, of a submission on a split
    replaces_id: Mapped[str | None] = mapped_column(String(16))  # organisers asked for this one in place of that one
    state: Mapped[str] = mapped_column(String(16), default=EvaluationState.QUEUED.value, index=True)
    n_runs: Mapped[int]
    priority: Mapped[int] = mapped_column(default=0)  # higher is served first
    fault: Mapped[str | None] = mapped_column(String(16))
    error_class: Mapped[ErrorClass | None] = mapped_column(EnumText(ErrorClass, 40))
    error: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(default=now)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    scoring_until: Mapped[datetime | None]  # the lease of the worker that scores it
    scoring_attempt: Mapped[int] = mapped_column(default=0, server_default="0")  # whose lease it is

    submission: Mapped[Submission] = relationship(lazy="raise")
    split: Mapped[Split] = relationship(lazy="raise")
    shards: Mapped[list["Shard"]] = relationship(lazy="raise", back_populates="evaluation", order_by="Shard.first_run")


def _partial(name: str, *columns: Any, state: ShardState, also: str = "") -> Index:
    """Return an index over the shards of one state, which is small whatever the table holds."""
    where = text(f"state = '{state.value}'" + (f" AND {also}" if also else ""))
    return Index(name, *columns, postgresql_where=where, sqlite_where=where)


class Shard(Leased, Base):
    """Runs first_run .. first_run + n_runs - 1. Team and split are copied here so that a claim reads one table."""

    __tablename__ = "shards"
    __table_args__ = (
        UniqueConstraint("evaluation_id", "kind", "first_run"),
        value_in("state", ShardState),
        value_in("kind", ShardKind),
        CheckConstraint("(state = 'leased') = (lease_expires_at IS NOT NULL)", name="leased_has_lease"),
        # One descent gives the first shard of a split (queue_repository.py in server/evaluations), and of those that
        # untrusted workers may have.
        _partial("ix_shards_order", "split_id", "turn", "id", state=ShardState.QUEUED),
        _partial("ix_shards_open_order", "split_id", "turn", "id", state=ShardState.QUEUED, also="NOT trusted_only"),
        _partial("ix_shards_waiting", "queued_at", state=ShardState.QUEUED),
        # Not on lease_expires_at: a heartbeat must not touch an index. The leased are few, and read together.
        _partial("ix_shards_leased", "team_id", state=ShardState.LEASED),
        Index(
            "ix_shards_token_id",
            "token_id",
            postgresql_where=text("token_id IS NOT NULL"),
            sqlite_where=text("token_id IS NOT NULL"),
        ),
        {
            # A queue leaves dead rows at its head: they are cleared early, and heartbeats stay on their page.
            "postgresql_with": {
                "fillfactor": 80,
                "autovacuum_vacuum_scale_factor": 0.02,
                "autovacuum_vacuum_cost_delay": 0,
            }
        },
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"))
    team_id: Mapped[str] = mapped_column(ForeignKey("teams.id"))
    split_id: Mapped[str] = mapped_column(ForeignKey("splits.id"))
    competition_id: Mapped[str] = mapped_column(ForeignKey("competitions.id"))
    kind: Mapped[str] = mapped_column(String(8), default=ShardKind.RUNS.value)
    first_run: Mapped[int]
    n_runs: Mapped[int]
    state: Mapped[str] = mapped_column(String(16), default=ShardState.QUEUED.value)
    turn: Mapped[int] = mapped_column(default=0)  # class and round (server.queue): lower is served first
    worker: Mapped[str | None] = mapped_column(String(120))
    avoided_host: Mapped[str | None] = mapped_column(String(120))  # failed at it last; others are preferred for a while
    claimed_at: Mapped[datetime | None]
    runs_done: Mapped[int] = mapped_column(default=0)
    wall_time_s: Mapped[float] = mapped_column(default=0.0)  # participants' clock, of the runs done
    queued_at: Mapped[datetime] = mapped_column(default=database_time())
    result_key: Mapped[str | None] = mapped_column(String(200))
    result_sha256: Mapped[str | None] = mapped_column(String(64))
    token_id: Mapped[str | None] = mapped_column(String(16))  # of the untrusted worker that holds it or has ended it
    trusted_only: Mapped[bool] = mapped_column(default=False, server_default=false())  # no untrusted worker gets it

    evaluation: Mapped[Evaluation] = relationship(lazy="raise", back_populates="shards")


class ShardAttempt(Base):
    """One try of one worker at one shard: the timeline that participants and organisers see."""

    __tablename__ = "shard_attempts"
    __table_args__ = (UniqueConstraint("shard_id", "attempt"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    shard_id: Mapped[int] = mapped_column(ForeignKey("shards.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    worker: Mapped[str] = mapped_column(String(120))
    started_at: Mapped[datetime] = mapped_column(default=now)
    ended_at: Mapped[datetime | None] = mapped_column(index=True)  # how much was done lately
    outcome: Mapped[str] = mapped_column(
        String(20), default="running"
    )  # running, done, failed, unconfirmed, refuted, lost, given-back, cancelled
    runs_done: Mapped[int] = mapped_column(default=0)
    controls: Mapped[dict[str, Any] | None] = mapped_column(JSON)  # what confined the runs on that host
    detail: Mapped[str] = mapped_column(Text, default="")  # for organisers


class RunLog(Base):
    """What a run printed. Participants see it only for runs on the public sample."""

    __tablename__ = "run_logs"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"), index=True)
    run: Mapped[int]
    on_public_sample: Mapped[bool]
    text: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=now)


class _Score:
    """What the scorer found, kept with its version."""

    final_score: Mapped[float]
    forgetting_quality: Mapped[float]
    retain_ratio: Mapped[float]
    test_ratio: Mapped[float]
    interval_low: Mapped[float | None]
    interval_high: Mapped[float | None]
    scorer_version: Mapped[str] = mapped_column(String(40))
    details: Mapped[dict[str, Any]] = mapped_column(JSON)  # epsilon summary, flags, wall times
    replicates: Mapped[dict[str, Any] | None] = mapped_column(JSON, deferred=True)  # for paired tests on one split
    # Each forget example's epsilon, nats, float32 little-endian, in the forget set's order; none with older scores.
    epsilon: Mapped[bytes | None] = mapped_column(LargeBinary, deferred=True)
    tied_group: Mapped[int | None]  # teams of one group show no difference in the paired test; 0 is the best
    is_unconfirmed: Mapped[bool] = mapped_column(
        default=False, server_default=false()
    )  # unconfirmed: it takes no rank until an organiser confirms it
    computed_at: Mapped[datetime] = mapped_column(default=now)

    @declared_attr
    def evaluation_id(cls) -> Mapped[str]:
        return mapped_column(ForeignKey("evaluations.id", ondelete="CASCADE"), primary_key=True)

    @declared_attr
    def submission_id(cls) -> Mapped[str]:
        return mapped_column(ForeignKey("submissions.id"), index=True)


class PublicScore(_Score, Base):
    __tablename__ = "public_scores"


class PrivateScore(_Score, Base):
    """Sealed until the reveal. Its own table, so that no query about public scores can meet it."""

    __tablename__ = "private_scores"


ScoreTable = type[PublicScore] | type[PrivateScore]


def score_table(visibility: str) -> ScoreTable:
    """Return the table that the scores of a split lie in. visibility: public or private."""
    return PublicScore if visibility == Visibility.PUBLIC.value else PrivateScore
