"""What the routes of one submission's analysis return."""

from dataclasses import asdict
from datetime import datetime

from pydantic import BaseModel, Field

from lethe.competition.visibility import Visibility
from server.evaluations.paired_test import Paired
from server.models.evaluation import RunLog, Shard, ShardAttempt
from server.submission_analysis.generated_answers import GeneratedAnswers
from server.submission_analysis.model_outputs import OutputComparison
from server.submission_analysis.service import EvaluatedSubmission, Score


class AnalysisScore(BaseModel):
    """A score with its parts."""

    final_score: float
    interval_low: float | None
    interval_high: float | None
    forgetting_quality: float
    retain_ratio: float
    test_ratio: float
    scorer_version: str
    computed_at: datetime

    @classmethod
    def of(cls, score: Score) -> "AnalysisScore":
        return cls(
            final_score=score.final_score,
            interval_low=score.interval_low,
            interval_high=score.interval_high,
            forgetting_quality=score.forgetting_quality,
            retain_ratio=score.retain_ratio,
            test_ratio=score.test_ratio,
            scorer_version=score.scorer_version,
            computed_at=score.computed_at,
        )


class AttemptOfShard(BaseModel):
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

    @classmethod
    def of(cls, attempt: ShardAttempt, shard: Shard) -> "AttemptOfShard":
        return cls(
            kind=shard.kind,
            first_run=shard.first_run,
            n_runs=shard.n_runs,
            attempt=attempt.attempt,
            worker=attempt.worker,
            outcome=attempt.outcome,
            started_at=attempt.started_at,
            ended_at=attempt.ended_at,
            detail=attempt.detail,
        )


class RunLogOut(BaseModel):
    """What one run printed. run counts from 0."""

    run: int
    on_public_sample: bool = Field(description="whether the team sees it too")
    text: str

    @classmethod
    def of(cls, log: RunLog) -> "RunLogOut":
        return cls(run=log.run, on_public_sample=log.on_public_sample, text=log.text)


class ClassUtilityOut(BaseModel):
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
            and {
                name: [
                    ClassUtilityOut(label=row.label, unlearned=row.unlearned, retrained=row.retrained, ratio=row.ratio)
                    for row in rows
                ]
                for name, rows in classes.items()
            },
        )


class AnalysisOut(BaseModel):
    """One submission on one split, as its organisers see it."""

    id: str
    team: str
    split: Visibility
    stage: str
    state: str | None = Field(description="of the evaluation that counts; null without one", examples=["scored"])
    score: AnalysisScore | None
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
            score=AnalysisScore.of(evaluated.score) if evaluated.score else None,
            epsilon=None if epsilon is None else [float(e) if abs(e) < float("inf") else None for e in epsilon],
            outputs=OutputsOut.of(comparison) if comparison else None,
            attempts=attempts,
            logs=logs,
        )


class AnsweredQuestionOut(BaseModel):
    """A forget question, its answer in the data, and what three models answer."""

    question: str
    answer: str
    original: str | None = Field(description="null where the split stores no answers of its original models")
    retrained: str
    unlearned: str


class AnswersOut(BaseModel):
    """What language models answer: the model of one run, the retrained model of its number, the original one."""

    id: str
    split: Visibility
    run: int = Field(description="counts from 0")
    n_runs: int
    questions: list[AnsweredQuestionOut]

    @classmethod
    def of(cls, evaluated: EvaluatedSubmission, found: GeneratedAnswers) -> "AnswersOut":
        return cls(
            id=evaluated.submission.id,
            split=evaluated.visibility,
            run=found.run,
            n_runs=found.n_runs,
            questions=[AnsweredQuestionOut(**asdict(question)) for question in found.questions],
        )


class Suggestion(BaseModel):
    """A submission that one may want to compare with."""

    id: str
    description: str


class PairedTestOut(BaseModel):
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
    def of(cls, first: EvaluatedSubmission, second: EvaluatedSubmission, found: Paired) -> "PairedTestOut":
        a, b = first.submission.id, second.submission.id
        return cls(
            first=a,
            second=b,
            split=first.visibility,
            difference=found.difference,
            standard_error=found.standard_error,
            interval_low=found.interval[0],
            interval_high=found.interval[1],
            p_value=found.p_value,
            winner=(None, a, b)[found.winner],
        )
