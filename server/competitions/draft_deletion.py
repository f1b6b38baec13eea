"""Deleting a draft. The audit log refers to its row for ever, so the row stays, empty and without its name."""

from datetime import UTC, datetime

from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.stored_document import as_stored
from server import audit
from server.competitions import competition_repository, lifecycle
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition, CompetitionState


def delete_draft(session: Session, competition: Competition, *, actor: Account) -> None:
    """Delete a draft: its slug is free, its file and its secrets are gone, nobody organises it. Raises Conflict."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    if competition.state != CompetitionState.DRAFT:
        raise Conflict(f"{competition.slug} is {competition.state}; only a draft can be deleted, others are archived")
    audit.record(session, actor, "competition.deleted", competition=competition, subject=competition.slug)
    forget_tasks(session, competition)
    _empty(competition)
    session.flush()
    competition_repository.forget(session, competition.id)


def forget_tasks(session: Session, competition: Competition) -> None:
    """Delete the tasks of a draft and their splits; its file may name others, under the same names."""
    for task in competition_repository.tasks(session, competition.id):
        task.task_name = None
        _empty(task)
        session.flush()
        competition_repository.forget(session, task.id)


def _empty(competition: Competition) -> None:
    empty = CompetitionFile.model_validate(
        {
            "slug": f"{competition_repository.DELETED}{competition.id}",
            "title": "Deleted draft",
            "opens_at": datetime(2000, 1, 1, tzinfo=UTC),
            "closes_at": datetime(2000, 1, 2, tzinfo=UTC),
            "dataset": {"name": "digits"},
            "network": {"name": "mlp"},
            "training": {"epochs": 1, "learning_rate": 0.1},
        }
    )
    competition.slug, competition.title, competition.summary = empty.slug, empty.title, ""
    competition.opens_at, competition.closes_at = empty.opens_at, empty.closes_at
    competition.config, competition.source = as_stored(empty), ""
