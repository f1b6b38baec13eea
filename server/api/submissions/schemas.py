"""What a team may know of its submissions: stage, progress, its own error, its public score."""

from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, Field

from server.api.competitions.schemas import QuotaOut
from server.api.schema import Out
from server.disclosure import gate
from server.disclosure.gate import ShownMoment, ShownNumber, ShownText
from server.models.submission import Submission
from server.submissions.sample_answers import AnswersShown
from server.submissions.views import SubmissionView


class AttemptOut(Out):
    """One line of the timeline."""

    first_run: int
    last_run: int
    kind: str = Field(description="smoke or runs", examples=["runs"])
    attempt: int
    outcome: str = Field(examples=["done"])
    started_at: datetime
    ended_at: datetime | None


class ProgressOut(Out):
    """Runs done of all."""

    runs_done: int = Field(examples=[137])
    runs_total: int = Field(examples=[512])
    elapsed_s: float | None
    remaining_s: float | None = Field(description="an estimate")
    attempts: list[AttemptOut]


class DifferenceOut(Out):
    """How a score differs from another one: its own value less the other's."""

    score: float
    factors: dict[str, float]


class BreakdownOut(Out):
    """The three factors of a score, and how the epsilons of the forget examples are spread."""

    forgetting_quality: ShownNumber
    retain_ratio: ShownNumber
    test_ratio: ShownNumber
    epsilon_percentiles: dict[str, ShownNumber] = Field(description="nats, by level", examples=[{"5": 0.1, "50": 2.4}])
    spread_ratio: ShownNumber | None = Field(
        default=None, description="median over examples: standard deviation over your models, of retrained models'"
    )
    share_above: ShownNumber | None = Field(
        default=None, description="of the examples that your models are surer of than retrained ones"
    )


class ExplanationOut(Out):
    """What a public score is made of, from its shown factors and epsilons."""

    costs: dict[str, float] = Field(
        description="by factor, its share of log(oracle / own); 0 where nothing is lost",
        examples=[{"forgetting_quality": 0.9, "retain_ratio": 0.0, "test_ratio": 0.1}],
    )
    differences: dict[str, DifferenceOut] = Field(description="from the entry before and from fine-tuning")
    advice: str


class ScoreOut(Out):
    """A score on one split."""

    final_score: ShownNumber = Field(examples=[0.0731])
    interval_low: ShownNumber | None = Field(description="where the organiser shows intervals")
    interval_high: ShownNumber | None
    scorer_version: str = Field(examples=["1"])
    computed_at: ShownMoment = Field(description="to the minute")
    run_time_s: ShownNumber | None = Field(
        default=None, description="what the median run takes at most", examples=[0.5]
    )
    breakdown: BreakdownOut | None = Field(default=None, description="where the organiser shows it")


class FailureOut(BaseModel):
    """Why a submission failed, and whose fault it was."""

    fault: str | None = Field(description="participant, organiser or host; only the participant's counts")
    error_class: str = Field(examples=["exception"])
    message: ShownText | None = None
    exception_type: ShownText | None = Field(default=None, examples=["ValueError"])
    file: ShownText | None = Field(default=None, examples=["unlearning.py"])
    line: int | None = Field(default=None, examples=[12])
    withheld: bool = Field(default=False, description="details are not shown: the day's budget of bits is used up")
    bits: float | None = Field(default=None, description="what it told of hidden data, at most; null: nothing counts")
    remaining_bits: float | None = Field(default=None, description="left of the day's budget after it", examples=[36.2])
    renews_at: datetime | None = Field(default=None, description="when the budget begins again")

    @classmethod
    def of(cls, submission: Submission) -> "FailureOut | None":
        if submission.error_class is None:
            return None
        return cls(fault=submission.fault, error_class=submission.error_class, **gate.failure(submission))


class WaitOut(Out):
    """Why nothing of a submission runs yet."""

    reason: str = Field(examples=["other submissions are served first"])
    ahead: int = Field(description="submissions that are served before it, about")
    seconds: float | None = Field(description="until it begins, about; null where nothing tells")


class PartOut(Out):
    """What became of a submission in one task of its competition."""

    task: str = Field(examples=["faces"])
    competition: str = Field(description="of the task, with a board of its own", examples=["three--faces"])
    id: str = Field(description="asked for like any submission", examples=["1f0a2b3d4e5f9c1e"])
    stage: str = Field(examples=["scored"])
    progress: ProgressOut | None
    score: ScoreOut | None
    private_score: ScoreOut | None
    failure: FailureOut | None

    @classmethod
    def of(cls, view: SubmissionView) -> "PartOut":
        part = view.submission
        return cls.read(
            part,
            task=part.competition.task_name,
            competition=part.competition.slug,
            progress=view.progress,
            score=view.score,
            private_score=view.private_score,
            failure=FailureOut.of(part),
        )


class SubmissionOut(Out):
    """A submission, as its team sees it."""

    id: str = Field(examples=["9c1e6f0a2b3d4e5f"])
    competition: str = Field(examples=["digits"])
    team: str = Field(examples=["ada"])
    submitted_by: str = Field(examples=["ada"])
    filename: str = Field(examples=["submission.py"])
    sha256: str
    size_bytes: int
    mode: str = Field(description="function, or notebook: run once as it is, its runs not independent")
    program: str = Field(
        description="of a notebook that each run runs by itself: saves (until its first model) or defines (to its end, "
        "then its function); else empty"
    )
    notes: list[str] = Field(description="what may make it fail: libraries that are not installed")
    message: str
    received_at: datetime
    phase: str = Field(description="of the competition; late: after the close; empty: there are none", examples=[""])
    is_official: bool = Field(description="whether it ranks, and may be a final")
    stage: str = Field(description="queued, smoke, running, scoring; scored, failed, cancelled", examples=["running"])
    progress: ProgressOut | None
    wait: WaitOut | None = Field(default=None, description="why nothing of it runs; where one submission is asked for")
    score: ScoreOut | None = Field(description="on the public split, once scored")
    private_score: ScoreOut | None = Field(description="on the private split, once the board is revealed")
    explanation: ExplanationOut | None = Field(
        default=None, description="of the public score, where the organiser shows it; where one submission is asked for"
    )
    failure: FailureOut | None
    refunded: bool = Field(description="does not count against the quota")
    selected: bool = Field(description="chosen for the private board")
    publish_code: bool = Field(description="its team lets its code be published with the results, after the end")
    can_cancel: bool
    parts: list[PartOut] = Field(default=[], description="one for each task; none in a competition without tasks")
    combined_score: ShownNumber | None = Field(
        default=None, description="of its own public scores; null where the rule is of ranks"
    )
    part_of: str | None = Field(default=None, description="of a part, the submission that it is a part of")

    @classmethod
    def of(cls, view: SubmissionView, **more: Any) -> Self:
        submission, entry = view.submission, view.submission.entry_point
        return cls.read(
            submission,
            competition=submission.competition.slug,
            team=submission.team.name,
            submitted_by=submission.account.name,
            sha256=submission.content_sha256,
            mode=entry.get("mode", "function"),
            program=entry.get("program", ""),
            notes=entry.get("notes", []),
            progress=view.progress,
            score=view.score,
            private_score=view.private_score,
            failure=FailureOut.of(submission),
            can_cancel=view.can_cancel,
            parts=[PartOut.of(part) for part in view.parts],
            combined_score=view.combined,
            part_of=submission.parent_id,
            **more,
        )


class AcceptedSubmission(SubmissionOut):
    """A submission that was just taken, and what quota is left."""

    quota: QuotaOut


class SubmissionForm(BaseModel):
    """The form of an upload."""

    file: str = Field(description="a .py file, an .ipynb notebook or a .zip", json_schema_extra={"format": "binary"})
    message: str = Field(default="", max_length=500, description="a note to yourself", examples=["lower rate"])
    tasks: str = Field(
        default="", description="names of tasks with commas between; empty: all of the competition", examples=["faces"]
    )


class SampleAnswerOut(Out):
    """A question of the public sample, its answer in the data, and what models of the sample answer."""

    question: str = Field(examples=["Where does Ada live?"])
    answer: str = Field(description="in the data", examples=["Ada lives in Rome."])
    original: str | None = Field(description="null without an answer, here and below")
    retrained: str | None = Field(description="of a model that was trained on the sample without these questions")
    unlearned: str | None = Field(description="of the model that the submission made")


class SampleAnswersOut(Out):
    """What three language models answer to the forget questions of the public sample."""

    id: str
    questions: list[SampleAnswerOut]
    note: str = Field(description="why something is lacking; empty where nothing is")

    @classmethod
    def of(cls, submission: Submission, found: AnswersShown) -> "SampleAnswersOut":
        return cls.read(found, id=submission.id)


class ReceiptKey(BaseModel):
    """The public half of the key that signs receipts."""

    public_key: str = Field(description="Ed25519, base64", examples=["11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="])
