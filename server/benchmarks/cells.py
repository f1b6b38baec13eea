"""Cells: hidden competitions with one split, keyed by their content, which all benchmarks share."""

from datetime import UTC, datetime
from json import dumps
from typing import Any

from pydantic import ValidationError
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lethe.benchmark.plan import cell_key
from lethe.competition.file import CompetitionFile
from lethe.competition.stored_document import as_stored
from lethe.competition.visibility import Visibility
from lethe.errors import InvalidCompetitionFile
from server import audit
from server.benchmarks import benchmark_repository
from server.competitions import competitions
from server.competitions.stored_file import stored_file
from server.metric_results import metric_results
from server.models.account import Account
from server.models.competition import Competition, CompetitionOrganiser, CompetitionState, Split, SplitState

OPENS_AT, CLOSES_AT = datetime(2999, 1, 1, tzinfo=UTC), datetime(2999, 12, 31, tzinfo=UTC)  # never


def checked_cell(given: dict[str, Any], *, name: str, organiser: Account) -> CompetitionFile:
    """Return a cell's competition under the name of its content. Raises InvalidCompetitionFile or NotAllowed."""
    fixed = {"opens_at": OPENS_AT, "closes_at": CLOSES_AT, "merge_deadline": None, "weak_seed": True}
    try:
        file = CompetitionFile.model_validate({**given, **fixed})
        file = CompetitionFile.model_validate({**file.model_dump(), "slug": f"cell-{cell_key(file)}"})
    except ValidationError as error:
        raise InvalidCompetitionFile.from_validation(error, source=f"cell {name!r}") from error
    competitions.check_trust(file, organiser)
    return file


def ensure(session: Session, file: CompetitionFile, *, organiser: Account) -> Competition:
    """Return the cell's competition: the one that is there, asked for further metrics, or a new one.

    Its preparation is queued if it has not begun, or has failed.
    """
    key = cell_key(file)
    competition = benchmark_repository.cell_competition(session, key) or _create(
        session, file, key, organiser=organiser
    )
    if session.get(CompetitionOrganiser, (competition.id, organiser.id)) is None:
        session.add(CompetitionOrganiser(competition_id=competition.id, account_id=organiser.id))
    _ask_for_metrics(session, competition, file)
    split = competitions.get_split(session, competition, Visibility.PUBLIC)
    if competition.state == CompetitionState.DRAFT or split.state == SplitState.FAILED:
        competitions.prepare(session, competition, actor=organiser)
    return competition


def _create(session: Session, file: CompetitionFile, key: str, *, organiser: Account) -> Competition:
    config = as_stored(file)
    competition = Competition(
        slug=file.slug,
        title=file.title,
        summary=file.summary,
        opens_at=file.opens_at,
        closes_at=file.closes_at,
        config=config,
        source=dumps(config, indent=1),
        created_by=organiser.id,
        cell_key=key,
    )
    try:
        with session.begin_nested():
            session.add(competition)
    except IntegrityError:  # another benchmark was quicker
        found = benchmark_repository.cell_competition(session, key)
        if found is None:
            raise
        return found
    session.add(Split(competition_id=competition.id, visibility=Visibility.PUBLIC.value))
    audit.record(session, organiser, "competition.created", competition=competition, subject=competition.slug)
    session.flush()
    return competition


def _ask_for_metrics(session: Session, competition: Competition, file: CompetitionFile) -> None:
    known = stored_file(competition).report.metrics
    new = [request for request in file.report.metrics if request not in known]
    if not new:
        return
    report = {**competition.config["report"], "metrics": [each.model_dump(mode="json") for each in (*known, *new)]}
    competition.config = competition.config | {"report": report}
    session.flush()
    metric_results.recompute(session, competition, stored_file(competition), only_stale=True)
