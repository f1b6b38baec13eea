"""The re-scoring of finals on the private split, for organisers."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from server.api.schema import In, Out
from server.finals.finals import Failed, Rescoring


class FailedFinal(BaseModel):
    """A final that failed on the private split, and waits for a decision."""

    submission: str = Field(examples=["9c1e6f0a2b3d4e5f"])
    team: str
    fault: str | None
    error_class: str | None
    message: str | None

    @classmethod
    def all(cls, failed: Sequence[Failed]) -> "list[FailedFinal]":
        return [
            cls(
                submission=each.submission.id,
                team=each.submission.team.name,
                fault=each.evaluation.fault,
                error_class=each.evaluation.error_class,
                message=(each.evaluation.error or {}).get("message"),
            )
            for each in failed
        ]


class RescoringOut(Out):
    """How far the re-scoring on the private split is, for organisers."""

    frozen: bool = Field(description="the choice of finals is fixed; before that, public scores are waited for")
    waiting_public: int = Field(description="submissions received in time that are still being scored publicly")
    finals: int
    scored: int
    unconfirmed: int = Field(description="private scores that take no rank until an organiser confirms them")
    runs_done: int
    runs_total: int
    failed: list[FailedFinal]

    @classmethod
    def of(cls, rescoring: Rescoring) -> "RescoringOut":
        return cls.read(rescoring, frozen=rescoring.is_frozen, failed=FailedFinal.all(rescoring.failed))


class Decision(In):
    """What becomes of a final that failed on the private split."""

    decision: Literal["exclude", "run-again", "use-next-choice"]
    reason: str = Field(min_length=1, max_length=1000, examples=["It divides by the size of a set that is empty here"])
