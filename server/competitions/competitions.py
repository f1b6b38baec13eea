"""Competitions: finding, creating, preparing, opening, closing."""

from collections.abc import Sequence

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.section import as_stored
from lethe.competition.task import shared_values, task_name
from lethe.competition.visibility import Visibility
from lethe.errors import InvalidCompetitionFile, NotFound, Violation
from lethe.text_files import plain_text
from server import audit, queue
from server.competitions import competition_repository, lifecycle, participation, questions, stalled_preparations
from server.competitions.stored_file import own_values, read_file, readable, store_file, stored_file
from server.datasets import datasets
from server.datetime_format import in_words
from server.db import clock, now
from server.errors import Conflict, NotAllowed
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionOrganiser, CompetitionState, ModelShard, Split, SplitState


def get(session: Session, slug: str, *, account: Account | None) -> Competition:
    """Return the competition called `slug` if the caller may know of it. Raises NotFound."""
    competition = competition_repository.by_slug(session, slug)
    if competition is None or not _may_see(session, competition, account):
        raise NotFound(f"No competition is called {slug!r}")
    return competition


def of_id(session: Session, competition_id: str) -> Competition:
    """Return a competition that something else refers to. Raises NotFound."""
    competition = session.get(Competition, competition_id)
    if competition is None:
        raise NotFound(f"There is no competition {competition_id!r}")
    return competition


def list_visible(session: Session, *, account: Account | None) -> list[Competition]:
    """Return every competition that the caller may know of, the latest to open first."""
    mine = competition_repository.organised_by(session, account.id) if account else frozenset()
    sees_all = account is not None and account.role == Role.ADMINISTRATOR
    return [
        c
        for c in readable(competition_repository.everything(session))
        if sees_all or c.id in mine or (not lifecycle.is_hidden(c) and participation.may_see(session, c, account))
    ]


def list_in_preparation(session: Session) -> list[Competition]:
    """Return all competitions in preparation, also invisible ones, without cells of benchmarks."""
    everything = readable(competition_repository.everything(session))
    return [c for c in everything if c.state == CompetitionState.PREPARING and c.cell_key is None]


def list_organised(session: Session, account: Account) -> list[Competition]:
    """Return the competitions that the account runs, the latest to open first; an administrator runs all."""
    mine = competition_repository.organised_by(session, account.id)
    everything = readable(competition_repository.everything(session))
    return [c for c in everything if account.role == Role.ADMINISTRATOR or c.id in mine]


def is_organiser(session: Session, competition: Competition, account: Account | None) -> bool:
    """Return whether `account` runs this competition; administrators run all of them."""
    return participation.organises(session, competition, account)


def tasks(session: Session, competition: Competition) -> Sequence[Competition]:
    """Return the tasks of a competition, in the order of its file; nothing where it has none."""
    return competition_repository.tasks(session, competition.id) if stored_file(competition).tasks else ()


def evaluated(session: Session, competitions: Sequence[Competition]) -> Sequence[Competition]:
    """Return what runs, scores and failures of these competitions belong to: the tasks of each, or itself."""
    return competition_repository.evaluated(session, [competition.id for competition in competitions])


def get_task(session: Session, competition: Competition, name: str) -> Competition:
    """Return a task of a competition by its name. Raises NotFound naming those that there are."""
    by_name = {task.task_name: task for task in tasks(session, competition)}
    if name not in by_name:
        has = f"its tasks are {', '.join(map(str, by_name))}" if by_name else "it has none"
        raise NotFound(f"{competition.slug} has no task {name[:40]!r}; {has}")
    return by_name[name]


def root(session: Session, competition: Competition) -> Competition:
    """Return the competition that a task is one of; any other itself."""
    return competition if competition.parent_id is None else of_id(session, competition.parent_id)


def create(session: Session, text: str, *, organiser: Account, source: str = "competition file") -> Competition:
    """Make a draft from TOML. Raises InvalidCompetitionFile, NotAllowed, or Conflict if the slug is taken."""
    if organiser.role not in (Role.ORGANISER, Role.ADMINISTRATOR):
        raise NotAllowed(f"{organiser.name} is a {organiser.role}; only organisers create competitions")
    text = plain_text(text)
    file = read_file(text, source=source)
    check_trust(file, organiser)
    for each in file.evaluated:
        datasets.check_usable(session, each, actor=organiser)
    if file.slug.startswith(competition_repository.DELETED):
        raise InvalidCompetitionFile("slug is reserved", violations=(Violation("slug", "is reserved", file.slug),))
    competition = draft(file, text, organiser=organiser)
    _add(session, competition)
    session.add(CompetitionOrganiser(competition_id=competition.id, account_id=organiser.id))
    add_evaluated(session, competition, file)
    audit.record(session, organiser, "competition.created", competition=competition, subject=competition.slug)
    questions.keep_versions(session, competition, author=organiser)
    return competition


def add_evaluated(session: Session, competition: Competition, file: CompetitionFile) -> None:
    """Add the splits of a draft, or its tasks with theirs. Raises Conflict if a task's slug is taken."""
    evaluated = [competition]
    if file.tasks:
        creator = session.get_one(Account, competition.created_by)
        evaluated = [draft(task, "", organiser=creator) for task in file.tasks]
        for place, task in enumerate(evaluated):
            task.parent_id, task.task_name, task.task_place = competition.id, task_name(task.slug), place
            _add(session, task)
    session.add_all(Split(competition_id=each.id, visibility=v.value) for each in evaluated for v in Visibility)
    session.flush()


def draft(file: CompetitionFile, source: str, *, organiser: Account) -> Competition:
    """Return a competition of a file that is not stored yet."""
    return Competition(
        slug=file.slug,
        title=file.title,
        summary=file.summary,
        opens_at=file.opens_at,
        closes_at=file.closes_at,
        config=as_stored(file),
        source=source,
        created_by=organiser.id,
    )


def set_file(session: Session, competition: Competition, file: CompetitionFile) -> None:
    """Replace the competition's file, and update its tasks."""
    store_file(competition, file)
    share(session, competition)


def share(session: Session, competition: Competition) -> None:
    """Give each task the dates that its competition has now, and what else the file says for all of them."""
    shared = own_values(competition)
    for task in tasks(session, competition):
        for name in ("opens_at", "closes_at", "closed_at", "frozen_at", "revealed_at"):
            setattr(task, name, getattr(competition, name))
        own = own_values(task)
        store_file(task, CompetitionFile.model_validate({**own, **shared_values(shared, own)}))


def splits(session: Session, competition: Competition) -> Sequence[Split]:
    """Return both splits as they are in the database now; of a competition with tasks those of each."""
    return competition_repository.splits(session, competition.id)


def replacements(session: Session, competition: Competition) -> Sequence[Split]:
    """Return the versions that are to replace current splits, of every task."""
    return competition_repository.replacements(session, competition.id)


def model_shards(session: Session, splits: Sequence[Split]) -> Sequence[ModelShard]:
    """Return the shards that the preparations of these splits are divided into, if they are."""
    return competition_repository.model_shards(session, [split.id for split in splits])


def get_split(session: Session, competition: Competition, visibility: Visibility) -> Split:
    """Return one of the two splits. Raises NotFound."""
    split = competition_repository.split(session, competition_id=competition.id, visibility=visibility)
    if split is None:
        own = [task.slug for task in tasks(session, competition)]
        of_tasks = f"; its tasks have one each: {', '.join(own)}" if own else ""
        raise NotFound(f"{competition.slug} has no {visibility} split{of_tasks}")
    return split


def find_split(session: Session, competition: Competition, visibility: Visibility) -> Split | None:
    """Return one of the two splits; None for a competition with tasks, each of which has its own."""
    return competition_repository.split(session, competition_id=competition.id, visibility=visibility)


def prepare(
    session: Session,
    competition: Competition,
    *,
    actor: Account | None,
    any_device: bool = False,
    measure: bool = False,
) -> Competition:
    """Queue the preparation of both splits. Asked again, it tries failed ones again, and has every file of the ready
    ones checked and what is damaged made again; the competition goes on meanwhile. any_device: let go of the kind of
    worker that has begun those in the making; another kind begins them again. measure: measure one retraining of the
    ready ones again, which the limit of a run rests on; it is announced. Raises Conflict once it is over."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    author = session.get(Account, competition.created_by)
    if actor is not None and author is not None and author.role != Role.ADMINISTRATOR:
        check_trust(stored_file(competition), actor)  # a file that was taken by rules that were wider
    for file in stored_file(competition).evaluated:
        datasets.find_for_competition(session, file)
    if competition.state == CompetitionState.DRAFT:
        lifecycle.move(session, competition, CompetitionState.PREPARING, actor=actor)
    elif lifecycle.is_revealed(competition):
        raise Conflict(f"{competition.slug} is {competition.state}; its splits are no longer prepared")
    for split in competition_repository.splits(session, competition.id):
        if split.state in (SplitState.FAILED, SplitState.READY):
            if split.state == SplitState.FAILED:
                stalled_preparations.let_go(split)
            else:
                stalled_preparations.check(split, clock(session), measure=measure)
            competition_repository.forget_model_shards(session, split.id)
        elif any_device and split.state == SplitState.PREPARING:
            stalled_preparations.let_go(split)
            competition_repository.forget_model_shards(session, split.id)
        if split.state == SplitState.PENDING:
            queue.send_after_commit(session, queue.PREPARE_SPLIT, split.id)
    if measure:
        audit.record(session, actor, "competition.measured_again", competition)
    session.flush()
    return competition


def note_prepared(session: Session, competition: Competition) -> bool:
    """Make a preparing competition ready once it can open: its splits are ready, of a task all of its competition's.
    Private ones may have their models to come, unless the file wants both splits. Return whether it became so. Safe to
    run twice."""
    competition = competition_repository.locked(session, competition.root_id)
    if competition.state != CompetitionState.PREPARING:
        return False
    splits = competition_repository.splits(session, competition.id)
    unfinished = [split for split in splits if split.state != SplitState.READY]
    if any(not may_follow(session, split) for split in unfinished):
        return False
    lifecycle.move(session, competition, CompetitionState.READY, actor=None)
    return True


def may_follow(session: Session, split: Split) -> bool:
    """Return whether a split's models may be made after the opening: a private one's, of which the rest is there."""
    if split.visibility != Visibility.PRIVATE or split.state != SplitState.PREPARING:
        return False
    file = stored_file(session.get_one(Competition, split.competition_id))
    return file.splits.opens_with == "public" and bool(competition_repository.model_shards(session, [split.id]))


def open_now(session: Session, competition: Competition, *, actor: Account | None, reason: str = "") -> Competition:
    """Open a ready competition now, also before its opening time. Does nothing to an open one."""
    competition = competition_repository.locked(session, competition.id)
    lifecycle.move(session, competition, CompetitionState.OPEN, actor=actor, reason=reason)
    at = now()
    if competition.closes_at <= at:
        raise Conflict(f"{competition.slug} closed on {in_words(competition.closes_at)}; extend it first")
    competition.opens_at = min(competition.opens_at, at)
    share(session, competition)
    return competition


def close_now(session: Session, competition: Competition, *, actor: Account | None, reason: str = "") -> Competition:
    """Close an open competition now, also before its end. Does nothing to a closed one."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    if competition.state in lifecycle.ENDED:
        return competition
    lifecycle.move(session, competition, CompetitionState.CLOSED, actor=actor, reason=reason)
    at = now()
    competition.closes_at = min(competition.closes_at, at)
    competition.closed_at = at
    share(session, competition)
    return competition


def check_trust(file: CompetitionFile, organiser: Account) -> None:
    """Raise NotAllowed for what only administrators may bring: networks as Python text, paths of the host."""
    if organiser.role == Role.ADMINISTRATOR:
        return
    for task in file.tasks:
        check_trust(task, organiser)
    if file.network.name == "module":
        wrong = Violation("network.name", "only an administrator may bring a network of their own", "module")
        raise NotAllowed(f"{organiser.name} is not an administrator; choose a network by name", violations=(wrong,))
    for name, value in file.dataset.options.items():
        if isinstance(value, str) and (value.startswith(("/", "~")) or ".." in value.split("/")):
            allowed = "must be a path below a folder for datasets (LETHE_DATASET_ROOTS)"
            wrong = Violation(f"dataset.options.{name}", allowed, value[:120])
            raise NotAllowed(f"{organiser.name} is not an administrator; {wrong.field} {allowed}", violations=(wrong,))


def _add(session: Session, competition: Competition) -> None:
    try:
        with session.begin_nested():
            session.add(competition)
    except IntegrityError as error:
        taken = Violation("slug", "is taken; choose another", competition.slug)
        raise Conflict(f"There is already a competition called {competition.slug!r}", violations=(taken,)) from error


def _may_see(session: Session, competition: Competition, account: Account | None) -> bool:
    if lifecycle.is_hidden(competition):
        return is_organiser(session, competition, account)
    return participation.may_see(session, competition, account)
