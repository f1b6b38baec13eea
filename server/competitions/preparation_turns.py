"""Which organisers' preparations a worker's process may begin now.

While submissions wait, preparations use a share of the processes and at least one; while a competition is open, all
but one. So neither ever keeps the other waiting for all workers. The processes are divided evenly between the
organisers whose preparations wait or run, and nobody begins who has used up the day's processor time.
"""

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import Date, bindparam, func, literal_column, select, text
from sqlalchemy.orm import Session

from server.competitions import competition_repository, split_leases
from server.config import Settings
from server.db import clock, database_time
from server.models.competition import (
    Competition,
    CompetitionState,
    ModelShard,
    ModelShardState,
    PreparationUse,
    Split,
    SplitState,
)
from server.models.evaluation import Shard, ShardState
from server.models.worker import Worker, WorkerState
from server.queue import Turn

ONE_AT_A_TIME = 24_370_811  # the advisory lock of whoever counts: what it begins is seen by the next
SEEN_WITHIN_S = 120.0
WAITS = "waits: "
TIME_USED = f"{WAITS}today's processor time of its organiser is used up"
NEWER = f"{WAITS}a newer version of Lethe made it, and prepares it: update the workers"
NO_PROCESS = WAITS + "{busy} of {most} processes for preparations are taken{because}"


@dataclass(frozen=True)
class PreparationTurns:
    """How many processes may prepare, and how many do by organiser; who has used up the day."""

    most: int
    preparing: Counter[str]
    organisers: frozenset[str]
    over_time: frozenset[str]
    submissions_wait: bool

    @property
    def admitted(self) -> frozenset[str]:
        """The organisers of whom one more preparation may begin."""
        return frozenset(each for each in self.organisers if not self.why_not(each))

    def why_not(self, organiser: str) -> str:
        """Return why no preparation of the organiser may begin now; empty if one may."""
        if organiser in self.over_time:
            return TIME_USED
        in_line = (self.organisers | {organiser}) - self.over_time
        busy = sum(self.preparing.values())
        share = max(1, self.most // len(in_line))
        if busy >= self.most or (self.preparing[organiser] >= share and in_line != {organiser}):
            because = "; submissions go first" if self.submissions_wait else ""
            return NO_PROCESS.format(busy=busy, most=self.most, because=because)
        return ""


def find(session: Session, settings: Settings, *, device: str | None = None) -> PreparationTurns:
    """Return the present state of the queue of preparations, for workers of a kind of device (this worker's)."""
    device = device or settings.worker_device
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(ONE_AT_A_TIME)))
    preparing, names = _preparing(session, device)
    n_processes = _processes(session, device, busy=names)
    waits = _submissions_wait(session, device)
    if waits:
        most = int(settings.preparation_share * n_processes)
    elif competition_repository.any_in_state(session, CompetitionState.OPEN):
        most = n_processes - 1
    else:
        most = n_processes
    organisers = _waiting(session) | preparing.keys()
    over_time = _over_time(session, organisers, hours=settings.preparation_hours_per_day)
    return PreparationTurns(max(1, most), preparing, frozenset(organisers), over_time, waits)


def tell(session: Session, turns: PreparationTurns) -> None:
    """Write into the stage of each split that nobody works on why that is so."""
    idle = split_leases.is_unclaimed(clock(session))
    known = Competition.id.in_(split_leases.of_known_schema())
    rows = session.execute(select(Split, Competition.created_by, known).join(Competition).where(idle)).all()
    for split, organiser, is_known in rows:
        reason = turns.why_not(organiser) if is_known else NEWER
        if reason or split.stage.startswith(WAITS):
            split.stage = reason


def organiser_of(session: Session, split_id: str) -> str:
    """Return the account whose competition a split belongs to."""
    of = select(Competition.created_by).join(Split, Split.competition_id == Competition.id)
    return session.scalars(of.where(Split.id == split_id)).one()


def note_use(session: Session, split_id: str, cpu_time_s: float) -> None:
    """Count processor time that preparing a split took as its organiser's of today."""
    values = {"split": split_id, "day": clock(session).date(), "spent": cpu_time_s}
    session.execute(
        text(
            "INSERT INTO preparation_use (account_id, day, cpu_time_s) "
            "SELECT c.created_by, :day, :spent FROM splits s JOIN competitions c ON c.id = s.competition_id "
            "WHERE s.id = :split "
            "ON CONFLICT (account_id, day) DO UPDATE SET cpu_time_s = preparation_use.cpu_time_s + excluded.cpu_time_s"
        ).bindparams(bindparam("day", type_=Date)),  # sqlite3's own adapter of dates is deprecated
        values,
    )


def _preparing(session: Session, device: str) -> tuple[Counter[str], set[str]]:
    """Return how many processes prepare by organiser, and the names of those that are known."""
    of = select(Competition.created_by, Split.device).join(Split, Split.competition_id == Competition.id)
    leased = Split.state == SplitState.PREPARING.value, Split.lease_expires_at.is_not(None)
    whole = session.execute(of.where(*leased)).all()
    shards = session.execute(
        of.add_columns(ModelShard.worker)
        .join(ModelShard, ModelShard.split_id == Split.id)
        .where(ModelShard.state == ModelShardState.LEASED.value)
    ).all()
    mine = [row for row in (*whole, *shards) if row[1] in (None, device)]
    return Counter(row[0] for row in mine), {row[2] for row in shards if row[2]}


def _processes(session: Session, device: str, *, busy: set[str]) -> int:
    """Return the number of processes of the instance's own workers that reported lately or are at work."""
    seen = Worker.seen_at > database_time(-SEEN_WITHIN_S)
    holding = select(Shard.worker).where(Shard.state == ShardState.LEASED.value)
    own = Worker.device == device, Worker.token_id.is_(None), Worker.state != WorkerState.STOPPED.value
    alive = session.scalars(select(Worker.name).where(*own, seen | Worker.name.in_(holding)))
    return len(busy | set(alive))


def _submissions_wait(session: Session, device: str) -> bool:
    """Return whether shards wait that go before preparations: those of reference lines do not."""
    waits = select(Shard.id).where(
        Shard.split_id == Split.id, Shard.state == literal_column("'queued'"), Shard.turn < Turn.BASELINE.first
    )
    ready = Split.state == SplitState.READY.value, Split.device.is_(None) | (Split.device == device)
    return session.scalar(select(Split.id).where(*ready, waits.exists()).limit(1)) is not None


def _waiting(session: Session) -> set[str]:
    """Return the organisers who have something to be prepared."""
    queued = select(ModelShard.split_id).where(ModelShard.state == ModelShardState.QUEUED.value)
    wanted = split_leases.is_unclaimed(clock(session)) | (
        (Split.state == SplitState.PREPARING.value) & Split.id.in_(queued)
    )
    of = select(Competition.created_by).join(Split, Split.competition_id == Competition.id)
    return set(session.scalars(of.where(wanted)))


def _over_time(session: Session, organisers: set[str], *, hours: float) -> frozenset[str]:
    if not hours:
        return frozenset()
    used = select(PreparationUse.account_id).where(
        PreparationUse.day == clock(session).date(),
        PreparationUse.account_id.in_(organisers),
        PreparationUse.cpu_time_s >= 3600 * hours,
    )
    return frozenset(session.scalars(used))
