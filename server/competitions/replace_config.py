"""Another file for a competition whose splits are not prepared yet."""

from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.stored_document import as_stored
from lethe.errors import InvalidInput, Violation
from lethe.text_files import plain_text
from server.audit import log as audit
from server.competitions import lifecycle, repository, stalled_preparations, texts
from server.competitions.draft_deletion import forget_tasks
from server.competitions.read_file import read_file
from server.competitions.service import add_evaluated, check_trust
from server.competitions.stored_file import stored_file
from server.datasets import service as datasets
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition, CompetitionState, Split, SplitState


def may_rewrite(competition: Competition, splits: list[Split]) -> bool:
    """Return whether another file is taken: for a draft, and once a preparation has failed and the rest has ended."""
    if competition.state == CompetitionState.DRAFT:
        return True
    states = {split.state for split in splits}
    failed = SplitState.FAILED.value in states and not states & {SplitState.PREPARING.value, SplitState.PENDING.value}
    return competition.state == CompetitionState.PREPARING and failed


def check(competition: Competition, text: str, *, actor: Account) -> CompetitionFile:
    """Return the checked file that is to replace the competition's. Raises InvalidCompetitionFile, NotAllowed, or
    InvalidInput for another slug, which addresses and stored files are named by."""
    text = plain_text(text)
    file = read_file(text)
    check_trust(file, actor)
    lifecycle.require_no_task(competition)
    if file.slug != competition.slug:
        wrong = Violation("slug", f"must stay {competition.slug}", file.slug)
        raise InvalidInput("The slug of a competition cannot be changed", violations=(wrong,))
    return file


def rewrite(session: Session, competition: Competition, text: str, *, actor: Account) -> Competition:
    """Replace the file; the competition is a draft again. Raises what `check` does, and Conflict if it is too late."""
    competition = repository.locked(session, competition.id)
    splits = list(repository.splits(session, competition.id))
    if not may_rewrite(competition, splits):
        raise Conflict(f"{competition.slug} is {competition.state}; its file can no longer be replaced")
    file = check(competition, text, actor=actor)
    for each in file.evaluated:
        datasets.check_usable(session, each, actor=actor)
    if competition.state == CompetitionState.PREPARING:
        lifecycle.move(session, competition, CompetitionState.DRAFT, actor=actor, reason="the file was replaced")
    if file.tasks or stored_file(competition).tasks:
        _replace_evaluated(session, competition, file)
    competition.title, competition.summary = file.title, file.summary
    competition.opens_at, competition.closes_at = file.opens_at, file.closes_at
    competition.config, competition.source = as_stored(file), text
    texts.keep_versions(session, competition, author=actor)
    for split in repository.splits(session, competition.id):
        stalled_preparations.let_go(split)
        split.retraining_time_s = split.retraining_cpu_s = split.start_cpu_s = None
        repository.forget_model_shards(session, split.id)
    audit.record(session, actor, "competition.rewritten", competition=competition, subject=competition.slug)
    return competition


def _replace_evaluated(session: Session, competition: Competition, file: CompetitionFile) -> None:
    """Put other tasks, or splits, in place of those that the competition has. Nothing of them is prepared."""
    forget_tasks(session, competition)
    for split in repository.splits(session, competition.id):
        repository.forget_model_shards(session, split.id)
        session.delete(split)
    session.flush()
    add_evaluated(session, competition, file)
