"""What a team may know of its submissions: stage, progress, its own error, its public score."""

from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, Field

from lethe.metrics.scoring.explanation import Difference
from server.api.schema import Out
from server.disclosure import gate
from server.disclosure.gate import ShownNumber, ShownScore, ShownText
from server.evaluations.evaluations import EvaluationProgress
from server.evaluations.unserved import Wait
from server.models.submission import Submission
from server.submissions.quota import Quota
from server.submissions.score_explanation import ScoreContext
from server.submissions.views import SubmissionView


class ExplanationOut(Out):
    """What a public score is made of, from its shown factors and epsilons."""

    costs: dict[str, float] = Field(
        description="by factor, its share of log(oracle / own); 0 where nothing is lost",
        examples=[{"forgetting_quality": 0.9, "retain_ratio": 0.0, "test_ratio": 0.1}],
    )
    differences: dict[str, Difference] = Field(description="from the entry before and from the best reference line")
    advice: str


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


class PartOut(Out):
    """What became of a submission in one task of its competition."""

    task: str = Field(examples=["faces"])
    competition: str = Field(description="of the task, with a board of its own", examples=["three--faces"])
    id: str = Field(description="asked for like any submission", examples=["1f0a2b3d4e5f9c1e"])
    stage: str = Field(examples=["scored"])
    progress: EvaluationProgress | None
    score: ShownScore | None
    private_score: ShownScore | None
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
    progress: EvaluationProgress | None
    wait: Wait | None = Field(default=None, description="why nothing of it runs; where one submission is asked for")
    score: ShownScore | None = Field(description="on the public split, once scored")
    private_score: ShownScore | None = Field(description="on the private split, once the board is revealed")
    explanation: ExplanationOut | None = Field(
        default=None, description="of the public score, where the organiser shows it; where one submission is asked for"
    )
    context: ScoreContext | None = Field(
        default=None, description="what stands beside the public score, and what to try next; where one is asked for"
    )
    failure: FailureOut | None
    refunded: bool = Field(description="does not count against the quota")
    selected: bool = Field(
        description="a final: chosen by its team, or at the close automatically where the team chose none"
    )
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


class OrganisedSubmissionOut(SubmissionOut):
    """A submission, as organisers see it in their list."""

    same_file_of: list[str] = Field(description="other teams that sent the same file", examples=[["bob"]])


class AcceptedSubmission(SubmissionOut):
    """A submission that was just taken, and what quota is left."""

    quota: Quota


class SubmissionForm(BaseModel):
    """The form of an upload."""

    file: str = Field(description="a .py file, an .ipynb notebook or a .zip", json_schema_extra={"format": "binary"})
    message: str = Field(default="", max_length=500, description="a note to yourself", examples=["lower rate"])
    tasks: str = Field(
        default="", description="names of tasks with commas between; empty: all of the competition", examples=["faces"]
    )


class ReceiptKey(BaseModel):
    """The public half of the key that signs receipts."""

    public_key: str = Field(description="Ed25519, base64", examples=["11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="])
