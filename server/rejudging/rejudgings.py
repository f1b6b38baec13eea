"""Scoring a set of submissions again beside the live results: previewed, then applied as one or discarded.

Old scores are kept with their scorer's version. Nothing that a participant sees changes before the set is applied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError
from sqlalchemy.orm import Session

from lethe.competition.file import Scoring
from lethe.competition.section import read_stored
from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput, NotFound, Violation
from server import audit
from server.competitions import competition_repository, competitions, split_replacement
from server.competitions.stored_file import store_file, stored_file
from server.db import new_id, now
from server.errors import Conflict
from server.evaluations import evaluation_repository, rerun
from server.evaluations.evaluations import HOST_RETRIES
from server.evaluations.results import show_result
from server.leaderboard import boards
from server.models.account import Account
from server.models.competition import Competition, Split, SplitState
from server.models.evaluation import EvaluationState, Rejudging, RejudgingState
from server.models.submission import Submission
from server.queue import GROUP_TIES, send_after_commit
from server.rejudging import rejudging_repository
from server.rejudging.sets import Chosen, Outcome
from server.scoring import scores

Changed = Literal["scorer", "limits", "split", "host"]
ENDED = frozenset({EvaluationState.SCORED, EvaluationState.FAILED, EvaluationState.CANCELLED})
of_competition = rejudging_repository.of_competition


@dataclass(frozen=True)
class TeamChange:
    """What applying a re-judging does to one team. None: not on the board."""

    team: str
    old_rank: int | None
    old_score: float | None
    new_rank: int | None
    new_score: float | None
    final: Annotated[bool, Field(description="false while an evaluation of the re-judging is waited for")]


@dataclass(frozen=True)
class Preview:
    """How far a re-judging is, and what it would change."""

    rejudging: Rejudging
    outcomes: tuple[Outcome, ...]
    teams: tuple[TeamChange, ...]

    @property
    def is_complete(self) -> bool:
        return all(outcome.new_state in ENDED for outcome in self.outcomes)


def start(
    session: Session,
    competition: Competition,
    *,
    visibility: Visibility,
    chosen: Chosen,
    changed: Changed,
    actor: Account,
    reason: str,
    scoring: Mapping[str, Any] | None = None,
) -> Rejudging:
    """Make new evaluations of the chosen submissions on one split.

    Where the scorer changed, stored outputs are scored again, and only what has none is run. scoring: values of
    `[scoring]` to score by, the competition's own once the re-judging is applied. Raises Conflict if nothing is chosen,
    InvalidInput for unknown ids and for a scoring that would not be of all submissions.
    """
    competition = competition_repository.locked(session, competition.id)
    chosen = complete_ids(session, competition, chosen)
    tried = None if not scoring else _tried_scoring(competition, scoring, chosen=chosen, changed=changed)
    if rejudging_repository.running(session, competition.id, visibility.value):
        raise Conflict(f"A re-judging on the {visibility} split runs already; apply or discard it first")
    current = competitions.get_split(session, competition, visibility)
    split = current if changed != "split" else _replacement(session, competition, visibility, chosen=chosen)
    submissions = rejudging_repository.submissions(session, competition.id, split_id=current.id, chosen=chosen)
    if not submissions:
        raise Conflict("No submission that has ended is chosen")
    rejudging = Rejudging(
        competition_id=competition.id,
        visibility=visibility.value,
        reason=reason,
        changed=changed,
        chosen=_as_data(chosen),
        scoring=tried,
        created_by=actor.id,
    )
    session.add(rejudging)
    session.flush()
    again = _queue(session, rejudging, submissions, current, split, failed_too=chosen.names_failures)
    if not sum(again.values()):
        raise Conflict("No chosen submission has stored outputs that another scorer could score")
    data: dict[str, Any] = {"submissions": sum(again.values()), **again, "changed": changed, "split": visibility.value}
    if tried is not None:
        data["scoring"] = tried
    if changed == "split":
        data["version"] = split.version
    audit.record(session, actor, "rejudging.started", rejudging, reason=reason, data=data)
    return rejudging


def complete_ids(session: Session, competition: Competition, chosen: Chosen) -> Chosen:
    """Return the choice with complete ids in place of their first characters. Raises InvalidInput naming each wrong."""
    if chosen.submission_ids is None:
        return chosen
    by_prefix = {
        given: rejudging_repository.ids_beginning(session, competition.id, given) for given in chosen.submission_ids
    }
    wrong = tuple(
        Violation("submissions", "begins several ids" if ids else f"begins no id of {competition.slug}", given[:60])
        for given, ids in by_prefix.items()
        if len(ids) != 1
    )
    if wrong:
        named = "; ".join(f"{each.value!r} {each.message}" for each in wrong[:5])
        raise InvalidInput(f"Not every submission is known: {named}", violations=wrong)
    return replace(chosen, submission_ids=tuple(dict.fromkeys(ids[0] for ids in by_prefix.values())))


def _tried_scoring(
    competition: Competition, values: Mapping[str, Any], *, chosen: Chosen, changed: Changed
) -> dict[str, Any]:
    if changed != "scorer" or not chosen.is_everything:
        allowed = "needs all submissions and changed = scorer: a board is scored in one way"
        raise InvalidInput(f"Another scoring {allowed}", violations=(Violation("scoring", allowed),))
    before = stored_file(competition).scoring
    try:
        return Scoring.model_validate({**before.model_dump(), **values}).model_dump(mode="json")
    except ValidationError as error:
        raise InvalidInput.from_validation(error, source="scoring") from error


def _replacement(session: Session, competition: Competition, visibility: Visibility, *, chosen: Chosen) -> Split:
    """Return the version that is to replace the current split. Raises Conflict unless one is ready, InvalidInput for a
    part of the submissions: a board is of one split."""
    if not chosen.is_everything:
        allowed = "needs all submissions: a board is of one version of a split"
        raise InvalidInput(f"Another split {allowed}", violations=(Violation("changed", allowed, "split"),))
    split = split_replacement.find(session, competition, visibility)
    if split is None:
        raise Conflict(
            f"The {visibility} split of {competition.slug} is what it was: evaluating it again would change nothing. "
            f"Replace it first: lethe competition replace-split {competition.slug} {visibility}"
        )
    if split.state != SplitState.READY:
        raise Conflict(f"Version {split.version} of the {visibility} split is {split.state}, not ready: {split.error}")
    return split


def _queue(
    session: Session,
    rejudging: Rejudging,
    submissions: Sequence[Submission],
    current: Split,
    split: Split,
    *,
    failed_too: bool,
) -> dict[str, int]:
    """Make the new evaluations. Return how many score stored outputs, and how many run the code.

    current: the split whose evaluations count. split: the one that the new evaluations are on.

    failed_too: another scorer changes nothing for what failed, yet it was chosen by name.
    """
    scored = run = 0
    counting = rejudging_repository.current_evaluations(session, current.id, [each.id for each in submissions])
    by_submission = {evaluation.submission_id: evaluation for evaluation in counting}
    for submission in submissions:
        evaluation = by_submission[submission.id]
        if rejudging.changed == "scorer" and rerun.has_outputs(session, evaluation):
            rerun.score_again(session, evaluation, tag=rejudging.id)
            scored += 1
        elif failed_too or rejudging.changed != "scorer" or evaluation.state == EvaluationState.SCORED:
            rerun.beside(session, submission, split, rejudging_id=rejudging.id)
            run += 1
    return {"scored_again": scored, "run_again": run}


def how_many(session: Session, competition: Competition, *, visibility: Visibility, chosen: Chosen) -> int:
    """Return how many submissions `start` would queue."""
    chosen = complete_ids(session, competition, chosen)
    split = competitions.get_split(session, competition, visibility)
    return rejudging_repository.how_many(session, competition.id, split_id=split.id, chosen=chosen)


def get(session: Session, competition: Competition, rejudging_id: str) -> Rejudging:
    """Return a re-judging of this competition. Raises NotFound."""
    rejudging = session.get(Rejudging, rejudging_id)
    if rejudging is None or rejudging.competition_id != competition.id:
        raise NotFound(f"{competition.slug} has no re-judging {rejudging_id!r}")
    return rejudging


def preview(session: Session, competition: Competition, rejudging: Rejudging) -> Preview:
    """Return what applying would change on the board: applied within a savepoint, read, and taken back."""
    outcomes = tuple(rejudging_repository.outcomes(session, rejudging))
    visibility = Visibility(rejudging.visibility)
    if rejudging.state != RejudgingState.RUNNING:
        return Preview(rejudging, outcomes, ())
    before = _standings(boards.whole_board(session, competition, visibility))
    savepoint = session.begin_nested()
    try:
        rejudging_repository.make_current(session, rejudging)
        after = _standings(boards.whole_board(session, competition, visibility))
    finally:
        savepoint.rollback()
        session.expire_all()
    is_final = all(outcome.new_state in ENDED for outcome in outcomes)
    return Preview(rejudging, outcomes, _changes(before, after, is_final=is_final))


def apply(session: Session, competition: Competition, rejudging: Rejudging, *, actor: Account) -> Rejudging:
    """Apply the new evaluations, all at once. Raises Conflict until each has ended."""
    competition = competition_repository.locked(session, competition.id)
    rejudging = _running(session, rejudging)
    evaluations = rejudging_repository.evaluations(session, rejudging.id)
    waiting = sum(evaluation.state not in ENDED for evaluation in evaluations)
    if waiting:
        raise Conflict(f"{waiting} evaluations of the re-judging have not ended yet")
    previewed = preview(session, competition, rejudging)
    rejudging = _running(session, rejudging)
    before = competitions.get_split(session, competition, Visibility(rejudging.visibility))
    since = rejudging_repository.on_earlier_versions(session, rejudging)
    rejudging_repository.make_current(session, rejudging)
    session.expire_all()
    for evaluation in rejudging_repository.evaluations(session, rejudging.id):
        if evaluation.is_current and rejudging.visibility == Visibility.PUBLIC:
            show_result(session, evaluation)
        if score := evaluation_repository.get_score(session, evaluation, rejudging.visibility):
            scores.notify_unconfirmed(session, evaluation, score)
    split = competitions.get_split(session, competition, Visibility(rejudging.visibility))
    for submission in since:  # it counted by the version before, and is run on this one
        rerun.on_new_version(session, submission, split)
    if split.id != before.id:
        split_replacement.record(
            session, competition, before, split, actor=actor, reason=rejudging.reason, run_again=len(since)
        )
    if rejudging.scoring is not None:
        _adopt_scoring(session, competition, rejudging, split)
    send_after_commit(session, GROUP_TIES, split.id)
    rejudging.state, rejudging.ended_at = RejudgingState.APPLIED.value, now()
    data = {"teams": [asdict(change) for change in previewed.teams], "submissions": len(previewed.outcomes)}
    audit.record(session, actor, "rejudging.applied", rejudging, reason=rejudging.reason, data=data)
    return rejudging


def _adopt_scoring(session: Session, competition: Competition, rejudging: Rejudging, split: Split) -> None:
    """Make the scoring that was tried the competition's own, and score again what was scored by the old one since."""
    scoring = read_stored(Scoring, rejudging.scoring)
    store_file(competition, stored_file(competition).model_copy(update={"scoring": scoring}))
    if rejudging.oracle is not None:
        split.oracle = {**(split.oracle or {}), **rejudging.oracle}
    session.flush()
    for evaluation in rejudging_repository.current_evaluations(session, split.id):
        if evaluation.rejudging_id != rejudging.id and rerun.has_outputs(session, evaluation):
            rerun.score_again(session, evaluation, tag=new_id(), is_current=True)


def retry_host_faults(session: Session, *, max_attempts: int) -> int:
    """Queue again what the host failed at in re-judgings that run, as often as for finals. Return how many."""
    limit = max_attempts * (HOST_RETRIES + 1)
    retried = 0
    for evaluation in rejudging_repository.host_failed(session):
        rejudging = rejudging_repository.locked(session, evaluation.rejudging_id)
        if rejudging.state != RejudgingState.RUNNING:
            continue
        if evaluation_repository.max_unsuccessful_attempts(session, evaluation.id) < limit:
            rerun.resume(session, evaluation)
            retried += 1
    return retried


def discard(session: Session, rejudging: Rejudging, *, actor: Account, reason: str) -> Rejudging:
    """Stop a re-judging; everything stays as it was."""
    rejudging = _running(session, rejudging)
    for evaluation in rejudging_repository.evaluations(session, rejudging.id):
        locked = evaluation_repository.lock_evaluation(session, evaluation.id)
        evaluation_repository.cancel_open_shards(session, locked.id)
        if locked.state not in ENDED:
            locked.state, locked.finished_at = EvaluationState.CANCELLED.value, now()
    rejudging.state, rejudging.ended_at = RejudgingState.DISCARDED.value, now()
    audit.record(session, actor, "rejudging.discarded", rejudging, reason=reason)
    return rejudging


def _running(session: Session, rejudging: Rejudging) -> Rejudging:
    rejudging = rejudging_repository.locked(session, rejudging.id)
    if rejudging.state != RejudgingState.RUNNING:
        raise Conflict(f"The re-judging is {rejudging.state} already")
    return rejudging


def _standings(board: boards.Board) -> Mapping[str, tuple[str, int | None, float | None]]:
    return {row.entry.team_id: (row.entry.team, row.rank, row.entry.score) for row in board.rows if row.entry.team_id}


def _changes(
    before: Mapping[str, tuple[str, int | None, float | None]],
    after: Mapping[str, tuple[str, int | None, float | None]],
    *,
    is_final: bool,
) -> tuple[TeamChange, ...]:
    changes = []
    for team_id in {**before, **after}:
        name = (before.get(team_id) or after[team_id])[0]
        old, new = before.get(team_id, (name, None, None)), after.get(team_id, (name, None, None))
        if old != new:
            changes.append(TeamChange(name, *old[1:], *new[1:], final=is_final))
    return tuple(changes)


def _as_data(chosen: Chosen) -> dict[str, Any]:
    return {
        name: value.isoformat() if hasattr(value, "isoformat") else value
        for name, value in asdict(chosen).items()
        if value is not None
    }
