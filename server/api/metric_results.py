"""/api/v1: metrics beside the score."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from lethe.competition.visibility import Visibility
from lethe.metrics.core.registry import metric, metrics
from server.api.auth_dependencies import CurrentAccount, OrganisedCompetition, VisibleCompetition
from server.api.schema import Out
from server.api.submissions.router import OwnSubmission
from server.competitions import competitions
from server.competitions.stored_file import stored_file
from server.deps import SessionDep
from server.disclosure import gate
from server.metric_results import metric_results
from server.models.evaluation import MetricResult
from server.problem_details import problems
from server.submission_analysis import comparison
from server.submission_analysis.comparison import SubmissionComparison
from server.teams import teams


class MetricOut(Out):
    """One entry of the catalogue."""

    id: str = Field(examples=["klom"])
    title: str
    unit: str
    direction: str = Field(description="higher, lower, towards retrained, none")
    capture_levels: list[int]
    source: str
    formula: str
    paper_and_code: str


@dataclass(frozen=True)
class MetricValue(gate.ShownMetric):
    """One metric of a submission, beside the same metric of the oracle and of the original model."""

    id: Annotated[str, Field(examples=["klom"])]
    title: str
    unit: str
    direction: str
    parameters: dict[str, Any]
    waiting: Annotated[bool, Field(description="not computed yet")]

    @classmethod
    def of(cls, row: MetricResult, *, is_organiser: bool) -> "MetricValue":
        entry = metric(row.metric_id)
        return cls(
            id=row.metric_id,
            title=entry.title,
            unit=entry.unit,
            direction=entry.direction.value,
            parameters=row.parameters,
            waiting=row.computed_at is None,
            **vars(gate.metric(row, exact=is_organiser)),
        )


class SubmissionMetrics(BaseModel):
    """The metrics of one submission on one split."""

    split: Visibility
    n_models: int = Field(description="N: metrics of different N are not compared")
    metrics: list[MetricValue]


class CompetitionMetrics(BaseModel):
    """Metrics of all scored submissions of a competition, for organisers."""

    split: Visibility
    metrics: list[str]
    submissions: dict[str, dict[str, float | None]] = Field(description="submission id -> metric id -> value")


class Recompute(BaseModel):
    """What to compute again."""

    only_stale: bool = Field(default=True, description="only what an older version of a metric computed, or is missing")


class Recomputed(BaseModel):
    """How many evaluations are computed again."""

    evaluations: int


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
    rows = metric_results.of_submission(session, submission, split, is_organiser=is_organiser)
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
    by_submission = metric_results.of_competition(session, competition, split, wanted)
    values = {sid: {name: row.value for name, row in rows.items()} for sid, rows in by_submission.items()}
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
    return Recomputed(evaluations=metric_results.recompute(session, competition, file, only_stale=body.only_stale))
