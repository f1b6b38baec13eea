"""What competitions do by themselves. Workers' beat calls `tick`; missed ticks are caught up by the next one."""

from datetime import datetime

import structlog
from sqlalchemy.orm import Session

from server.competitions import competition_repository, competitions, lifecycle
from server.competitions.stored_file import UnreadableCompetition
from server.finals import finals
from server.models.competition import Competition, CompetitionState

log = structlog.get_logger()
S = CompetitionState


def tick(session: Session, at: datetime) -> int:
    """Move every competition whose time has come. Return how many moved. Safe to run twice, and twice at once."""
    return sum(
        _step_if_readable(session, competition_id, at=at) for competition_id in competition_repository.due(session, at)
    )


def _step_if_readable(session: Session, competition_id: str, *, at: datetime) -> bool:
    """Take one competition's step. What another version has stored is left to a program of that version."""
    try:
        with session.begin_nested():
            return _step(session, competition_id, at=at)
    except UnreadableCompetition as error:
        log.warning("competition not moved", competition=competition_id, reason=error.detail)
        return False


def _step(session: Session, competition_id: str, *, at: datetime) -> bool:
    competition = competition_repository.locked(session, competition_id)
    before = competition.state
    if competition.state == S.PREPARING:
        competitions.note_prepared(session, competition)
    if competition.state == S.READY and competition.opens_at <= at:
        lifecycle.move(session, competition, S.OPEN, actor=None)
    if competition.state == S.OPEN and competition.closes_at <= at:
        _close(session, competition, at=at)
    finals.advance(session, competition, at=at)
    if competition.state != before:
        log.info("competition moved", competition=competition.slug, before=before, after=competition.state)
    return competition.state != before


def _close(session: Session, competition: Competition, *, at: datetime) -> None:
    lifecycle.move(session, competition, S.CLOSED, actor=None)
    competition.closed_at = at
    competitions.share(session, competition)
