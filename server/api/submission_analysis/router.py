"""/api/v1/competitions/{slug}/submissions/{submission_id}: the analysis of one submission. For organisers."""

from typing import Annotated

from fastapi import Depends, Query

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.auth_dependencies import organiser_routes
from server.api.submission_analysis.schemas import (
    AnalysisOut,
    AnswersOut,
    AttemptOfShard,
    PairedTestOut,
    RunLogOut,
    Suggestion,
)
from server.deps import SessionDep, StorageDep
from server.problem_details import problems
from server.submission_analysis import service
from server.submission_analysis.service import EvaluatedSubmission
from server.submissions.organiser_list import same_file_teams

router = organiser_routes("/submissions/{submission_id}")


def evaluated_submission(
    submission_id: str, session: SessionDep, competition: Organised, split: Visibility = Visibility.PUBLIC
) -> EvaluatedSubmission:
    """Return the submission of the path on the split of the query. Raises NotFound."""
    return service.get_evaluated(session, competition, submission_id, split)


EvaluatedDep = Annotated[EvaluatedSubmission, Depends(evaluated_submission)]


@router.get("/analysis")
def show_analysis(
    session: SessionDep, storage: StorageDep, competition: Organised, evaluated: EvaluatedDep
) -> AnalysisOut:
    """Show a submission's score and its parts, epsilons, runs beside retrained models, attempts and logs.

    The private split is shown once the competition has closed.
    """
    return AnalysisOut.of(
        evaluated,
        comparison=service.get_output_comparison(session, storage, competition, evaluated),
        same_file_of=same_file_teams(session, evaluated.submission),
        attempts=[
            AttemptOfShard.read(attempt, kind=shard.kind, first_run=shard.first_run, n_runs=shard.n_runs)
            for attempt, shard in service.list_attempts(session, evaluated)
        ],
        logs=[RunLogOut.read(log) for log in service.list_logs(session, evaluated.submission)],
    )


@router.get("/answers")
def show_answers(
    session: SessionDep,
    storage: StorageDep,
    competition: Organised,
    evaluated: EvaluatedDep,
    run: Annotated[int, Query(ge=0, le=100_000, description="counts from 0")] = 0,
) -> AnswersOut:
    """Show the forget questions with the answers of an unlearned, a retrained and the original language model."""
    found = service.get_generated_answers(session, storage, competition, evaluated, run=run)
    if found is None:
        raise NotFound(f"No generated answers are stored of submission {evaluated.submission.id}")
    return AnswersOut.of(evaluated, found)


@router.get("/comparison", responses=problems(409))
def compare_submissions(
    session: SessionDep,
    competition: Organised,
    evaluated: EvaluatedDep,
    other: Annotated[str, Query(max_length=40, description="the second submission's id")],
) -> PairedTestOut:
    """Compare the scores of two submissions on one split by the paired test over models."""
    second = service.get_evaluated(session, competition, other, evaluated.visibility)
    return PairedTestOut.of(evaluated, second, service.compare(evaluated, second))


@router.get("/suggested-comparisons")
def suggest_comparisons(session: SessionDep, competition: Organised, evaluated: EvaluatedDep) -> list[Suggestion]:
    """List submissions to compare this one with: the best of the board, and the team's own."""
    found = service.suggest_comparisons(session, competition, evaluated)
    return [Suggestion(id=submission_id, description=text) for submission_id, text in found]
