"""/api/v1: metrics beside the score."""

from typing import Annotated

from fastapi import APIRouter, Query

from lethe.competition.visibility import Visibility
from lethe.metrics.core.registry import metrics
from server.api.auth_dependencies import CurrentAccount, OrganisedCompetition, VisibleCompetition
from server.api.metric_results.schemas import (
    CompetitionMetrics,
    MetricOut,
    MetricValue,
    Recompute,
    Recomputed,
    SubmissionMetrics,
)
from server.api.submissions.router import OwnSubmission
from server.competitions import service as competitions
from server.competitions.stored_file import stored_file
from server.deps import SessionDep
from server.metric_results import service
from server.problem_details import problems
from server.submission_analysis import comparison
from server.submission_analysis.comparison import SubmissionComparison
from server.teams import service as teams

router = APIRouter(tags=["metrics"])


@router.get("/metrics")
def list_metrics() -> list[MetricOut]:
    """List every metric: what it measures, which arrays it needs, where it comes from."""
    return [MetricOut.read(entry, capture_levels=entry.levels) for entry in metrics().values()]


@router.get("/submissions/{submission_id}/metrics", responses=problems(401, 404))
def show_metrics_of_submission(
    session: SessionDep,
    submission: OwnSubmission,
    account: CurrentAccount,
    *,
    split: Annotated[Visibility, Query(description="private: sealed until the reveal")] = Visibility.PUBLIC,
) -> SubmissionMetrics:
    """Show the metrics of a submission that the competition's report names. What a team sees is rounded."""
    is_organiser = competitions.is_organiser(session, submission.competition, account)
    rows = service.of_submission(session, submission, split, is_organiser=is_organiser)
    return SubmissionMetrics(
        split=split,
        n_models=stored_file(submission.competition).n_models,
        metrics=[MetricValue.of(row, is_organiser=is_organiser) for row in rows],
    )


@router.get("/competitions/{slug}/metrics", responses=problems(401, 403, 404))
def show_metrics_of_competition(
    session: SessionDep,
    competition: OrganisedCompetition,
    *,
    split: Annotated[Visibility, Query()] = Visibility.PUBLIC,
    ids: Annotated[list[str] | None, Query(description="metrics; all of the report by default")] = None,
) -> CompetitionMetrics:
    """Show metrics of every scored submission of the competition. For organisers."""
    file = stored_file(competition)
    wanted = ids or [request.id for request in file.report.metrics]
    found = service.of_competition(session, competition, split, wanted)
    values = {sid: {name: row.value for name, row in rows.items()} for sid, rows in found.items()}
    return CompetitionMetrics(split=split, metrics=wanted, submissions=values)


@router.get("/competitions/{slug}/metrics/comparison", responses=problems(401, 404, 422))
def compare_submissions(
    session: SessionDep,
    competition: VisibleCompetition,
    account: CurrentAccount,
    *,
    submission: Annotated[list[str], Query(max_length=100, description="ids; at most 12")],
    split: Annotated[Visibility, Query(description="private: sealed until the reveal")] = Visibility.PUBLIC,
) -> SubmissionComparison:
    """Compare submissions by the metrics of the report: any for organisers, for a team its own, rounded."""
    return comparison.compare(
        session,
        competition,
        split,
        submission,
        team=teams.get_team(session, competition, account),
        is_organiser=competitions.is_organiser(session, competition, account),
    )


@router.post("/competitions/{slug}/metrics/recompute", responses=problems(401, 403, 404))
def recompute_metrics(session: SessionDep, competition: OrganisedCompetition, body: Recompute) -> Recomputed:
    """Compute metrics again: after a metric's version rose, or where they were never asked for. For organisers."""
    file = stored_file(competition)
    return Recomputed(evaluations=service.recompute(session, competition, file, only_stale=body.only_stale))
