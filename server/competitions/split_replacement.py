"""Another version of a split whose data was wrong: prepared beside the current one, which counts on until a re-judging
on the new version is applied."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput
from server import audit, queue
from server.competitions import competition_repository, competitions, stalled_preparations
from server.competitions.lifecycle import is_revealed
from server.competitions.stored_file import split_file
from server.datasets import datasets
from server.db import clock
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition, CompetitionState, Split, SplitState

UNFINISHED = (SplitState.PENDING.value, SplitState.PREPARING.value)


def may_replace(competition: Competition) -> bool:
    """Return whether splits are in use and results not public yet."""
    is_used = competition.state not in (CompetitionState.DRAFT, CompetitionState.PREPARING)
    return is_used and not is_revealed(competition)


def replace(
    session: Session,
    competition: Competition,
    visibility: Visibility,
    *,
    actor: Account,
    reason: str,
    dataset: Mapping[str, Any] | None = None,
) -> Split:
    """Queue the preparation of another version from the data as it is now. Nothing that counts changes.

    dataset: the section that names the corrected data; None: where the current version has it from. The cut follows the
    same seeds. A version on which nothing was evaluated is replaced as soon as the other is ready. Raises Conflict
    where no split is in use yet or results are public, and while another version is being prepared.
    """
    competition = competition_repository.locked_with_root(session, competition.id)
    current = competitions.get_split(session, competition, visibility)
    if not may_replace(competition):
        why = "its splits are no longer replaced" if is_revealed(competition) else "replace its file instead"
        raise Conflict(f"{competition.slug} is {competition.state}: {why}")
    latest = (
        competition_repository.latest_split(session, competition_id=competition.id, visibility=visibility) or current
    )
    if not latest.is_current and latest.state in UNFINISHED:
        raise Conflict(f"Version {latest.version} of the {visibility} split is {latest.state}: wait for its end")
    file = _file(competition, current, dataset)
    competitions.check_trust(file, actor)
    datasets.check_usable(session, file, actor=actor)
    split = Split(
        competition_id=competition.id,
        visibility=visibility.value,
        version=latest.version + 1,
        is_current=False,
        dataset=file.dataset.model_dump(mode="json") if dataset is not None else current.dataset,
    )
    session.add(split)
    session.flush()
    data = {"split": visibility.value, "version": split.version, "dataset": split.dataset}
    audit.record(session, actor, "split.replacement_started", competition, reason=reason, data=data)
    queue.send_after_commit(session, queue.PREPARE_SPLIT, split.id)
    return split


def find(session: Session, competition: Competition, visibility: Visibility) -> Split | None:
    """Return the version that will replace the current split, in any state; None if there is none."""
    latest = competition_repository.latest_split(session, competition_id=competition.id, visibility=visibility)
    return None if latest is None or latest.is_current else latest


def activate_if_unused(session: Session, split: Split) -> None:
    """Switch to a prepared version if nothing was evaluated on the previous one."""
    if split.is_current:
        return
    competition = competition_repository.locked_with_root(session, split.competition_id)
    before = competitions.get_split(session, competition, Visibility(split.visibility))
    if competition_repository.is_evaluated_on(session, before.id) or is_revealed(competition):
        return
    before.is_current = False
    session.flush()
    split.is_current = True
    record(session, competition, before, split, actor=None, reason="nothing was evaluated on the version before it")


def record(
    session: Session,
    competition: Competition,
    before: Split,
    split: Split,
    *,
    actor: Account | None,
    reason: str,
    run_again: int = 0,
) -> None:
    """Record that a version has replaced another; the public one's starter kit is made again."""
    if split.visibility == Visibility.PUBLIC:  # the kit is made when every file was checked
        stalled_preparations.check(split, clock(session))
        queue.send_after_commit(session, queue.PREPARE_SPLIT, split.id)
    data = {
        "split": split.visibility,
        "version": split.version,
        "manifest_sha256": {"from": before.manifest_sha256, "to": split.manifest_sha256},
        "run_again": run_again,
    }
    audit.record(session, actor, "split.replaced", competition, reason=reason, data=data)


def _file(competition: Competition, current: Split, dataset: Mapping[str, Any] | None) -> CompetitionFile:
    file = split_file(competition, current)
    if dataset is None:
        return file
    try:
        return CompetitionFile.model_validate({**file.model_dump(mode="json"), "dataset": dataset})
    except ValidationError as error:
        raise InvalidInput.from_validation(error, source="dataset") from error
