"""/api/v1/competitions/{slug}/submissions/{submission_id}: the analysis of one submission. For organisers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from lethe.metrics.scoring.attacks.family import HONEST_DISAGREEMENT
from server.admission import AdmissionDep
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.auth_dependencies import organiser_routes
from server.api.schema import Out
from server.deps import SessionDep, StorageDep
from server.evaluations.paired_test import Paired
from server.problem_details import problems
from server.submission_analysis import evaluated_submissions
from server.submission_analysis.evaluated_submissions import EvaluatedSubmission
from server.submission_analysis.model_outputs import GeneratedAnswers, ModelSet, OutputComparison
from server.submissions.organiser_list import same_file_teams


class AnalysisScore(Out):
    """A score with its parts."""

    final_score: float
    interval_low: float | None
    interval_high: float | None
    forgetting_quality: float
    retain_ratio: float
    test_ratio: float
    is_unconfirmed: bool = Field(description="it takes no rank until an organiser confirms it")
    scorer_version: str
    computed_at: datetime


class DoubtOut(Out):
    """Why a score may not mean what it says."""

    disagreement: float | None = Field(
        description="by how much of exact retraining's forgetting quality a published attack family gives more than "
        "crossfit; null where it could not be computed, and until it is, after the score",
        examples=[0.04],
    )
    honest_disagreement: float = Field(
        default=HONEST_DISAGREEMENT, description="what honest entries have at most", examples=[0.15]
    )
    reasons: list[str] = Field(description="a sentence for each thing out of the ordinary")
    is_suspect: bool = Field(description="whether there are reasons")


class AttemptOfShard(Out):
    """One attempt of a worker at a shard. first_run counts from 0."""

    kind: str = Field(examples=["runs"])
    first_run: int
    n_runs: int
    attempt: int
    worker: str
    outcome: str = Field(examples=["done"])
    started_at: datetime
    ended_at: datetime | None
    detail: str


class RunLogOut(Out):
    """What one run printed. run counts from 0."""

    run: int
    on_public_sample: bool = Field(description="whether the team sees it too")
    text: str


class ClassUtilityOut(Out):
    """Mean accuracies on one class, of the unlearned and of the retrained models."""

    label: int
    unlearned: float
    retrained: float
    ratio: float | None


class OutputsOut(BaseModel):
    """The runs beside the retrained models: one number of each model."""

    unlearned_retain_accuracy: list[float]
    retrained_retain_accuracy: list[float]
    unlearned_test_accuracy: list[float]
    retrained_test_accuracy: list[float]
    wall_time_s: list[float] | None = Field(description="of each run")
    utility_of_classes: dict[str, list[ClassUtilityOut]] | None = Field(description="by set: retain, test")

    @classmethod
    def of(cls, comparison: OutputComparison) -> "OutputsOut":
        u, r = comparison.unlearned, comparison.retrained
        classes = comparison.utility_of_classes()
        return cls(
            unlearned_retain_accuracy=u.retain_accuracy.tolist(),
            retrained_retain_accuracy=r.retain_accuracy.tolist(),
            unlearned_test_accuracy=u.test_accuracy.tolist(),
            retrained_test_accuracy=r.test_accuracy.tolist(),
            wall_time_s=None if u.wall_time_s is None else u.wall_time_s.tolist(),
            utility_of_classes=classes
            and {name: [ClassUtilityOut.read(row) for row in rows] for name, rows in classes.items()},
        )


class AnalysisOut(BaseModel):
    """One submission on one split, as its organisers see it."""

    id: str
    team: str
    split: Visibility
    stage: str
    state: str | None = Field(description="of the evaluation that counts; null without one", examples=["scored"])
    score: AnalysisScore | None
    same_file_of: list[str] = Field(description="other teams that sent the same file", examples=[["bob"]])
    doubt: DoubtOut | None = Field(description="null for a score from before version 0.3")
    epsilon: list[float | None] | None = Field(
        description="of each forget example, nats; null for an infinite one, and without a record of them"
    )
    outputs: OutputsOut | None = Field(description="null where the outputs are not stored")
    attempts: list[AttemptOfShard]
    logs: list[RunLogOut] = Field(description="of the first hundred runs")

    @classmethod
    def of(
        cls,
        evaluated: EvaluatedSubmission,
        *,
        comparison: OutputComparison | None,
        same_file_of: Sequence[str],
        attempts: list[AttemptOfShard],
        logs: list[RunLogOut],
    ) -> "AnalysisOut":
        submission, evaluation, epsilon = evaluated.submission, evaluated.evaluation, evaluated.epsilon
        return cls(
            id=submission.id,
            team=submission.team.name,
            split=evaluated.visibility,
            stage=submission.stage,
            state=evaluation.state if evaluation else None,
            score=AnalysisScore.read(evaluated.score) if evaluated.score else None,
            same_file_of=list(same_file_of),
            doubt=DoubtOut.read(evaluated.doubt) if evaluated.doubt else None,
            epsilon=None if epsilon is None else [float(e) if abs(e) < float("inf") else None for e in epsilon],
            outputs=OutputsOut.of(comparison) if comparison else None,
            attempts=attempts,
            logs=logs,
        )


@dataclass(frozen=True)
class AnswersOut(GeneratedAnswers):
    """What language models answer: the model of one run, the retrained model of its number, the original one."""

    id: str
    split: Visibility


class Suggestion(BaseModel):
    """A submission that one may want to compare with."""

    id: str
    description: str


class PairedTestOut(Out):
    """The paired test of two scores on one split: the first minus the second."""

    first: str
    second: str
    split: Visibility
    difference: float
    standard_error: float
    interval_low: float = Field(description="95 %")
    interval_high: float
    p_value: float = Field(description="two-sided, normal")
    winner: str | None = Field(description="the better submission's id; null if the test does not distinguish them")

    @classmethod
    def of(cls, first: EvaluatedSubmission, second: EvaluatedSubmission, paired: Paired) -> "PairedTestOut":
        a, b = first.submission.id, second.submission.id
        low, high = paired.interval
        ends = {"interval_low": low, "interval_high": high}
        return cls.read(paired, first=a, second=b, split=first.visibility, winner=(None, a, b)[paired.winner], **ends)


router = organiser_routes("/submissions/{submission_id}")


def evaluated_submission(
    submission_id: str, session: SessionDep, competition: Organised, split: Visibility = Visibility.PUBLIC
) -> EvaluatedSubmission:
    """Return the submission of the path on the split of the query. Raises NotFound."""
    return evaluated_submissions.get_evaluated(session, competition, submission_id, split)


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
        comparison=evaluated_submissions.get_output_comparison(session, storage, competition, evaluated),
        same_file_of=same_file_teams(session, evaluated.submission),
        attempts=[
            AttemptOfShard.read(attempt, kind=shard.kind, first_run=shard.first_run, n_runs=shard.n_runs)
            for attempt, shard in evaluated_submissions.list_attempts(session, evaluated)
        ],
        logs=[RunLogOut.read(log) for log in evaluated_submissions.list_logs(session, evaluated.submission)],
    )


@router.get("/arrays", response_class=StreamingResponse, responses={200: {"content": {"application/octet-stream": {}}}})
def download_arrays(
    session: SessionDep,
    storage: StorageDep,
    competition: Organised,
    evaluated: EvaluatedDep,
    *,
    admission: AdmissionDep,
    models: ModelSet = ModelSet.UNLEARNED,
) -> StreamingResponse:
    """Send the arrays that the score is computed from, of one set of models, as a file of numpy (.npz).

    `lethe score` reads two of them. The private split is shown once the competition has closed.
    """
    pieces = evaluated_submissions.get_arrays(session, storage, competition, evaluated, side=models)
    name = f"{evaluated.submission.id}-{evaluated.visibility.value}-{models.value}.npz"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(admission.pieces(pieces), media_type="application/octet-stream", headers=headers)


@router.get("/answers")
def show_answers(
    session: SessionDep,
    storage: StorageDep,
    competition: Organised,
    evaluated: EvaluatedDep,
    run: Annotated[int, Query(ge=0, le=100_000, description="counts from 0")] = 0,
) -> AnswersOut:
    """Show the forget questions with the answers of an unlearned, a retrained and the original language model."""
    answers = evaluated_submissions.get_generated_answers(session, storage, competition, evaluated, run=run)
    if answers is None:
        raise NotFound(f"No generated answers are stored of submission {evaluated.submission.id}")
    return AnswersOut(**vars(answers), id=evaluated.submission.id, split=evaluated.visibility)


@router.get("/comparison", responses=problems(409))
def compare_submissions(
    session: SessionDep,
    competition: Organised,
    evaluated: EvaluatedDep,
    other: Annotated[str, Query(max_length=40, description="the second submission's id")],
) -> PairedTestOut:
    """Compare the scores of two submissions on one split by the paired test over models."""
    second = evaluated_submissions.get_evaluated(session, competition, other, evaluated.visibility)
    return PairedTestOut.of(evaluated, second, evaluated_submissions.compare(evaluated, second))


@router.get("/suggested-comparisons")
def suggest_comparisons(session: SessionDep, competition: Organised, evaluated: EvaluatedDep) -> list[Suggestion]:
    """List submissions to compare this one with: the best of the board, and the team's own."""
    suggested = evaluated_submissions.suggest_comparisons(session, competition, evaluated)
    return [Suggestion(id=submission_id, description=text) for submission_id, text in suggested]
